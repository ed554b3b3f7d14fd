"""Unique values and their positions: `unique` and related functions.

The number of unique values determines the result's shape: eagerly, it is computed from the values;
under a trace, it must be passed (`size`).
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from shardwise._src.core.fused import fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.ordering.sorting import take_from, write_to
from shardwise._src.numpy.statistics.counting import INT32, known_count
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reduce_sum, reshape
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.families import lit_of
from shardwise._src.ops.shape import canonical_axis, concatenate, slice_in_dim
from shardwise._src.ops.sort import sort
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_inexact
from shardwise._src.values.convert import broadcast_to, cast, count_of


@fused(arrays=1)
def _groups(x: Any, axis: int | None, equal_nan: bool) -> Any:
    """Sorted rows: their indices, a mask of new ones, and their number."""
    rows = _rows(x, axis)
    n, width = type_of(rows).shape
    start = iota(dtype=INT32, shape=(n,), dimension=0)
    columns = [reshape(slice_in_dim(rows, i, i + 1, 1), shape=(n,)) for i in range(width)]
    if not columns or n == 0:
        new = ew.eq(start, np.int32(0))
        return start, new, reduce_sum(cast(new, INT32), axes=(0,))
    *ordered, order = sort(*columns, start, dimension=0, num_keys=width)
    differs = full(False, (n - 1,), np.dtype(bool))
    for c in ordered:
        low, high = slice_in_dim(c, 0, n - 1, 0), slice_in_dim(c, 1, n, 0)
        other = ew.ne(low, high)
        if equal_nan and is_inexact(type_of(c).dtype):
            both = ew.bitwise_and(ew.ne(low, low), ew.ne(high, high))
            other = ew.bitwise_and(other, ew.bitwise_not(both))
        differs = ew.bitwise_or(differs, other)
    new = concatenate(full(True, (1,), np.dtype(bool)), differs, dimension=0)
    return order, new, reduce_sum(cast(new, INT32), axes=(0,))


def _rows(x: Any, axis: int | None) -> Any:
    t = type_of(x)
    if axis is None:
        return reshape(x, shape=(t.size, 1))
    n = t.shape[axis]
    return reshape(move_axis(x, axis, 0), shape=(n, t.size // n if n else 0))


@fused_optional
def _unique(
    x: Any,
    order: Any,
    new: Any,
    fill: Any = None,
    *,
    axis: int | None,
    size: int,
    has_inverse: bool,
) -> list[Any]:
    """Values, first indices and counts for `size` unique rows, and the inverse if requested."""
    t = type_of(x)
    moved = reshape(x, shape=(t.size,)) if axis is None else move_axis(x, axis, 0)
    shape = type_of(moved).shape
    n = shape[0]
    start = iota(dtype=INT32, shape=(n,), dimension=0)
    label = ew.sub(cumsum(cast(new, INT32), axis=0), np.int32(1))
    outside = lit_of(size + 1, INT32)
    ends = write_to(full(n, (size + 1,), INT32), ew.where(new, label, outside), start)
    first = slice_in_dim(ends, 0, size, 0)
    absent = ew.eq(first, lit_of(n, INT32))
    place = take_from(order, ew.where(absent, np.int32(0), first)) if n else first
    values = _take_rows(moved, place) if n else full(0, (size, *shape[1:]), t.dtype)
    if fill is not None:
        wide = broadcast_in_dim(absent, shape=type_of(values).shape, dims=(0,))
        fill = cast(fill, t.dtype)
        fill = broadcast_to(fill, type_of(values).shape) if type_of(fill).ndim else fill
        values = ew.where(wide, fill, values)
    values = values if axis is None else move_axis(values, 0, axis)
    counts = ew.sub(slice_in_dim(ends, 1, size + 1, 0), first)
    whole = canonicalize(int)
    inverse = [cast(write_to(start, order, label), whole)] if has_inverse else []
    return [values, cast(place, whole), cast(counts, whole), *inverse]


def _take_rows(x: Any, places: Any) -> Any:
    shape = type_of(x).shape
    flat = reshape(x, shape=(shape[0], math.prod(shape[1:])))
    if len(shape) == 1:
        return take_from(x, places)
    width = type_of(flat).shape[1]
    count = type_of(places).shape[0]
    start = broadcast_in_dim(ew.mul(places, lit_of(width, INT32)), shape=(count, width), dims=(0,))
    within = iota(dtype=INT32, shape=(count, width), dimension=1)
    found = take_from(reshape(x, shape=(math.prod(shape),)), ew.add(start, within))
    return reshape(found, shape=(count, *shape[1:]))


@overload
def unique(
    ar: ArrayLike,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array: ...


@overload
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]: ...


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]:
    """The sorted unique elements; with `axis`, the unique slices along it.

    Args:
      return_index: also return the index of each first occurrence.
      return_inverse: also return, for each element, the index of its value.
      return_counts: also return the number of occurrences of each value.
      equal_nan: whether all NaNs count as one value.
      size: the number of results; required under a trace. Excess ones are dropped.
      fill_value: fills up the result if there are fewer; by default the first value.
      sorted: whether the order matters; results are always sorted.
    """
    t = type_of(ar)
    axis = None if axis is None else canonical_axis(axis, t.ndim)
    order, new, count = _groups(ar, axis, equal_nan)
    if size is None:
        size = known_count(count, ar, "unique: the number of distinct values", "size")
    size = count_of(size)
    if t.size == 0 and size and fill_value is None:
        raise ValueError(
            "unique: there are no elements, so fill_value must be given for a size other than 0; "
            f"got size {size}."
        )
    values, index, counts, *inverse = _unique(
        ar, order, new, fill_value, axis=axis, size=size, has_inverse=bool(return_inverse)
    )
    if axis is None and t.ndim != 1:
        inverse = [x.reshape(t.shape) for x in inverse]
    rest = ([index] if return_index else []), inverse, ([counts] if return_counts else [])
    chosen = (values, *[x for part in rest for x in part])
    return chosen[0] if len(chosen) == 1 else chosen


class UniqueAllResult(NamedTuple):
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    values: Any
    inverse_indices: Any


def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueAllResult:
    """Unique values, first indices, inverse indices and counts; NaNs are all distinct."""
    return UniqueAllResult(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCountsResult:
    """Unique values and their counts; NaNs are all distinct."""
    return UniqueCountsResult(
        *unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverseResult:
    """Unique values and inverse indices; NaNs are all distinct."""
    return UniqueInverseResult(
        *unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """Unique values; NaNs are all distinct."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)
