"""Mistakes that a review of the launches found, one test for each."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.launches import LAUNCHES
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas.tpu import SideEffectType
from shardwise.kernels import (
    ANY,
    VMEM,
    Block,
    BoundedSlice,
    CompilerParams,
    CostEstimate,
    call,
    ds,
    emit_pipeline,
    make_async_remote_copy,
    num_programs,
    program_id,
    run_scoped,
    when,
)
from shardwise.sharding import PartitionSpec
from tests.helpers.errors import message
from tests.kernels.kernels import like

X = np.arange(128, dtype=np.float32).reshape(16, 8)
ELEMENTS = Block((1,), lambda i: (i,))


def over(body, grid, dtype="int32", **options):
    return call(body, like(grid, dtype=dtype), grid=grid, out_specs=ELEMENTS, **options)()


# -- cached programs know the kernel that they are in --


def add_size(i, carry):
    return carry + num_programs(0)


add_size_jitted = sw.jit(lambda carry: carry + num_programs(0))
add_index_jitted = sw.jit(lambda carry: carry + program_id(0))


def size():
    return jnp.int32(num_programs(0))


def no_size():
    return jnp.int32(-1)


SIZES = {
    "loop": lambda: lax.fori_loop(0, 1, add_size, jnp.int32(0)),
    "jit": lambda: add_size_jitted(jnp.int32(0)),
    "cond": lambda: lax.cond(program_id(0) >= 0, size, no_size),
}


@pytest.mark.parametrize("form", SIZES)
def test_cached_programs_use_the_size_of_their_kernel(form):
    def body(out):
        out[...] = jnp.full((1,), SIZES[form]())

    for grid in (2, 5, 2):
        np.testing.assert_array_equal(over(body, grid), [grid] * grid)


def test_cached_programs_use_the_index_of_their_kernel():
    def body(out):
        out[...] = jnp.full((1,), add_index_jitted(jnp.int32(0)))

    def other(out):
        out[...] = jnp.full((1,), 10 * add_index_jitted(jnp.int32(0)))

    np.testing.assert_array_equal(over(body, 3), [0, 1, 2])
    np.testing.assert_array_equal(over(other, 3), [0, 10, 20])


def test_cached_programs_use_the_memory_of_their_kernel():
    def scoped(i, carry):
        return carry + run_scoped(lambda ref: ref[0], VMEM((1,), "float32"))

    def body(out):
        out[...] = jnp.full((1,), lax.fori_loop(0, 1, scoped, jnp.float32(0)))

    plain, simulated = [
        pl.pallas_call(body, like(1), interpret=interpret)() for interpret in (False, True)
    ]
    assert plain[0] == 0 and np.isnan(simulated[0])


def test_a_program_cached_in_a_kernel_is_not_used_outside():
    def body(out):
        out[...] = jnp.full((1,), add_size_jitted(jnp.int32(0)))

    over(body, 2)
    assert message(ValueError, add_size_jitted, jnp.int32(0)) == (
        "num_programs is for the body of a kernel, and is called outside of one."
    )


# -- side effects, costs --


def copy(x, out):
    out[...] = x[...]


@pytest.mark.parametrize(
    ("kind", "kept"),
    [(False, False), (True, True), (SideEffectType.PURE, False),
     (SideEffectType.SIDE_EFFECTING, True), (SideEffectType.DATAFLOW_SIDE_EFFECTING, True)],
)  # fmt: skip
def test_kernels_with_side_effects_are_kept(kind, kept):
    launch = call(copy, like(8), params=CompilerParams(has_side_effects=kind))
    inner = sw.jit(launch)

    def in_jvp(x):
        return sw.jvp(launch, (x,), (x,))

    forms = (launch, X[0]), (inner, X[0]), (sw.vmap(launch), X), (in_jvp, X[0])
    for f, x in forms:
        program = sw.jit(lambda x, f=f: (f(x), 2 * x)[1]).trace(x).program
        assert any(e.op in LAUNCHES for e in walk(program)) == kept
    np.testing.assert_array_equal(sw.jit(lambda x: (launch(x), 2 * x)[1])(X[0]), 2 * X[0])
    np.testing.assert_array_equal(kernels.checked(inner)(X[0]), X[0])


def test_stated_costs_of_derivatives_and_maps():
    f = call(copy, like(8), cost=CostEstimate(100, 10, 1000, 5))

    def cost(g, *args):
        (launch,) = [e.params["launch"] for e in walk(sw.jit(g).trace(*args).program)
                     if e.op in LAUNCHES]  # fmt: skip
        return launch.cost

    assert cost(f, X[0]) == CostEstimate(100, 10, 1000, 5)
    assert cost(sw.vmap(f), X) == CostEstimate(1600, 160, 16000, 80)
    assert cost(lambda x: sw.jvp(f, (x,), (x,)), X[0]) == CostEstimate(200, 20, 2000, 10)


# -- arguments --


def test_scratch_memory_without_a_list():
    def body(x, out, held):
        held[...] = 2 * x[...]
        out[...] = held[...]

    f = call(body, like(8), scratch=VMEM((8,), "float32"), check="memory")
    np.testing.assert_array_equal(f(X[0]), 2 * X[0])


WRONG = {
    "space": (
        TypeError, {"in_specs": Block(space="vmem")},  # type: ignore[arg-type]
        "kernel copy: the space of the block of argument x is a memory space, such as "
        "`kernels.VMEM`, or None; got 'vmem' of type str.",
    ),
    "names": (
        TypeError, {"aliases": {"x": 0}},
        "kernel copy: aliases has 'x' of type str: 0 of type int; expected the number of an "
        "argument, counted after the prefetched ones, and that of a result.",
    ),
    "pairs": (
        TypeError, {"aliases": [(0, 0)]},
        "kernel copy: aliases is a dict from numbers of arguments to numbers of results, such as "
        "{0: 0}; got [(0, 0)] of type list.",
    ),
    "simulation": (
        TypeError, {"simulation": "least"},
        "kernel copy: simulation is a `Simulation`, or None; got 'least' of type str.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments(kind):
    error, options, text = WRONG[kind]
    assert message(error, lambda: call(copy, like(8), **options)(X[0])) == text


def test_wrong_memory_and_simulations():
    assert message(TypeError, VMEM, 8, "float32") == (
        "VMEM: the shape of memory is a tuple, such as (8, 128); got 8 of type int."
    )
    assert message(TypeError, kernels.SemaphoreType.DMA, 2) == (
        "SemaphoreType.DMA: the shape of memory is a tuple, such as (8, 128); got 2 of type int."
    )
    assert message(ValueError, lambda: kernels.Simulation(outside="rased")) == (
        "Simulation: outside is one of 'moved', 'filled', 'raised'; got 'rased' of type str."
    )
    assert message(ValueError, lambda: kernels.Simulation(fill="most")) == (
        "Simulation: fill is a number, 'least' or 'greatest'; got 'most' of type str."
    )


WRONG_INDICES = {
    "too many": (
        ValueError, Block((4,), lambda i: (i, 0)),
        "the index of the block of ref 0 has 2 entries; expected 1, one for each dimension of "
        "f32[8].",
    ),
    "floats": (
        ValueError, Block((4,), lambda i: 0.5 * i),
        "the index of the block of ref 0 has an entry of type f32[]; expected integers.",
    ),
    "slices": (
        NotImplementedError, Block((BoundedSlice(4),), lambda i: ds(4 * i, 4)),
        "a block of ref 0 is a BoundedSlice, but copies have one size. Use blocks of one size, and "
        "mask what is beyond the end: `kernels.load(…, mask=…)`.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG_INDICES)
def test_wrong_indices_in_pipelines(kind):
    error, block, text = WRONG_INDICES[kind]
    own = Block((4,), lambda i: (i,))

    def body(x, out):
        emit_pipeline(copy, grid=2, in_specs=[block], out_specs=[own])(x, out)

    f = call(body, like(8), in_specs=Block(space=ANY), out_specs=Block(space=ANY))
    assert message(error, f, X[0]) == f"emit_pipeline of copy: {text}"


@pytest.mark.parametrize("turns", [0, 3])
def test_a_branch_that_receives_and_then_writes_in_a_loop(turns):
    def body(count, x, out, *semaphores):
        out[...] = x[...]

        @when(lax.axis_index("i") >= 0)
        def _():
            to = (lax.axis_index("i") + 1) % 4
            sent = make_async_remote_copy(x, out, *semaphores, device_id=(to,))
            sent.start()
            sent.wait()

            def turn(i, carry):
                out[0] += 1
                return carry

            lax.fori_loop(0, count[0], turn, 0)

    f = call(body, like(2), scratch=[kernels.SemaphoreType.DMA] * 2)
    mesh = sw.make_mesh((4,), ("i",), devices=sw.devices()[:4])
    specs = PartitionSpec(), PartitionSpec("i")
    found = sw.shard_map(f, mesh=mesh, in_specs=specs, out_specs=specs[1])(
        np.array([turns], np.int32), X[0]
    )
    wanted = np.roll(X[0], 2)
    wanted[::2] += turns
    np.testing.assert_array_equal(found, wanted)


# -- checks under other functions --


def forgetful(x, out):
    out[:4] = x[:4]


def test_checked_replaces_the_own_check_of_a_launch():
    good, bad = [sw.jit(call(body, like(8), check=True)) for body in (copy, forgetful)]
    advice = (
        "kernel copy: check=True runs the kernel step by step or several times, so that it cannot "
        "be traced. Check it outside of `jit` and other transforms, or with the function around "
        "it: `kernels.checked(f)`."
    )
    assert message(ValueError, good, X[0]) == advice
    np.testing.assert_array_equal(kernels.checked(good)(X[0]), X[0])
    np.testing.assert_array_equal(kernels.checked(sw.vmap(good))(X), X)
    assert message(ValueError, good, X[0]) == advice  # what was traced for `checked` is separate
    assert message(sw.errors.KernelError, kernels.checked(bad), X[0]).startswith("kernel forgetful")


def test_cache_misses_in_kernels_are_explained(caplog):
    def body(out):
        out[...] = jnp.full((1,), add_size_jitted(jnp.float32(0)))

    caplog.set_level("WARNING", "shardwise.jit")
    with sw.explain_cache_misses(True):
        for grid in (2, 3):
            over(body, grid, "float32")
    assert "it is called in a kernel with another grid, or not in the same kernel" in caplog.text


def test_reverse_mode_needs_sizes_of_the_grid():
    def total(x, count):
        return (call(copy, like(8), grid=count)(x) ** 2).sum()

    text = (
        "kernel copy has a grid with a traced size, so that it has no reverse-mode derivative "
        "(grad, vjp, jacrev): how many programs run is not known, so residuals cannot be stored "
        "for the backward pass. Make the sizes of the grid Python integers; use forward mode "
        "(`jvp`, `jacfwd`); or define a rule for the function that launches it by `custom_vjp`."
    )
    one = jnp.int32(1)
    assert message(ValueError, sw.grad(total), X[0], one) == text
    assert message(ValueError, sw.jit(sw.grad(total)), X[0], one) == text
    assert message(ValueError, sw.vmap(sw.grad(total), (0, None)), X, one) == text
    np.testing.assert_allclose(sw.grad(total)(X[0], 1), 2 * X[0])
    np.testing.assert_allclose(sw.jacfwd(total)(X[0], one), 2 * X[0])
    tangent = sw.jit(lambda x, n: sw.linearize(lambda x: total(x, n), x)[1](x))(X[0], one)
    np.testing.assert_allclose(tangent, 2 * (X[0] ** 2).sum())


@pytest.mark.parametrize("level", ["blocks", "memory"])
def test_checked_functions_return_arrays(level):
    launch = call(copy, like(8))
    turns = {
        "launch": launch,
        "no turns": lambda x: lax.while_loop(lambda c: c[0] < 0, launch, x),
        "numbers": lambda x: lax.while_loop(
            lambda c: c[1] < 1, lambda c: (launch(c[0]), c[1] + 1), (x, 1)
        )[1],
    }
    for name, f in turns.items():
        found, wanted = kernels.checked(f, level)(X[0]), f(X[0])
        assert isinstance(found, sw.Array), name
        assert (found.shape, found.dtype, found.weak_type) == (
            wanted.shape, wanted.dtype, wanted.weak_type
        )  # fmt: skip
    assert isinstance(call(copy, like(8), check="memory")(X[0]), sw.Array)
