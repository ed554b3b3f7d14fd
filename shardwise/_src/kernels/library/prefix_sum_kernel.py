"""Prefix sums in one pass: a carry in scratch memory goes from block to block.

    out[:, j] = x[:, 0] + … + x[:, j]

The programs of some rows run along the columns, one block after another. Each adds the sums of its
block, which it finds in log2(columns) steps, to the carry, the sum of all blocks before. `reverse`
starts with the last block, and `exclusive` moves the elements by one. The derivative is the same
kernel in the other direction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import (
    Options,
    as_numbers,
    as_rows,
    elements,
    row_block,
    sizes_of,
    wide,
)
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.program_frames import cdiv, program_id, when
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.numpy.creation import zeros
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.rearrange import roll
from shardwise._src.types.annotations import Array, ArrayLike


def cumsum(
    x: ArrayLike,
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """The sums of all elements up to each one, along an axis.

    Args:
      x: floats or integers of any shape but []. Sums of small floats are computed in float32.
      exclusive: whether sums are without the element itself, so that the first one is 0.
      reverse: whether to sum from each element to the last one.
      blocks: the (rows, columns) of a block; by default up to 16 rows and 128 columns, or up
        to 4 rows and 256 columns.
      check, params: as those of `kernels.call`.

    Returns:
      An array like x; of int32 or uint32 for smaller integers.

    Raises:
      TypeError: if x is neither of floats nor of integers.
      ValueError: if x has no dimension, or the axis or blocks is wrong.
    """
    rows, restored = as_rows("cumsum", as_numbers("cumsum", "x", x), axis)
    t = type_of(rows)
    if t.dtype.kind in "iu" and t.dtype.itemsize < 4:
        rows = rows.astype("int32" if t.dtype.kind == "i" else "uint32")
    m, n = t.shape
    height = min(row_block(m, n)[0], 16)  # a block of few elements, since it has many steps
    usual = height, min(power_above(n, 128), 256 if height < 8 else 128)
    sizes = sizes_of("cumsum", ("rows", "columns"), blocks, usual)
    if exclusive and n:
        first = zeros((m, 1), rows.dtype)
        rows = concatenate([rows[:, 1:], first] if reverse else [first, rows[:, :-1]], 1)
    return restored(_sums((bool(reverse), Options(sizes, check, params)), rows))


def forward(how: tuple[bool, Options], x: Any) -> Any:
    """The sums along each row of x, [m, n]."""
    (reverse, options), t = how, type_of(x)
    if 0 in t.shape:
        return x
    (m, n), (rows, columns) = t.shape, options.blocks
    last = cdiv(n, columns) - 1
    block = Block((rows, columns), lambda i, j: (i, last - j if reverse else j))
    return call(
        partial(_body, n, reverse),
        ShapeDtypeStruct(t.shape, t.dtype),
        grid=(("rows", cdiv(m, rows)), ("columns", last + 1)),
        in_specs=block,
        out_specs=block,
        scratch=[VMEM((rows, 1), t.dtype if t.dtype.kind in "iu" else wide(t.dtype))],
        parallel=["rows"],
        name="cumsum",
        **options.of_call,
    )(x)


def _body(n: int, reverse: bool, x: Any, out: Any, carry: Any) -> None:
    step = program_id("columns")

    @when(step == 0)
    def _() -> None:
        carry[...] = 0

    block = cdiv(n, x.shape[1]) - 1 - step if reverse else step
    values = elements(x, carry.dtype, 0, (1, block, n))
    out[...] = (carry[...] + _sums_of_block(values, reverse)).astype(out.dtype)
    carry[...] += values.sum(1, keepdims=True)


def _sums_of_block(values: Any, reverse: bool) -> Any:
    """The sums along each row: of 2 elements after the first step, of 4 after the second, …."""
    n, step = values.shape[1], 1
    at = broadcasted_iota(np.int32, values.shape, 1)
    while step < n:
        exists = at < n - step if reverse else at >= step
        values = values + where(exists, roll(values, -step if reverse else step, 1), 0)
        step *= 2
    return values


def backward(how: tuple[bool, Options], given: Any, ct: Any) -> tuple[Any]:
    return (_sums((not how[0], how[1]), ct),)


_sums = with_cotangents(forward, backward)
