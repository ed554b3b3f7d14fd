"""JAX's names for kernels: the records, the functions, and the parameters for interpreting."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise import export, lax
from shardwise import numpy as jnp
from shardwise.errors import CallbackError
from shardwise.experimental import checkify
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.experimental.pallas import triton as pltriton
from tests.helpers.errors import message

X = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
ROWS = pl.BlockSpec((4, 8), lambda i: (i, 0))
LIKE = sw.ShapeDtypeStruct(X.shape, X.dtype)


def copied(x, out):
    out[...] = x[...]


# -- records --


def test_specs_are_records():
    assert pl.BlockSpec(ROWS.block_shape, ROWS.index_map) == ROWS
    other = ROWS.replace(block_shape=(8, 8), memory_space=pltpu.VMEM)
    assert (other.block_shape, other.index_map) == ((8, 8), ROWS.index_map)
    assert pl.MemoryRef(LIKE, pltpu.SMEM) == pltpu.SMEM(X.shape, X.dtype)
    assert other.memory_space == pltpu.MemorySpace.VMEM and ROWS.memory_space is None
    spec = pltpu.PrefetchScalarGridSpec(1, grid=(4,), in_specs=[ROWS])
    assert isinstance(spec, pl.GridSpec) and (spec.num_scalar_prefetch, spec.grid) == (1, (4,))


def test_a_grid_spec_with_prefetched_indices_scratch_by_name_and_an_alias():
    def body(order, x, first, out, *, total):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += x[...]
        out[...] = first[...] + total[...]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[
            pl.BlockSpec((4, 8), lambda i, order: (order[i], 0), pipeline_mode=pl.Buffered(2)),
            pl.BlockSpec((4, 8), lambda i, order: (i, 0)),
        ],
        out_specs=pl.BlockSpec((4, 8), lambda i, order: (i, 0)),
        scratch_shapes={"total": pltpu.VMEM((4, 8), jnp.float32)},
    )
    f = pl.pallas_call(
        body,
        LIKE,
        grid_spec=spec,
        input_output_aliases={2: 0},
        compiler_params=pltpu.CompilerParams(dimension_semantics=[pltpu.ARBITRARY]),
    )
    order = np.array([2, 0, 3, 1], np.int32)
    sums = np.cumsum(X.reshape(4, 4, 8)[order], 0).reshape(16, 8)
    np.testing.assert_array_equal(f(order, X, 2 * X), 2 * X + sums)


def test_lists_of_results_are_tuples():
    def body(x, a, b):
        a[...], b[...] = x[...], -x[...]

    found = pl.pallas_call(body, [LIKE, LIKE], in_specs=[pl.no_block_spec])(X)
    assert isinstance(found, tuple)
    np.testing.assert_array_equal(found[1], -X)


def test_slices_of_traced_sizes():
    def body(starts, sizes, x, out):
        out[...] = x[...] + pl.program_id(0)

    block = pl.BlockSpec((pl.BoundedSlice(8), 8), lambda i, at, n: (pl.ds(at[i], n[i]), 0))
    spec = pltpu.PrefetchScalarGridSpec(2, (3,), [block], block)
    f = pl.pallas_call(body, LIKE, grid_spec=spec)
    starts, sizes = np.array([9, 3, 0], np.int32), np.array([7, 6, 3], np.int32)
    wanted = X + np.repeat([2, 1, 0], [3, 6, 7])[:, None]
    np.testing.assert_array_equal(f(starts, sizes, X), wanted)
    both = sw.vmap(f, in_axes=(None, None, 0))(starts, sizes, np.stack([X, -X]))
    np.testing.assert_array_equal(both, [wanted, wanted - 2 * X])


def test_sizes_may_be_symbolic():
    def f(x):
        grid = pl.cdiv(x.shape[0], 4), (x.shape[1] + 7) // 8
        block = pl.BlockSpec((4, 8), lambda i, j: (i, j))
        return pl.pallas_call(
            copied, sw.ShapeDtypeStruct(x.shape, x.dtype), grid=grid, in_specs=[block],
            out_specs=block,
        )(x) + pl.pallas_call(copied, x)(x)  # fmt: skip

    m, n = export.symbolic_shape("m, n")
    exported = export.export(sw.jit(f))(sw.ShapeDtypeStruct((m, n), X.dtype))
    for x in (X, X[:7, :5]):
        np.testing.assert_array_equal(exported.call(x), 2 * x)
    assert "uses_shape_polymorphism = true" in pl.lower_as_mlir(
        f, sw.ShapeDtypeStruct((m, n), X.dtype), dynamic_shapes=True
    )
    x = sw.ShapeDtypeStruct((m, n), X.dtype)
    with pytest.raises(NotImplementedError, match="a multiple of 8 there, or the array's size m"):
        pl.lower_as_mlir(f, x, platforms=["tpu"])
    with pytest.raises(NotImplementedError, match="with symbolic sizes, which f32"):
        pl.lower_as_mlir(pl.pallas_call(copied, x), x, platforms=["tpu"])


# -- interpreting --


def unwritten(interpret, dtype="float32"):
    """What is read of scratch memory, of memory for a part, of a result, and beyond an array."""

    def body(x, a, b, c, d, scratch):
        a[...] = scratch[...]
        pl.run_scoped(lambda memory: b.set(memory[...]), pltpu.VMEM((2,), dtype))
        d[...] = x[...]

    out = [sw.ShapeDtypeStruct((2,), dtype)] * 3 + [sw.ShapeDtypeStruct((4,), dtype)]
    f = pl.pallas_call(
        body,
        out,
        in_specs=[pl.BlockSpec((pl.Element(4, (1, 1)),), lambda: 0)],
        scratch_shapes=[pltpu.VMEM((2,), dtype)],
        interpret=interpret,
    )
    *found, padded = map(np.asarray, sw.jit(f)(jnp.ones(2, dtype)))
    assert (padded[1:3] == 1).all()
    return np.concatenate([*found, padded[[0, 3]]])


@pytest.mark.parametrize(
    "interpret, floats, integers",
    [
        (False, 0, 0),
        (True, np.nan, -128),
        (pltpu.InterpretParams(), np.nan, 127),
        (pltpu.InterpretParams(uninitialized_memory="zero"), 0, 0),
    ],
)
def test_memory_that_was_not_written(interpret, floats, integers):
    np.testing.assert_array_equal(unwritten(interpret), np.full(8, floats, np.float32))
    np.testing.assert_array_equal(unwritten(interpret, "int8"), np.full(8, integers, np.int8))


def moved(first, last):
    rows = (
        pl.BlockSpec((4, 8), lambda i: (i + first, 0)),
        pl.BlockSpec((4, 8), lambda i: (i + last, 0)),
    )

    def f(interpret):
        call = pl.pallas_call(
            copied, LIKE, grid=(4,), in_specs=[rows[0]], out_specs=rows[1], interpret=interpret
        )
        return sw.jit(call)(X)

    return f


def rows_from(start, write=False):
    def body(i, x, out, semaphore):
        if write:
            out[pl.ds(i[0], 4, 2)] = x[:4]
        else:
            out[:4] = x[pl.ds(i[0], 4, 2)]
            pltpu.async_copy(x.at[pl.ds(i[0], 4)], out.at[4:8], semaphore).wait()

    def f(interpret):
        call = pl.pallas_call(
            body, LIKE, scratch_shapes=[pltpu.SemaphoreType.DMA], interpret=interpret
        )
        return sw.jit(call)(jnp.array([start]), X)

    return f


RAISED, FILLED = pltpu.InterpretParams(), pltpu.InterpretParams(out_of_bounds_reads="uninitialized")


def test_reads_outside_are_errors_or_memory_that_was_not_written():
    assert np.isnan(moved(1, 0)(FILLED)[12:]).all()
    np.testing.assert_array_equal(moved(1, 0)(FILLED)[:12], X[4:])
    found = np.asarray(rows_from(14)(FILLED))
    np.testing.assert_array_equal(found[[0, 4, 5]], X[[14, 14, 15]])
    assert np.isnan(found[[1, 2, 3, 6, 7]]).all()
    np.testing.assert_array_equal(rows_from(9)(RAISED)[:8], X[[9, 11, 13, 15, 9, 10, 11, 12]])
    np.testing.assert_array_equal(rows_from(9, True)(RAISED)[9::2], X[:4])


OUTSIDE = [
    (moved(1, 0), "kernel copied: Out-of-bounds block index (4, 0) for input x, f32[16,8] in blocks of (4, 8)."),
    (moved(0, -1), "kernel copied: Out-of-bounds block index (-1, 0) for output out, f32[16,8] in blocks of (4, 8)."),
    (rows_from(10), "Out-of-bounds read: elements [10:17, 0:8] of f32[16,8]."),
    (rows_from(10, True), "Out-of-bounds write: elements [10:17, 0:8] of f32[16,8]."),
]  # fmt: skip


@pytest.mark.parametrize("f, text", OUTSIDE)
def test_accesses_outside_are_errors_when_the_kernel_runs(f, text):
    found = message(CallbackError, lambda: np.asarray(f(RAISED)))
    pltpu.reset_tpu_interpret_mode_state()
    assert found.endswith(f": it raised KernelError: {text}")
    assert f(True).shape == (16, 8)  # as slices of arrays


def test_programs_along_parallel_axes_run_in_an_order_of_the_seed():
    seen = []

    def recorder(token, ids, core):
        seen.append((*map(int, ids), int(core)))
        return token

    def run(semantics, seed, cores=1):
        seen.clear()
        params = pltpu.InterpretParams(
            grid_point_recorder=recorder, random_seed=seed, num_cores_or_threads=cores
        )
        block = pl.BlockSpec((4, 1), lambda i, j: (i, j))
        call = pl.pallas_call(
            copied,
            LIKE,
            grid=(4, 8),
            in_specs=[block],
            out_specs=block,
            compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
            interpret=params,
        )
        np.testing.assert_array_equal(sw.jit(call)(X), X)
        return list(seen)

    every = [(i, j, 0) for i in range(4) for j in range(8)]
    assert run(("arbitrary", "arbitrary"), 3) == every
    for seed in (None, 3):
        key = jax.random.split(jax.random.key(seed or 0))
        rows = np.asarray(jax.random.permutation(key[1], 4))
        wanted = [(int(i), j, int(n >= 2)) for n, i in enumerate(rows) for j in range(8)]
        assert run((pltpu.PARALLEL, pltpu.ARBITRARY), seed, 2) == wanted
    key = jax.random.split(key[0])
    columns = np.asarray(jax.random.permutation(key[1], 8))
    wanted = [(int(i), int(j), n // 2) for n, i in enumerate(rows) for j in columns]
    assert run(("parallel", "parallel"), 3, 2) == wanted
    assert message(ValueError, lambda: run(("arbitrary", "parallel"), None)) == (
        "pallas_call: TPUs divide the programs along the first axes of a grid among their cores, so "
        "that parallel axes come first; got ('arbitrary', 'parallel') of type tuple."
    )


def test_floats_may_be_skipped():
    def body(x, out, count):
        out[...] = x[...] @ x[...].T
        count[...] = jnp.full_like(count, (x[...] < 0).sum() + 3)

    out = sw.ShapeDtypeStruct((16, 16), "float32"), sw.ShapeDtypeStruct((2,), "int32")
    params = pltpu.InterpretParams(skip_floating_point_ops=True)
    found, count = pl.pallas_call(body, out, interpret=params)(-X)
    assert np.isposinf(found).all() and np.asarray(count).tolist() == [3, 3]


def test_memory_from_which_tpus_only_copy():
    def f(space):
        spec = pl.BlockSpec(memory_space=space)
        return pl.pallas_call(copied, LIKE, in_specs=[spec], interpret=pltpu.InterpretParams())(X)

    np.testing.assert_array_equal(f(pltpu.VMEM), X)
    assert message(ValueError, lambda: f(pl.ANY)) == (
        "Ref{f32[16,8]} is in ANY, from which TPUs only copy. Copy to and from VMEM: `sync_copy` "
        "or `make_async_copy`."
    )

    def allocates(x, out):
        pl.run_scoped(lambda memory: pltpu.sync_copy(x, memory), pltpu.HBM((16, 8), "float32"))
        out[...] = x[...]

    params = pltpu.InterpretParams(allow_hbm_allocation_in_run_scoped=True)
    assert pl.pallas_call(allocates, LIKE, interpret=params)(X).shape == (16, 8)
    with pltpu.force_tpu_interpret_mode():
        assert message(ValueError, lambda: pl.pallas_call(allocates, LIKE)(X)) == (
            "run_scoped: a kernel of TPUs cannot allocate memory in HBM. Pass it to the kernel, as "
            "a result, or choose VMEM."
        )
    assert pl.pallas_call(allocates, LIKE)(X).shape == (16, 8)
    pltpu.set_tpu_interpret_mode(params)
    try:
        assert message(ValueError, lambda: f(pltpu.HBM)).startswith("Ref{f32[16,8]} is in HBM")
    finally:
        pltpu.set_tpu_interpret_mode(None)


# -- functions --


def run(body: Any, *args: Any, out: Any = LIKE) -> Any:
    return pl.pallas_call(body, out)(*args)


def test_loops_and_memory_by_decorators(capsys):
    def body(x, out):
        out[...] = jnp.zeros_like(out)

        @pl.with_scoped(pltpu.VMEM((8,), "float32"), more=pltpu.VMEM((8,), "float32"))
        def copy(i, row, *, more):
            row[...], more[...] = x[i], x[i + 1]
            out[i] = row[...] + more[...]

        pl.loop(0, 14, step=4, unroll=False)(copy)
        total = pl.loop(jnp.int32(1), jnp.int32(4), init_carry=jnp.int32(0))(lambda i, c: c + i)
        pl.debug_print("total", total)
        pl.debug_print("total = {}", total)

    wanted = np.zeros_like(X)
    wanted[:13:4] = X[:13:4] + X[1:14:4]
    np.testing.assert_array_equal(run(body, X), wanted)
    sw.effects_barrier()
    assert capsys.readouterr().out == "total 6\ntotal = 6\n"


def test_checks_in_kernels():
    def body(i, x, out):
        pl.debug_check(i[0] < 10, "a late row")
        out[...] = x[pl.ds(i[0], 4)] / jnp.float32(2)

    call = pl.pallas_call(body, sw.ShapeDtypeStruct((4, 8), "float32"))

    def found(i: int, errors: Any) -> str:
        return str(checkify.checkify(sw.jit(call), errors=errors)(np.array([i]), X)[0].get())

    assert found(9, checkify.user_checks | checkify.index_checks) == "None"
    assert "a late row" in found(11, checkify.user_checks)
    assert "index 13 is out of bounds for axis 0" in found(13, checkify.index_checks)


def test_accesses_by_the_functions_of_tpus_and_gpus():
    def body(x, out, old):
        low = lax.broadcasted_iota(jnp.int32, (8,), 0) < 3
        pltpu.store(out, jnp.full(out.shape, 5.0))
        pltriton.store(out.at[1], x[1], mask=low, eviction_policy="evict_last")
        pltpu.store(out.at[2], pltpu.load(x.at[2], mask=low))
        pltriton.store(out.at[3], pltriton.load(x.at[3], mask=low, other=-1))
        old[0] = pltriton.atomic_add(out, (4,), x[4])
        old[1] = pltriton.atomic_xchg(out, (5,), x[5])
        old[2] = pltriton.atomic_cas(out.at[4], 5.0 + x[4, 0], 7.0)
        out[6] = pl.reciprocal(x[6], approx=True)
        out[8:] = pltriton.dot(x[8:], x[8:], trans_b=True)
        pltriton.debug_barrier()

    old = sw.ShapeDtypeStruct((3, 8), "float32")
    found, before = map(np.asarray, run(body, X, out=(LIKE, old)))
    wanted, low = np.full_like(X, 5), np.arange(8) < 3
    wanted[1] = np.where(low, X[1], 5)
    wanted[2] = np.where(low, X[2], 0)
    wanted[3] = np.where(low, X[3], -1)
    wanted[4] += X[4]
    wanted[4, 0] = 7
    wanted[5], wanted[6], wanted[8:] = X[5], 1 / X[6], X[8:] @ X[8:].T
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_array_equal(before, [[5] * 8, [5] * 8, 5 + X[4]])


def test_rolls_and_bits():
    np.testing.assert_array_equal(pltpu.roll(X, 3, 1), np.roll(X, 3, 1))
    found = pltpu.roll(X, jnp.int32(1), 0, stride=2, stride_axis=1)
    wanted = np.stack([np.roll(X[:, j], 1 + 2 * j) for j in range(8)], 1)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(pltpu.roll(X, 1, -2, stride=2, stride_axis=-1), wanted)
    assert pltpu.bitcast(X, jnp.int16).shape == (32, 8)
    np.testing.assert_array_equal(pltpu.bitcast(pltpu.bitcast(X, "int16"), "float32"), X)


PACKED = [
    *(("int8", "int4"), ("int16", "uint8"), ("uint32", "int8"), ("int32", "int16")),
    ("float32", "bfloat16"),
]


@pytest.mark.parametrize("wide, packed", PACKED)
def test_packed_elements(wide, packed):
    like = sw.ShapeDtypeStruct(X.shape, wide)
    of = {"packed_dtype": packed}
    count = np.dtype(wide).itemsize * 8 // jnp.iinfo(packed).bits if wide != "float32" else 2
    xs = [(3 * X - 100 * i).astype(np.int64).astype(wide) for i in range(count)]

    def body(*refs):
        *ins, word, outs = refs[: count + 1] + (refs[count + 1 :],)
        word[...] = pltpu.pack_elementwise([x[...] for x in ins], **of)
        for i, out in enumerate(outs):
            out[...] = pltpu.unpack_elementwise(word[...], index=i, unpacked_dtype=wide, **of)

    word = sw.ShapeDtypeStruct(X.shape, f"uint{8 * np.dtype(wide).itemsize}")
    found, *parts = run(body, *xs, out=(word, *[like] * count))
    for x, part in zip(xs, parts, strict=True):
        np.testing.assert_array_equal(part, np.asarray(jnp.asarray(x).astype(packed).astype(wide)))
    if packed == "int16":
        lows = [x.astype(np.int64) & 0xFFFF for x in xs]
        np.testing.assert_array_equal(found, lows[0] | lows[1] << 16)


def test_products_are_float32_or_int32():
    like = {"bfloat16": "float32", "float16": "float32", "float64": "float64", "int8": "int32"}
    with sw.enable_x64():
        for dtype, wanted in like.items():
            x = jnp.full((2, 64), 3, dtype)
            found = pltriton.dot(x, x, trans_b=True)
            assert found.dtype == wanted and (np.asarray(found) == 576).all()
    dots = [functools.partial(pltriton.dot, allow_tf32=allowed) for allowed in (False, True)]
    texts = [str(sw.make_jaxpr(dot)(X, X.T)) for dot in dots]
    assert ["HIGHEST" in text for text in texts] == [True, False]


def test_functions_on_cores():
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)

    @pl.kernel(out_type=LIKE, mesh=mesh, scratch_types=[pltpu.VMEM((8, 8), "float32")])
    def twice(x, out, own):
        rows = pl.ds(lax.axis_index("core") * 8, 8)
        pltpu.sync_copy(x.at[rows], own)
        own[...] = 2 * own[...]
        pltpu.sync_copy(own, out.at[rows])

    np.testing.assert_array_equal(twice(X), 2 * X)

    def thrice(refs):
        @pl.core_map(
            pltpu.create_tensorcore_mesh("core"), scratch_shapes={"own": pltpu.SMEM((), "int32")}
        )
        def _(own):
            own[()] = 3
            refs[1][...] = refs[0][...] * own[()].astype(jnp.float32)

    np.testing.assert_array_equal(pl.run_state(thrice)((X, jnp.zeros_like(X)))[1], 3 * X)


def test_pipelines_of_blocks():
    def body(x, out):
        double = lambda x, out: out.set(2 * x[...])  # noqa: E731
        spec = pl.BlockSpec((4, 8), lambda i: (i, 0))
        pltpu.emit_pipeline(double, grid=(4,), in_specs=[spec], out_specs=[spec])(x, out)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        body, LIKE, in_specs=[anywhere], out_specs=anywhere, interpret=pltpu.InterpretParams()
    )
    np.testing.assert_array_equal(call(X), 2 * X)


MISTAKES = [
    (
        lambda: pl.pallas_call(copied, LIKE, grid_spec=pl.GridSpec(), grid=(4,)),
        ValueError,
        "pallas_call: grid, in_specs, out_specs and scratch_shapes are fields of grid_spec if that "
        "is given.",
    ),
    (
        lambda: pl.pallas_call(
            copied, LIKE, grid_spec=pl.GridSpec(), scratch_shapes=[pltpu.SMEM((), "int32")]
        ),
        ValueError,
        "pallas_call: grid, in_specs, out_specs and scratch_shapes are fields of grid_spec if that "
        "is given.",
    ),
    (
        lambda: pltpu.roll(X, 1, 0, stride=2),
        ValueError,
        "roll: stride and stride_axis are given both, or neither.",
    ),
    (
        lambda: pltpu.roll(X, 1, 0, stride=2, stride_axis=-2),
        ValueError,
        "roll: axis and stride_axis are different; got 0 for both.",
    ),
    (
        lambda: pltpu.pack_elementwise([X, X[0]], packed_dtype="bfloat16"),
        ValueError,
        "pack_elementwise: expected arrays of one shape and dtype; got f32[16,8], f32[8].",
    ),
    (
        lambda: pltpu.pack_elementwise([X], packed_dtype="bfloat16"),
        ValueError,
        "pack_elementwise: an element of float32 has 2 parts of bfloat16; got 1 arrays.",
    ),
    (
        lambda: pltpu.pack_elementwise([X, X], packed_dtype="int16"),
        ValueError,
        "pack_elementwise: bfloat16 is packed into float32, and integers into wider ones; got int16 "
        "and float32.",
    ),
    (
        lambda: pltpu.unpack_elementwise(
            X, index=2, packed_dtype="bfloat16", unpacked_dtype="float32"
        ),
        ValueError,
        "unpack_elementwise: an element has 2 parts of bfloat16; got index 2.",
    ),
    (
        lambda: pltpu.unpack_elementwise(X, index=0, packed_dtype="int4", unpacked_dtype="int8"),
        ValueError,
        "unpack_elementwise: int8 has 8 bits; got x, f32[16,8].",
    ),
    (
        lambda: pltriton.dot(X, X[0]),
        ValueError,
        "dot: expected two matrices; got f32[16,8] and f32[8].",
    ),
    (
        lambda: pltriton.dot(X, X.T, allow_tf32=True, precision="highest"),
        ValueError,
        "dot: allow_tf32 is another way to give precision; pass one of them.",
    ),
    (
        lambda: pl.pallas_call(copied, LIKE, in_specs={"x": ROWS}),
        ValueError,
        "pallas_call: in_specs is a tuple or list with a BlockSpec for each argument; got "
        "{'x': BlockSpec(block_shape=(4, 8), index_map=<function <... of type dict.",
    ),
    (
        lambda: pl.pallas_call(
            copied,
            LIKE,
            grid=(4,),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 2),
        ),
        ValueError,
        "pallas_call: dimension_semantics has 2 entries, ('parallel', 'parallel') of type tuple; "
        "the grid has 1 axes.",
    ),
    (
        lambda: pl.pallas_call(copied, LIKE, interpret="yes"),
        TypeError,
        "interpret is a boolean or InterpretParams(); got 'yes' of type str.",
    ),
    (
        lambda: pltpu.InterpretParams(out_of_bounds_reads="ignore"),
        ValueError,
        "InterpretParams: out_of_bounds_reads is one of 'raise', 'uninitialized'; got 'ignore' of "
        "type str.",
    ),
    (
        lambda: pltpu.InterpretParams(num_cores_or_threads=0),
        ValueError,
        "InterpretParams: num_cores_or_threads is at least 1; got 0.",
    ),
    (
        lambda: pl.pallas_call(
            lambda x, out: None,
            LIKE,
            in_specs=[pl.BlockSpec((pl.BoundedSlice(4), 8), lambda: (0, 0))],
        )(X),
        TypeError,
        "kernel <lambda>: the index of the block of argument x along a BoundedSlice is a slice, "
        "`ds(start, size)`; got 0 of type int.",
    ),
]


@pytest.mark.parametrize("f, kind, text", MISTAKES)
def test_mistakes(f, kind, text):
    assert message(kind, f) == text


@pytest.mark.parametrize("low", [0, 1, 2])
def test_indices_of_elements_count_from_the_padding(low):
    def body(x, out):
        out[...] = x[...]

    x = np.arange(1, 13, dtype=np.float32)
    block = pl.BlockSpec((pl.Element(6, (low, 2)),), lambda i: (4 * i,))
    like = sw.ShapeDtypeStruct((3, 6), np.float32)
    out = pl.BlockSpec((None, 6), lambda i: (i, 0))
    found = pl.pallas_call(body, like, grid=3, in_specs=[block], out_specs=out)(x)
    padded = np.pad(x, (low, 2))
    wanted = np.stack([padded[4 * i : 4 * i + 6] for i in range(3)])
    at = np.arange(3)[:, None] * 4 + np.arange(6) - low
    inside = (at >= 0) & (at < 12)
    np.testing.assert_array_equal(np.asarray(found)[inside], wanted[inside])


# -- functions of arrays --


@pytest.mark.parametrize("equation, sizes", [
    ("ab->ba", {}), ("a(bc)->abc", {"b": 4}), ("(ab)(cd)->(ca)(db)", {"a": 2, "d": 4}),
    ("ab->(ab)", {}), ("(ab)c->b(ca)", {"a": 1, "b": 16}),
])  # fmt: skip
def test_einshape(equation, sizes):
    from jax.experimental.pallas import tpu as theirs

    wanted = theirs.einshape(equation, X, **sizes)
    np.testing.assert_array_equal(pltpu.einshape(equation, X, **sizes), wanted)


@pytest.mark.parametrize("equation, text", [
    ("ab", "two sides"), ("a(b->ab", "two sides"), ("aa->a", "once on each side"),
    ("abc->cba", "the array has 2 dimensions"), ("a(bc)->abc", "cannot be split with the sizes"),
])  # fmt: skip
def test_equations_that_do_not_fit(equation, text):
    assert text in message(ValueError, pltpu.einshape, equation, X)


@pytest.mark.parametrize("block, tile, index", [
    ((4, 8), (2, 4), (1, 1)), ((8,), (4,), (2,)), ((2, 2, 4), (1, 2, 2), (0, 1, 0)),
])  # fmt: skip
def test_samples_do_not_depend_on_blocks(block, tile, index):
    from jax.experimental.pallas import tpu as theirs

    total = [3 * n + 1 for n in block]
    sizes = block, tile, total, index
    found = pltpu.sample_block(sw.random.uniform, sw.random.key(3), *sizes, minval=-1)
    wanted = theirs.sample_block(jax.random.uniform, jax.random.key(3), *sizes, minval=-1)
    np.testing.assert_array_equal(found, wanted)
