"""Blocks with `Indirect` dimensions: rows at an array of indices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise.errors import KernelError
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from tests.helpers.errors import fails, message, messages
from tests.helpers.mosaic import text_of

X = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
LIKE = sw.ShapeDtypeStruct(X.shape, X.dtype)
HBM = pl.BlockSpec(memory_space=pltpu.HBM)
GATHERED = np.array([5, 2, 2, 0], np.int32)


def test_indirect_blocks():
    """Rows at an array of indices, read and written, and their derivatives."""

    def body(at: Any, x: Any, out: Any) -> None:
        assert x.shape == out.shape and x.shape[0] == 2
        out[...] = 2 * x[...]

    def f(at: Any, x: Any, width: int = 64) -> Any:
        two = pl.Indirect(2), width
        read = pl.BlockSpec(two, lambda i, j, at: (at[pl.ds(2 * i, 2)], j))
        put = pl.BlockSpec(two, lambda i, j, at: (jnp.arange(2) * 2 + 1 - i, j))
        spec = pltpu.PrefetchScalarGridSpec(
            1, grid=(2, x.shape[1] // width), in_specs=[read], out_specs=put
        )
        like = sw.ShapeDtypeStruct((4, x.shape[1]), np.float32)
        return pl.pallas_call(body, like, grid_spec=spec)(at, x)

    wanted = 2 * X[GATHERED][[2, 0, 3, 1]]
    np.testing.assert_array_equal(f(GATHERED, X), wanted)
    gradient = sw.grad(lambda x: f(GATHERED, x).sum())(X)
    np.testing.assert_array_equal(gradient, 2 * np.array([1, 0, 2, 0, 0, 1, 0, 0])[:, None] + 0 * X)
    stacked = sw.vmap(f, (None, 0))(GATHERED, np.stack([X, X + 1]))
    np.testing.assert_array_equal(stacked, [wanted, wanted + 2])
    assert isinstance(pl.Indirect(2), pl.BlockDim) and isinstance(pl.Squeezed(), pl.BlockDim)
    with pytest.raises(pltpu.LoweringException, match="is not supported by Mosaic"):
        text_of(lambda at, x: f(at, x, 128), GATHERED, X)


def test_indirect_blocks_in_pipelines():
    def double(ids: Any, x: Any, out: Any) -> None:
        out[...] = 2 * x[...] + ids[0]

    def body(at: Any, x: Any, out: Any) -> None:
        rows = pl.BlockSpec((pl.Indirect(2), 128), lambda i: (at[pl.ds(2 * i, 2)], 0))
        outs = pl.BlockSpec((2, 128), lambda i: (i, 0))
        run = pltpu.emit_pipeline(
            double, grid=(2,), in_specs=[rows], out_specs=[outs], _explicit_indices=True
        )
        run(x, out)

    spec = pltpu.PrefetchScalarGridSpec(1, in_specs=[HBM], out_specs=HBM)
    f = pl.pallas_call(body, sw.ShapeDtypeStruct((4, 128), np.float32), grid_spec=spec)
    wanted = 2 * X[GATHERED] + np.array([0, 0, 1, 1])[:, None]
    np.testing.assert_array_equal(f(GATHERED, X), wanted)


def test_results_of_pipelines():
    """Pipelines write all rows of a block; other rows are written in the body."""
    two = pl.BlockSpec((2, 128), lambda i: (i, 0))
    put = pl.BlockSpec((pl.Indirect(2), 128), lambda i: (2 * i + jnp.arange(2), 0))

    def negated(at: Any, x: Any, old: Any, out: Any, held: Any) -> None:
        def body(ids: Any, x: Any, held: Any) -> None:
            held[...] = -x[...]
            for i in range(2):
                pltpu.sync_copy(held.at[i], out.at[at[2 * ids[0] + i]])

        run = pltpu.emit_pipeline(body, grid=(2,), in_specs=[two], _explicit_indices=True)
        run(x, scratches=[held])

    spec = pltpu.PrefetchScalarGridSpec(
        1, in_specs=[HBM, HBM], out_specs=HBM, scratch_shapes=[pltpu.VMEM((2, 128), "float32")]
    )
    f = pl.pallas_call(negated, LIKE, grid_spec=spec, input_output_aliases={2: 0})
    at, wanted = np.array([5, 2, 7, 0], np.int32), X.copy()
    wanted[at] = -X[:4]
    np.testing.assert_array_equal(f(at, X[:4], X), wanted)

    def body(x: Any, out: Any) -> None:
        pltpu.emit_pipeline(lambda x, out: None, grid=(2,), in_specs=[two], out_specs=[put])(x, out)

    fails(
        NotImplementedError,
        "emit_pipeline of <lambda>: a block of ref 1, a result, has an Indirect dimension, but a "
        "pipeline copies all elements along it, also those at other indices. Use blocks without "
        "it, or copy to the result in the body: `sync_copy(block.at[0], out.at[i])`.",
        pl.pallas_call(body, LIKE, in_specs=[HBM], out_specs=HBM),
        X,
    )


def written_at(at: Any, body: Any, check: Any, width: int = 128) -> Any:
    """`body(x, out)` with 2 rows of X and of the result, at two rows of indices."""
    rows = pl.BlockSpec((2, width), lambda i, j, at: (i, j))
    put = pl.BlockSpec((pl.Indirect(2), width), lambda i, j, at: (at[pl.ds(2 * i, 2)], j))
    grid, like = (2, 128 // width), sw.ShapeDtypeStruct((4, 128), np.float32)
    f = kernels.call(
        body, like, grid=grid, in_specs=rows.block, out_specs=put.block, prefetch=1,
        parallel=(0,), name="rows", check=check,
    )  # fmt: skip
    return f(np.array(at, np.int32), X[:4])


def doubled_by_rows(at: Any, x: Any, out: Any) -> None:
    def row(i: Any, _: Any) -> None:
        out[i] = 2 * x[i]

    lax.fori_loop(0, 2, row, None)


def doubled_by_copies(at: Any, x: Any, out: Any) -> None:
    pltpu.sync_copy(x, out)
    out[...] *= 2


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("body", [doubled_by_rows, doubled_by_copies])
@pytest.mark.parametrize("check", [False, True, "memory"])
def test_checks_of_different_rows(check: Any, body: Any, width: int):
    found = written_at([2, 0, 3, 1], body, check, width)
    np.testing.assert_array_equal(found, 2 * X[[1, 3, 0, 2]])


def test_checks_of_equal_rows():
    def error(at: Any, body: Any, check: Any) -> str:
        found = message(KernelError, written_at, at, body, check)
        return re.sub(r"/\S+:\d+ \(written_at\)", "HERE", found)

    assert error([2, 0, 2, 1], doubled_by_copies, True) == (
        "kernel rows: 128 elements of out, the first at (3, 0), depend on memory that was not "
        "written: of scratch, of a result, or beyond the end of an argument. Write it first, or "
        "mask it."
    )
    assert error([2, 0, 2, 1], doubled_by_copies, "memory") == (
        "kernel rows: a race on element (2, 0) of out: program (0, 0) writes it at HERE, and "
        "program (1, 0) reads it at HERE, and neither waits for the other. The programs differ "
        "along a parallel axis of the grid, so that they may run at the same time, and both use "
        "the element. Use `atomic_add` and the other atomics, or an axis that is not parallel."
    )
    assert error([2, 0, 3, 1], lambda at, x, out: None, "memory") == (
        "kernel rows: program (0, 0) writes element (0, 0) of out at HERE, and the value depends "
        "on element (0, 0) of out, which was not written before it is read at HERE."
    )


def rejected(*shape: Any, index: Any = None) -> Any:
    """A launch with a block that cannot be."""
    spec = pl.BlockSpec(shape, index)
    return pl.pallas_call(lambda x, out: None, LIKE, name="rows", in_specs=[spec])(X)


THREE = pl.Indirect(3)
test_messages = messages(
    """
    rejected(THREE, 128, index=lambda: (jnp.arange(2), 0))
        ValueError: kernel rows: the index of the block of argument x along its Indirect dimension
        is an array of 3 integers, or a ref of them; got i32[2].
    rejected(THREE, 128, index=lambda: (jnp.zeros(3), 0))
        ValueError: kernel rows: the index of the block of argument x along its Indirect dimension
        is an array of 3 integers, or a ref of them; got f32[3].
    rejected(THREE, 128, index=lambda: (0, 0))
        ValueError: kernel rows: the index of the block of argument x along its Indirect dimension
        is an array of 3 integers, or a ref of them; got ~i32[].
    rejected(THREE, 128, index=lambda: (pl.ds(0, 3), 0))
        TypeError: kernel rows: the index of the block of argument x along its Indirect dimension
        is an array of 3 integers, or a ref of them; got Slice(start=0, size=3,
        stride=1) of type Slice.
    rejected(THREE, 128)
        ValueError: kernel rows: the index of the block of argument x along its Indirect dimension
        is an array of 3 integers, or a ref of them; the block has no index.
    rejected(128, THREE, index=lambda: 0)
        ValueError: kernel rows: the index of the block of argument x has 1 entries; expected 2, one
        for each dimension of f32[8,128].
    rejected(THREE, THREE, index=lambda: (jnp.arange(3), jnp.arange(3)))
        ValueError: kernel rows: the block of argument x has 2 Indirect dimensions,
        (Indirect(block_size=3), Indirect(block_size=3)) of type tuple. A block has one at most:
        take the elements along the others in the kernel.
    rejected(pl.Indirect(0), 128, index=lambda: (jnp.arange(0), 0))
        ValueError: kernel rows: the block of argument x has Indirect(block_size=0) of type Indirect
        along dimension 0; expected a positive integer, None, Element(size), BoundedSlice(size) or
        Indirect(size).
    """,
    globals(),
)
