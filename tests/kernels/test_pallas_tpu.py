"""JAX's names for kernels of TPUs: memory, copies, options, cores."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise._src.base.config import kernels_cpu_form
from shardwise.errors import CallbackError, KernelError
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.experimental.state import run_state
from tests.helpers.errors import message, messages
from tests.helpers.mosaic import kernels_in, text_of
from tests.kernels.mosaic_cases import CASES

X = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
LIKE = sw.ShapeDtypeStruct(X.shape, X.dtype)
HBM = pl.BlockSpec(memory_space=pltpu.HBM)


def test_semaphores_have_dtypes():
    seen = []

    def body(x: Any, out: Any, signal: Any, copies: Any) -> None:
        seen.extend([signal.dtype, copies.dtype, copies.at[0].dtype, x.dtype])
        pltpu.async_copy(x, out, copies.at[1]).wait()

    scratch = [pltpu.SemaphoreType.REGULAR, pltpu.SEMAPHORE((2,), pltpu.SemaphoreType.DMA.dtype)]
    f = pl.pallas_call(body, LIKE, in_specs=[HBM], out_specs=HBM, scratch_shapes=scratch)
    np.testing.assert_array_equal(f(X), X)
    regular, several, one, floats = seen
    assert jnp.issubdtype(regular, pl.semaphore) and not jnp.issubdtype(several, pl.semaphore)
    assert jnp.issubdtype(several, pltpu.dma_semaphore) and one == several
    assert jnp.issubdtype(one, sw.dtypes.extended) and floats == np.float32
    assert "#tpu.memory_space<semaphore_mem>" in text_of(f, X)


def test_spaces():
    memory = [pltpu.CMEM((8, 128), "float32"), pltpu.VMEM_SHARED((8, 128), "float32")]

    def body(x: Any, out: Any, a: Any, b: Any) -> None:
        pltpu.sync_copy((x, x), (a, b))
        pltpu.sync_copy(a, out, add=False)

    f = pl.pallas_call(body, LIKE, scratch_shapes=memory)
    np.testing.assert_array_equal(f(X), X)
    for space in ("cmem", "vmem_shared"):
        assert f"memref<8x128xf32, #tpu.memory_space<{space}>>" in text_of(f, X)


def test_copies_that_add():
    def body(x: Any, out: Any, semaphore: Any) -> None:
        out[...] = x[...]
        pltpu.sync_copy(x, out, add=True)
        copy = pltpu.async_copy(x.at[:4], out.at[:4], semaphore, priority=1, add=True)
        copy.wait()

    f = pl.pallas_call(body, LIKE, scratch_shapes=[pltpu.SemaphoreType.DMA])
    wanted = np.concatenate([3 * X[:4], 2 * X[4:]])
    np.testing.assert_array_equal(f(X), wanted)
    np.testing.assert_array_equal(sw.jvp(f, (X,), (X,))[1], wanted)
    checked = sw.kernels.call(body, LIKE, scratch=[pltpu.SemaphoreType.DMA], check="memory")
    np.testing.assert_array_equal(checked(X), wanted)
    with pytest.raises(pltpu.LoweringException, match="with add=True is not supported by Mosaic"):
        text_of(f, X)


def test_selected_refs():
    def body(i: Any, x: Any, y: Any, out: Any, other: Any) -> None:
        chosen = pl.select_ref(i[0], x, y)
        pltpu.sync_copy(chosen.at[:4], pl.select_ref(1 - i[0], out, other).at[4:])
        pltpu.sync_copy(pl.select_ref(1, x, y).at[4:], out.at[:4])

    spec = pltpu.PrefetchScalarGridSpec(1, in_specs=[HBM, HBM], out_specs=(HBM, HBM))
    like = sw.ShapeDtypeStruct((8, 128), np.float32)
    f = sw.jit(pl.pallas_call(body, (like, like), grid_spec=spec))
    for i in (0, 1, -3, 5):  # the last two are moved inside
        found, at = f(np.array([i]), X, -X), min(max(i, 0), 1)
        np.testing.assert_array_equal(found[min(max(1 - i, 0), 1)][4:], [X, -X][at][:4])
        np.testing.assert_array_equal(found[0][:4], -X[4:])
    assert text_of(f, np.array([0]), X, X).count("scf.if") == 8  # to start, and to wait


def selecting(use: Any) -> Any:
    """Runs `use(i, x, y, out)` with a traced i."""
    spec = pltpu.PrefetchScalarGridSpec(1, in_specs=[HBM, HBM], out_specs=HBM)
    f = pl.pallas_call(lambda i, *refs: use(i[0], *refs), LIKE, grid_spec=spec)
    return f(np.zeros(1, np.int32), X, X)


def read(i: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = pl.select_ref(i, x, y).at[...][...]


def write(i: Any, x: Any, y: Any, out: Any) -> None:
    pl.select_ref(i, out, out)[0] = 1


def test_empty_refs():
    x = pl.empty_ref_like(LIKE)
    x[...] = X
    np.testing.assert_array_equal(x[...], X)
    spaces = []

    def f(x: Any) -> Any:
        def body(refs: Any) -> None:
            scratch = pl.empty_ref_like(pltpu.VMEM((8, 128), "float32"))

            @pl.core_map(pltpu.TensorCoreMesh("core"))
            def _() -> None:
                spaces.append((refs.space, scratch.space))
                scratch[...] = 2 * refs[...]
                refs[...] = scratch[...] + 1

        return run_state(body)(x)

    np.testing.assert_array_equal(f(X), 2 * X + 1)
    assert spaces == [(pl.ANY, pltpu.VMEM)]


def checking(condition: Any) -> Any:
    with pl.enable_debug_checks(True):
        return pl.pallas_call(lambda x, out: pl.debug_check(condition, "holds"), LIKE)(X)


def test_debug_checks():
    def body(x: Any, out: Any) -> None:
        pl.debug_check(x[0, 0] == 0, "x begins with 0")
        out[...] = x[...]

    f = pl.pallas_call(body, LIKE, name="begins")
    f(X + 1)
    with pl.enable_debug_checks(True):
        assert pl.enable_debug_checks.value
        np.testing.assert_array_equal(f(X), X)
        error = message(CallbackError, lambda: np.asarray(f(X + 1)))
        assert error.endswith(": it raised KernelError: kernel begins: x begins with 0")
        assert re.search(r'cf\.assert %\w+, "kernel begins: x begins with 0"\n', text_of(f, X))
    assert "cf.assert" not in text_of(f, X)


def test_poisoned_memory():
    def body(x: Any, out: Any, held: Any) -> None:
        def scoped(own: Any) -> None:
            own[0:1] = x[0:1]
            out[...] = jnp.where(jnp.arange(8)[:, None] < 4, own[...], held[...])

        pl.run_scoped(scoped, pltpu.VMEM((8, 128), "float32"))

    memory = [pltpu.VMEM((8, 128), "float32")]
    f = pl.pallas_call(body, LIKE, scratch_shapes=memory)
    assert np.isfinite(f(X)).all()
    with pl.enable_poison_buffers(True):
        found = np.asarray(f(X))
        assert "7FC00000" in text_of(f, X)
    np.testing.assert_array_equal(found[0], X[0])
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul"])
def test_derivatives_with_poisoned_memory(name: str):
    """They are the same launches."""
    case = CASES[name]

    def gradients(*args: Any) -> Any:
        f = sw.grad(lambda *xs: (case.launch()(*xs) ** 2).sum(), tuple(range(len(args))))
        return f(*args)

    wanted, count = gradients(*case.args), len(kernels_in(gradients, *case.args))
    with pl.enable_poison_buffers(True):
        found = gradients(*case.args)
        assert len(kernels_in(gradients, *case.args)) == count == 2
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


def test_larger_programs_with_poisoned_memory():
    rows = pl.BlockSpec((1, 128), lambda i: (i, 0))
    f = pl.pallas_call(
        lambda x, out: out.set(jnp.sin(x[...])), LIKE, grid=8, in_specs=[rows], out_specs=rows
    )
    with pl.enable_poison_buffers(True), kernels_cpu_form("vectorized"):
        run = sw.jit(f)
        assert "stablehlo.while" not in run.lower(X).as_text()
        np.testing.assert_allclose(run(X), np.sin(X), rtol=1e-5)


def test_buffering():
    def text(**options: Any) -> str:
        rows = pl.BlockSpec((8, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(**options))
        f = pl.pallas_call(
            lambda x, out: out.set(x[...]), sw.ShapeDtypeStruct((16, 128), np.float32),
            grid=2, in_specs=[rows], out_specs=rows,
        )  # fmt: skip
        x = np.concatenate([X, X])
        np.testing.assert_array_equal(f(x), x)
        return text_of(f, x)

    assert text(buffer_count=1).count("pipeline_mode<synchronous>") == 2
    assert text(buffer_count=2).count("pipeline_mode<double_buffered>") == 2
    assert "revisit_mode<any>" in text(buffer_count=1, revisit=pl.RevisitMode.ANY)
    for options in ({"buffer_count": 3}, {"buffer_count": 2, "revisit": pl.RevisitMode.ANY}):
        with pytest.raises(pltpu.LoweringException, match="one or two buffers"):
            text(**options)


def pipelined(**options: Any) -> Any:
    """A pipeline whose blocks have these buffers."""
    rows = pl.BlockSpec((2, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(**options))

    def body(x: Any, out: Any) -> None:
        double = lambda x, out: out.set(2 * x[...])  # noqa: E731
        pltpu.emit_pipeline(double, grid=(4,), in_specs=[rows], out_specs=[rows])(x, out)

    return pl.pallas_call(body, LIKE, in_specs=[HBM], out_specs=HBM)(X)


def test_buffering_of_pipelines():
    for options in ({}, {"revisit": pl.RevisitMode.IMMEDIATE}):
        np.testing.assert_array_equal(pipelined(buffer_count=2, **options), 2 * X)


CORES = pltpu.TensorCoreMesh("core", num_cores=2)


def on_cores(mesh: Any) -> Any:
    """Each core adds to its rows, after a barrier; the first one writes the last row."""

    def f(x: Any) -> Any:
        def body(refs: Any) -> None:
            @pl.core_map(mesh, scratch_shapes=[pltpu.SemaphoreType.REGULAR])
            def _(semaphore: Any) -> None:
                pltpu.core_barrier(semaphore, core_axis_name="core")
                rows = pl.ds(pl.program_id("core") * 2, 2)
                refs[rows] += 1

                @pltpu.run_on_first_core("core")
                def _() -> None:
                    refs[7] = jnp.zeros(128)

        return run_state(body)(x)

    return f


def test_cores():
    f = on_cores(pltpu.TensorCoreMesh("core"))
    np.testing.assert_array_equal(f(X), np.concatenate([X[:2] + 1, X[2:7], X[7:] * 0]))
    run = sw.jit(on_cores(CORES))
    error = (
        "semaphore_signal: core 0 signals core 1, but the cores of a device run one after another "
        "on CPUs. Use one core there."
    )
    found = message(CallbackError, lambda: np.asarray(run(X)))
    assert found.endswith(f" it raised KernelError: {error}")
    found = message(KernelError, sw.kernels.checked(run), X)
    assert re.fullmatch(rf"kernel <lambda>: program \(0,\), at \S+ \(_\): {error}", found)

    def signals(refs: Any) -> None:
        def body(semaphore: Any) -> None:
            pltpu.core_barrier(semaphore, core_axis_name="core")

        pl.core_map(CORES, scratch_shapes=[pltpu.SemaphoreType.REGULAR])(body)

    text = text_of(lambda x: run_state(signals)(x), X)
    assert text.count("tpu.sem_signal") == 2 and text.count("core_id") == 2


def test_memory_of_all_programs():
    """Its values stay from one program to the next, and calls get different memory."""

    def body(x: Any, out: Any) -> None:
        seen, other = [pl.get_global(pltpu.VMEM((8, 128), "float32")) for _ in range(2)]
        semaphore = pl.get_global(pltpu.SemaphoreType.REGULAR)

        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            seen[...] = other[...] = jnp.zeros_like(x)

        pl.semaphore_signal(semaphore, 1)
        seen[...] += x[...]
        other[...] -= x[...]
        out[...] = seen[...] - other[...] + pl.semaphore_read(semaphore)

    rows = pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))
    like = sw.ShapeDtypeStruct((3, 8, 128), np.float32)
    f = pl.pallas_call(body, like, grid=3, in_specs=[pl.BlockSpec((8, 128))], out_specs=rows)
    wanted = [(2 * X + 1) * i for i in (1, 2, 3)]
    np.testing.assert_array_equal(f(X), wanted)
    np.testing.assert_array_equal(sw.vmap(f)(np.stack([X])), [wanted])
    assert "scratch_operands = 3" in text_of(f, X)


def test_primitive():
    f = pl.pallas_call(lambda x, out: out.set(x[...]), LIKE)
    (eqn,) = sw.make_jaxpr(f)(X).eqns
    assert eqn.primitive is pl.pallas_call_p
    assert pltpu.TensorCoreMesh("core").core_type is pltpu.CoreType.TC


test_messages = messages(
    """
    selecting(lambda i, x, y, out: pl.select_ref(2, x, y))
        ValueError: select_ref: there are 2 refs; got the index 2.
    selecting(lambda i, x, y, out: pl.select_ref(-1, x, y))
        ValueError: select_ref: there are 2 refs; got the index -1.
    selecting(lambda i, x, y, out: pl.select_ref(True, x, y))
        TypeError: select_ref: the index is an integer; got bool[].
    selecting(lambda i, x, y, out: pl.select_ref(i))
        ValueError: select_ref: expected refs of one shape, dtype and memory space; got none.
    selecting(read)
        TypeError: select_ref: Ref{f32[8,128]} is one of several refs, which copies take, but which
        cannot be read or written. Copy it: `sync_copy(selected, buffer)`.
    selecting(write)
        TypeError: select_ref: Ref{f32[8,128]} is one of several refs, which copies take, but which
        cannot be read or written. Copy it: `sync_copy(selected, buffer)`.
    pipelined(buffer_count=3)
        NotImplementedError: emit_pipeline of <lambda>: a block of ref 0 has
        Buffered(buffer_count=3, use_lookahead=False, revisit=None). In pipelines each has two
        buffers, without lookahead, and a block of a result is not read again. Leave it out.
    checking(1)
        TypeError: debug_check takes a boolean scalar as its first argument; got ~i32[]. Use
        `shardwise.numpy.all` or `shardwise.numpy.any`.
    checking(np.ones(2, bool))
        TypeError: debug_check takes a boolean scalar as its first argument; got bool[2]. Use
        `shardwise.numpy.all` or `shardwise.numpy.any`.
    pltpu.VMEM((2,), pltpu.SemaphoreType.REGULAR.dtype)
        TypeError: VMEM: semaphores have the dtype of a `SemaphoreType`, and are in SEMAPHORE:
        `SEMAPHORE((2,), SemaphoreType.DMA.dtype)`; got semaphore of
        type SemaphoreDType.
    pltpu.SEMAPHORE((2,), "int32")
        TypeError: SEMAPHORE_MEM: semaphores have the dtype of a `SemaphoreType`, and are in
        SEMAPHORE: `SEMAPHORE((2,), SemaphoreType.DMA.dtype)`; got 'int32' of
        type str.
    """,
    globals(),
)
