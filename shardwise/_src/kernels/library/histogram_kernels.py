"""Sums by index, with atomics: histogram, and scatter_add of rows.

    histogram:    out[indices[k]] += weights[k]
    scatter_add:  out[indices[k], :] += updates[k, :]

Programs that run at the same time must not write one block. In `histogram`, groups of programs are
parallel: each has a separate histogram, and these are added at the end. In `scatter_add`, each
program has other columns. Indices are read one at a time, as scalars, which all platforms can use
as places. Results begin with the values of an argument, and use its memory.
"""

from __future__ import annotations

import math
from functools import partial

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import as_numbers, is_integer, require
from shardwise._src.kernels.library.block_choices import Options, options_of
from shardwise._src.kernels.library.block_values import wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.messages.formatting import short_repr
from shardwise.typing import ArrayLike

MOST_GROUPS = 64
MOST_ELEMENTS = 2**19  # of the block of `scatter_add` that has all rows


def histogram(
    indices: ArrayLike,
    length: int,
    weights: ArrayLike | None = None,
    *,
    blocks: int | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """out[i] = sum(weights[indices == i]), for i below `length`.

    Args:
      indices: integers of any shape. Those that are negative, or not below `length`, are ignored.
      weights: floats or integers, of the shape of indices; without them each index counts 1.
      blocks: how many indices a block has; by default 1,024.
      check, params: as those of `kernels.call`.

    Returns:
      [length], of int32 or of the dtype of weights. Sums of small floats are computed in float32.

    Raises:
      TypeError: if indices are not integers, or weights neither floats nor integers.
      ValueError: if weights have another shape, or length or blocks is wrong.
    """
    indices = _indices("histogram", indices)
    is_size = isinstance(length, int) and not isinstance(length, bool) and length >= 0
    text = "length is the size of the result, an integer; got {}."
    require(is_size, "histogram", text, short_repr(length))
    usual = min(1024, power_above(indices.size, 128))
    options = options_of("histogram", "indices", (usual,), blocks, check, params)
    if weights is not None:
        weights = as_numbers("histogram", "weights", weights)
        text = "weights is {}; expected the shape of the indices, {}."
        require(weights.shape == indices.shape, "histogram", text, weights, [*indices.shape])
        weights = weights.reshape(-1)
    if not indices.size * length:
        return snp.zeros(length, "int32" if weights is None else weights.dtype)
    return _histogram((length, options), indices.reshape(-1), weights)


def scatter_add(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """x with updates[k] added to x[indices[k]], for all k: `x.at[indices].add(updates)`.

    Args:
      x: floats or integers, [n, ...].
      indices: integers of any shape. Those that are negative, or not below n, are ignored.
      updates: of the shape of indices, and then that of x without n; cast to the dtype of x.
      blocks: the (updates, columns) of a block; by default 512, and 128 to 512. On TPUs all n rows
        of a block of columns must fit VMEM.
      check, params: as those of `kernels.call`.

    Returns:
      An array like x.

    Raises:
      TypeError: if indices are not integers, or x or updates neither floats nor integers.
      ValueError: if x has no dimension, updates have another shape, or blocks is wrong.
    """
    indices, x = _indices("scatter_add", indices), as_numbers("scatter_add", "x", x)
    updates = as_numbers("scatter_add", "updates", updates)
    require(x.ndim, "scatter_add", "x is {}, which has no rows.", x)
    wanted = [*indices.shape, *x.shape[1:]]
    text = "updates is {}; expected the shape {}: that of indices, and that of a row of x, {}."
    require([*updates.shape] == wanted, "scatter_add", text, updates, wanted, x)
    n, columns = x.shape[0], math.prod(x.shape[1:])
    width = power_above(min(columns, 512, MOST_ELEMENTS // max(n, 1)), 128)
    options = options_of("scatter_add", "updates, columns", (512, width), blocks, check, params)
    if not indices.size * x.size:
        return x
    rows = updates.astype(x.dtype).reshape(-1, columns)
    return _scatter(options, x.reshape(n, columns), indices.reshape(-1), rows).reshape(x.shape)


def _indices(who: str, indices):
    indices = as_numbers(who, "indices", indices)
    text = "indices is {}; expected integers."
    require(is_integer(indices), who, text, indices, error=TypeError)
    return indices


def _at(rows, indices):
    """Rows at indices, and zeros for those outside: the derivative of both functions."""
    places = snp.where(indices < 0, rows.shape[0], indices)
    return rows.at[places].get(mode="fill", fill_value=0)


def _add(out, length: int, indices, left, place, value):
    """Adds value(i) to the place of indices[i], for the first `left` indices of a block, if it is
    below `length`."""

    def add(i, nothing):
        at = indices[i]
        exists = (i < left) & (at >= 0) & (at < length)
        kernels.atomic_add(out, place(snp.where(exists, at, 0)), value(i), mask=exists)
        return nothing

    lax.fori_loop(0, indices.shape[0], add, ())


# -- histogram --


def _histogram_launched(how: tuple[int, Options], indices, weights):
    (length, options), (count,) = how, indices.shape
    (size,) = options.blocks
    dtype = "int32" if weights is None else weights.dtype
    last = kernels.cdiv(count, size) - 1
    groups = max(1, min(MOST_GROUPS, last + 1, count // (4 * length)))
    each = kernels.cdiv(last + 1, groups)
    sums = kernels.Block((None, 1, length), lambda g, j: (g, 0, 0), kernels.SMEM)
    part = kernels.Block((size,), lambda g, j: (snp.minimum(g * each + j, last),), kernels.SMEM)
    start = snp.zeros((groups, 1, length), wide(dtype))
    found = kernels.call(
        partial(_histogram_body, count, each),
        sw.ShapeDtypeStruct(start.shape, start.dtype),
        grid=(("groups", groups), ("blocks", each)),
        in_specs=(part, sums, part),
        out_specs=sums,
        aliases={1: 0},
        parallel=["groups"],
        name="histogram",
        **options.of_call,
    )(indices, start, weights)
    return found.sum((0, 1)).astype(dtype)


def _histogram_body(count: int, each: int, indices, start, weights, out):
    block = kernels.program_id("groups") * each + kernels.program_id("blocks")

    def weight(i):
        return 1 if weights is None else weights[i].astype(out.dtype)

    left = count - block * indices.shape[0]
    _add(out, out.shape[1], indices, left, lambda at: (0, at), weight)


def _histogram_cotangents(how: tuple[int, Options], args, ct):
    indices, weights = args
    return None, None if weights is None else _at(ct, indices)


_histogram = with_cotangents(_histogram_launched, _histogram_cotangents)


# -- scatter_add --


def _scatter_launched(options: Options, x, indices, updates):
    (n, columns), (count,), (size, width) = x.shape, indices.shape, options.blocks
    rows = kernels.Block((n, width), lambda j, k: (0, j))
    of_indices = kernels.Block((size,), lambda j, k: (k,), kernels.SMEM)
    of_updates = kernels.Block((size, width), lambda j, k: (k, j))
    return kernels.call(
        partial(_scatter_body, count),
        sw.ShapeDtypeStruct((n, columns), x.dtype),
        grid=(("columns", kernels.cdiv(columns, width)), ("updates", kernels.cdiv(count, size))),
        in_specs=(of_indices, of_updates, rows),
        out_specs=rows,
        aliases={2: 0},
        parallel=["columns"],
        name="scatter_add",
        **options.of_call,
    )(indices, updates, x)


def _scatter_body(count: int, indices, updates, x, out):
    left = count - kernels.program_id("updates") * indices.shape[0]
    _add(out, out.shape[0], indices, left, lambda at: at, lambda i: updates[i])


_scatter = with_cotangents(
    _scatter_launched, lambda options, args, ct: (ct, None, _at(ct, args[1]))
)
