"""Vectors as sets: union1d, intersect1d, setdiff1d, setxor1d.

The size of a result depends on values: under a trace, `size` must specify it. Excess elements are
then dropped, and missing ones are filled with `fill_value`.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import isin, nonzero, where
from shardwise._src.numpy.ordering.sorting import argsort, searchsorted
from shardwise._src.numpy.ordering.unique import unique
from shardwise._src.numpy.shapes import ravel
from shardwise._src.numpy.statistics.counting import known_count
from shardwise._src.numpy.statistics.reductions import count_nonzero
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.shape import rev
from shardwise._src.ops.sort import sort as sort_op
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_complex
from shardwise._src.values.binary import logical_and, logical_not, logical_or, not_equal
from shardwise._src.values.convert import cast, count_of, promote, strip_weak_type


def union1d(
    ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The sorted union. fill_value: the smallest by default."""
    both = concatenate([ravel(ar1), ravel(ar2)])
    return unique(both, size=size, fill_value=fill_value)


def _ordered(x: Any) -> tuple[Any, Any, Any]:
    """A sorted vector, the original indices of its elements, and a mask of first occurrences."""
    order = argsort(x)
    x = x[order]
    first = _all(True, min(1, type_of(x).size))
    differ = logical_and(not_equal(x[1:], x[:-1]), logical_not(_both_nan(x[1:], x[:-1])))
    return x, order, concatenate([first, differ])


def _both_nan(x: Any, y: Any) -> Any:
    return logical_and(not_equal(x, x), not_equal(y, y))


@fused(arrays=2)
def _shared(ar1: Any, ar2: Any) -> tuple[Any, ...]:
    a, b = promote(ravel(ar1), ravel(ar2))
    values, order, new = _ordered(a)
    return values, order, logical_and(new, isin(values, b))


@fused(arrays=2)
def _left(ar1: Any, ar2: Any, assume_unique: bool) -> tuple[Any, ...]:
    a = ravel(ar1)
    if assume_unique:
        return a, isin(a, ar2, invert=True)
    a, _, new = _ordered(a)
    return a, logical_and(new, isin(a, ar2, invert=True))


@fused(arrays=2)
def _single(ar1: Any, ar2: Any) -> tuple[Any, Any]:
    """Sorted values, and a mask of those that differ from their neighbors."""
    (values,) = sort_op(concatenate(promote(ravel(ar1), ravel(ar2))), dimension=0)
    steps = not_equal(values[1:], values[:-1])
    if not type_of(values).size:
        return values, _all(True, 0)
    return values, logical_and(
        concatenate([_all(True, 1), steps]), concatenate([steps, _all(True, 1)])
    )


def _unshared(ar1: Any, ar2: Any) -> tuple[Any, ...]:
    """Sorted values, and for each value in only one input a mask of its first occurrence."""
    a, b = promote(ravel(ar1), ravel(ar2))
    # Equal values keep their order: first those of a, with its first one last, then those of b.
    whose = concatenate([_all(False, type_of(a).size), _all(True, type_of(b).size)])
    both = concatenate([rev(a, dimensions=(0,)), b])
    values, whose = sort_op(both, whose, dimension=0, num_keys=1)
    n = type_of(values).size
    if not n:
        return values, whose
    low, high = values[: n - 1], values[1:]
    nans = _both_nan(low, high)
    apart = not_equal(whose[: n - 1], whose[1:])
    steps = logical_and(not_equal(low, high), logical_or(logical_not(nans), apart))
    before, after = concatenate([_all(True, 1), steps]), concatenate([steps, _all(True, 1)])
    return values, where(whose, before, after)


def _all(value: bool, count: int) -> Any:
    return full(value, (count,), np.dtype(bool))


def _places(mask: Any, size: int | None, name: str) -> tuple[Any, Any]:
    """The indices where the mask is true, and a mask of those that exist."""
    if size is None:
        about = f"{name}: the number of elements"
        size = known_count(count_nonzero(mask), mask, about, "size")
    count = count_of(size)
    (places,) = nonzero(mask, size=count, fill_value=0)
    return places, _exist(mask, count)


@fused(arrays=1)
def _exist(mask: Any, size: int) -> Any:
    return iota(dtype=canonicalize(int), shape=(size,), dimension=0) < count_nonzero(mask)


def _filled(values: Any, exist: Any, fill: Any) -> Any:
    return where(exist, values, cast(fill, type_of(values).dtype))


@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: Literal[False] = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array: ...
@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    return_indices: Literal[True],
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> tuple[Array, Array, Array]: ...
@overload
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]: ...
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, Array, Array]:
    """The sorted intersection.

    Args:
      assume_unique: has no effect.
      return_indices: also return the index of each first occurrence in the flat arrays.
      size: the number of results; required under a trace.
      fill_value: fills up the result; by default the smallest of the result, or 0.
    """
    values, order, mask = _shared(ar1, ar2)
    places, exist = _places(mask, size, "intersect1d")
    found = strip_weak_type(_at(values, places))
    if size:
        least = where(exist[0], found[0], 0)
        found = _filled(found, exist, least if fill_value is None else fill_value)
    if not return_indices:
        return found
    there, other, _ = _shared(ar2, ar1)
    count = type_of(values).size, type_of(there).size
    second = _first_of(there, other, _at(values, places))
    return found, _filled(_at(order, places), exist, count[0]), _filled(second, exist, count[1])


def _at(values: Any, places: Any) -> Any:
    """The values at indices; zeros if there are no values."""
    t = type_of(values)
    return values[places] if t.size else full(0, type_of(places).shape, t.dtype)


@fused
def _first_of(*arrays: Any) -> Any:
    """The index of each first occurrence in the original array."""
    ordered, order, values = arrays
    return _at(order, searchsorted(ordered, values))


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The elements of the first that are not in the second; sorted, unless `assume_unique`.

    size: the number of results; required under a trace. fill_value: 0 by default.
    """
    values, mask = _left(ar1, ar2, bool(assume_unique))
    t = type_of(ar1)
    weak = t.weak_type and not is_complex(t.dtype)
    return cast(_kept(values, mask, size, fill_value, "setdiff1d"), t.dtype, weak)


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The elements in exactly one of the two, sorted; NaNs of one differ from those of the other.

    Args:
      assume_unique: elements that one of the two contains several times are left out.
      size: the number of results; required under a trace.
      fill_value: fills up the result; by default the smallest of the result, or 0.
    """
    values, mask = (_single if assume_unique else _unshared)(ar1, ar2)
    if size and fill_value is None and type_of(values).size:
        places, exist = _places(mask, size, "setxor1d")
        found = values[places]
        return _filled(found, exist, where(exist[0], found[0], 0))
    return _kept(values, mask, size, fill_value, "setxor1d")


def _kept(values: Any, mask: Any, size: int | None, fill: Any, name: str) -> Any:
    places, exist = _places(mask, size, name)
    if not type_of(values).size:
        return full(0 if fill is None else fill, (size or 0,), type_of(values).dtype)
    found = values[places]
    return found if size is None else _filled(found, exist, 0 if fill is None else fill)
