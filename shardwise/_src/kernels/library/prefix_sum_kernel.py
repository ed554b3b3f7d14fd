"""Prefix sums in one pass: a carry in scratch memory goes from block to block.

    out[:, j] = x[:, 0] + … + x[:, j]

The programs of some rows run along the columns, one block after another. Each adds the sums of its
block, which it finds in log2(columns) steps, to the carry, the sum of all blocks before. `reverse`
starts with the last block, and `exclusive` moves the elements by one. The derivative is the same
kernel in the other direction.
"""

from __future__ import annotations

from functools import partial

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import as_numbers, as_rows, is_integer
from shardwise._src.kernels.library.block_choices import Options, options_of, row_block
from shardwise._src.kernels.library.block_values import inside, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise.typing import ArrayLike


def cumsum(
    x: ArrayLike,
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
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
    if is_integer(rows):
        least = "int32" if snp.issubdtype(rows.dtype, snp.signedinteger) else "uint32"
        rows = rows.astype(snp.promote_types(rows.dtype, least))
    m, n = rows.shape
    height = min(row_block(m, n)[0], 16)  # a block of few elements, since it has many steps
    usual = height, min(power_above(n, 128), 256 if height < 8 else 128)
    options = options_of("cumsum", "rows, columns", usual, blocks, check, params)
    if not rows.size:
        return restored(rows)
    if exclusive:
        first = snp.zeros((m, 1), rows.dtype)
        parts = [rows[:, 1:], first] if reverse else [first, rows[:, :-1]]
        rows = snp.concatenate(parts, 1)
    return restored(_sums((bool(reverse), options), rows))


def _launched(how: tuple[bool, Options], x):
    """The sums along each row of x, [m, n]. how: whether in reverse, and options."""
    (reverse, options), (m, n) = how, x.shape
    rows, columns = options.blocks
    last = kernels.cdiv(n, columns) - 1
    block = kernels.Block((rows, columns), lambda i, j: (i, last - j if reverse else j))
    return kernels.call(
        partial(_body, n, reverse),
        sw.ShapeDtypeStruct((m, n), x.dtype),
        grid=(("rows", kernels.cdiv(m, rows)), ("columns", last + 1)),
        in_specs=block,
        out_specs=block,
        scratch=[kernels.VMEM((rows, 1), wide(x.dtype))],
        parallel=["rows"],
        name="cumsum",
        **options.of_call,
    )(x)


_sums = with_cotangents(_launched, lambda how, args, ct: (_sums((not how[0], how[1]), ct),))


def _body(n: int, reverse: bool, x, out, carry):
    step = kernels.program_id("columns")

    @kernels.when(step == 0)
    def _():
        carry[...] = 0

    block = kernels.cdiv(n, x.shape[1]) - 1 - step if reverse else step
    values = inside(x[...].astype(carry.dtype), 0, (1, block, n))
    out[...] = (carry[...] + _sums_of_block(values, reverse)).astype(out.dtype)
    carry[...] += values.sum(1, keepdims=True)


def _sums_of_block(values, reverse: bool):
    """The sums along each row: of 2 elements after the first step, of 4 after the second, …."""
    n, step = values.shape[1], 1
    at = lax.broadcasted_iota("int32", values.shape, 1)
    while step < n:
        exists = at < n - step if reverse else at >= step
        values = values + snp.where(exists, snp.roll(values, -step if reverse else step, 1), 0)
        step *= 2
    return values
