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
    VMEM,
    Block,
    CompilerParams,
    CostEstimate,
    call,
    num_programs,
    program_id,
    run_scoped,
)
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
