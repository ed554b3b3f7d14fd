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
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import Options, as_numbers, sizes_of, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.program_frames import cdiv, program_id
from shardwise._src.kernels.ref_access import atomic_add
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import SMEM
from shardwise._src.maps.ufuncs import minimum
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import zeros
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import reshape
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer

MOST_GROUPS = 64
MOST_ELEMENTS = 2**19  # of the block of `scatter_add` that has all rows


def histogram(
    indices: ArrayLike,
    length: int,
    weights: ArrayLike | None = None,
    *,
    blocks: int | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
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
    shape = type_of(indices).shape
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise ValueError(
            f"histogram: length is the size of the result, an integer; got {short_repr(length)}."
        )
    usual = min(1024, power_above(math.prod(shape), 128))
    options = Options(sizes_of("histogram", ("indices",), blocks, (usual,)), check, params)
    values = [] if weights is None else [as_numbers("histogram", "weights", weights)]
    for w in values:
        if type_of(w).shape != shape:
            raise ValueError(
                f"histogram: weights is {type_of(w).str_short(True)}; expected the shape of the "
                f"indices, {list(shape)}."
            )
    flat = [reshape(w, (-1,)) for w in values]
    return _histogram((length, options), reshape(indices, (-1,)), flat)


def scatter_add(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
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
    added = as_numbers("scatter_add", "updates", updates)
    t, shape = type_of(x), type_of(indices).shape
    if not t.ndim:
        raise ValueError(f"scatter_add: x is {t.str_short(True)}, which has no rows.")
    if type_of(added).shape != shape + t.shape[1:]:
        raise ValueError(
            f"scatter_add: updates is {type_of(added).str_short(True)}; expected the shape "
            f"{list(shape + t.shape[1:])}: that of indices, and that of a row of x, "
            f"{t.str_short(True)}."
        )
    n, columns = t.shape[0], math.prod(t.shape[1:])
    width = power_above(min(columns, 512, MOST_ELEMENTS // max(n, 1)), 128)
    sizes = sizes_of("scatter_add", ("updates", "columns"), blocks, (512, width))
    rows = reshape(added.astype(t.dtype), (math.prod(shape), columns))
    args = reshape(x, (n, columns)), reshape(indices, (-1,)), rows
    return reshape(_scatter_add(Options(sizes, check, params), *args), t.shape)


def _indices(who: str, indices: Any) -> Any:
    indices = as_numbers(who, "indices", indices)
    if not is_integer(type_of(indices).dtype):
        raise TypeError(f"{who}: indices is {type_of(indices).str_short(True)}; expected integers.")
    return indices


def _at(rows: Any, indices: Any) -> Any:
    """Rows at indices, and zeros for those outside: the derivative of both functions."""
    n = type_of(rows).shape[0]
    return rows.at[where(indices < 0, n, indices)].get(mode="fill", fill_value=0)


# -- histogram --


def _histogram_kernel(how: tuple[int, Options], indices: Any, weights: list[Any]) -> Any:
    (length, options), (count,) = how, indices.shape
    (size,) = options.blocks
    dtype = type_of(weights[0]).dtype if weights else np.dtype("int32")
    if not count * length:
        return zeros(length, dtype)
    total = cdiv(count, size)
    groups = max(1, min(MOST_GROUPS, total, count // (4 * length)))
    each = cdiv(total, groups)
    start = zeros((groups, 1, length), dtype if is_integer(dtype) else wide(dtype))
    part = Block((size,), lambda g, j: (minimum(g * each + j, total - 1),), SMEM)
    sums = Block((None, 1, length), lambda g, j: (g, 0, 0), SMEM)
    found = call(
        partial(_histogram_body, count, each),
        ShapeDtypeStruct(start.shape, start.dtype),
        grid=(("groups", groups), ("blocks", each)),
        in_specs=(part, sums, part),
        out_specs=sums,
        aliases={1: 0},
        parallel=["groups"],
        name="histogram",
        **options.of_call,
    )(indices, start, weights)
    return found.sum((0, 1)).astype(dtype)


def _histogram_body(
    count: int, each: int, indices: Any, start: Any, weights: list[Any], out: Any
) -> None:
    size = indices.shape[0]
    first = (program_id("groups") * each + program_id("blocks")) * size

    def add(i: Any, nothing: Any) -> Any:
        at = indices[i]
        exists = (first + i < count) & (at >= 0) & (at < out.shape[1])
        added = weights[0][i].astype(out.dtype) if weights else 1
        atomic_add(out, (0, where(exists, at, 0)), added, mask=exists)
        return nothing

    fori_loop(0, size, add, ())


_histogram = with_cotangents(
    _histogram_kernel, lambda how, given, ct: (None, [_at(ct, given[0]) for _ in given[1]])
)


# -- scatter_add --


def _scatter_add_kernel(options: Options, x: Any, indices: Any, updates: Any) -> Any:
    (n, columns), (count,), (size, width) = x.shape, indices.shape, options.blocks
    if not count * n * columns:
        return x
    rows = Block((n, width), lambda j, k: (0, j))
    of_indices, of_updates = (
        Block((size,), lambda j, k: (k,), SMEM),
        Block((size, width), lambda j, k: (k, j)),
    )
    return call(
        partial(_scatter_add_body, count),
        ShapeDtypeStruct((n, columns), x.dtype),
        grid=(("columns", cdiv(columns, width)), ("updates", cdiv(count, size))),
        in_specs=(of_indices, of_updates, rows),
        out_specs=rows,
        aliases={2: 0},
        parallel=["columns"],
        name="scatter_add",
        **options.of_call,
    )(indices, updates, x)


def _scatter_add_body(count: int, indices: Any, updates: Any, x: Any, out: Any) -> None:
    first, n = program_id("updates") * indices.shape[0], out.shape[0]

    def add(i: Any, nothing: Any) -> Any:
        at = indices[i]
        exists = (first + i < count) & (at >= 0) & (at < n)
        atomic_add(out, where(exists, at, 0), updates[i], mask=exists)
        return nothing

    fori_loop(0, indices.shape[0], add, ())


_scatter_add = with_cotangents(
    _scatter_add_kernel, lambda options, given, ct: (ct, None, _at(ct, given[1]))
)
