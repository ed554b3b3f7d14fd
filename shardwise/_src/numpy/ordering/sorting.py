"""Sorting and searching: sort, argsort, lexsort, partition, searchsorted, digitize.

Positive and negative zeros are equal; NaNs are equal to each other and come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.reductions import add_up, checked_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.indexing.gather_rules import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from shardwise._src.ops.indexing.gather_scatter import gather, scatter
from shardwise._src.ops.shape import canonical_axis, rev, slice_in_dim
from shardwise._src.ops.sharded.replicated_op import replicated
from shardwise._src.ops.sort import sort as sort_op
from shardwise._src.ops.sort import top_k as top_k_op
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import canonicalize, complex_dtype, is_complex, is_inexact
from shardwise._src.values.convert import as_integer, cast, promote

INT32 = np.dtype(np.int32)

# -- sort, argsort, lexsort --


def _along(a: Any, axis: int | None) -> tuple[Any, int]:
    """The array to sort and the axis; flat if the axis is None."""
    t = type_of(a)
    if axis is None:
        return reshape(a, shape=(t.size,)), 0
    return a, canonical_axis(axis, t.ndim)


def _reject(name: str, kind: Any, order: Any) -> None:
    if kind is not None or order is not None:
        raise TypeError(
            f"{name}: kind and order are not supported. Use stable=True or stable=False."
        )


@fused(arrays=1)
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The sorted elements along `axis`; for None, of the flat array.

    stable: whether equal elements keep their order.
    descending: whether the largest, and NaN, come first.
    """
    _reject("sort", kind, order)
    a, axis = _along(a, axis)
    (out,) = sort_op(a, dimension=axis, is_stable=bool(stable))
    return rev(out, dimensions=(axis,)) if descending else out


def places_in_order(a: Any, axis: int, stable: bool, descending: bool, dtype: Any) -> Any:
    shape = type_of(a).shape
    start = iota(dtype=dtype, shape=shape, dimension=axis)
    if not descending:
        return sort_op(a, start, dimension=axis, is_stable=stable)[1]
    # Sorting in reverse preserves the order of equal elements.
    ends = {"dimensions": (axis,)}
    a, start = rev(a, **ends), rev(start, **ends)
    return rev(sort_op(a, start, dimension=axis, is_stable=stable)[1], **ends)


@fused(arrays=1)
def _argsort(a: Any, axis: int | None, stable: bool, descending: bool, dtype: Any) -> Any:
    a, axis = _along(a, axis)
    wanted = canonicalize(int) if dtype is None else dtype
    return places_in_order(a, axis, stable, descending, wanted)


@eager_jit
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """The indices that sort the elements along `axis`; arguments as for `sort`."""
    _reject("argsort", kind, order)
    return _argsort(a, axis, bool(stable), descending, checked_dtype(dtype, "argsort"))


@fused
def _lexsort(*keys: Any, axis: int) -> Any:
    shapes = {type_of(k).shape for k in keys}
    if not keys or len(shapes) > 1:
        shown = " and ".join(type_of(k).str_short(True) for k in keys) or "none"
        raise ValueError(f"lexsort: keys must have the same shape; got {shown}.")
    (shape,) = shapes
    if not shape:
        return full(0, (), canonicalize(int))
    axis = canonical_axis(axis, len(shape))
    start = iota(dtype=canonicalize(int), shape=shape, dimension=axis)
    return sort_op(*keys[::-1], start, dimension=axis, num_keys=len(keys))[-1]


def lexsort(
    keys: ArrayLike | Sequence[ArrayLike], axis: int = -1, *, batch_size: int = 16
) -> Array:
    """The indices that sort by the last key, then by the one before it, and so on.

    batch_size: has no effect but must be positive: one sort compares all keys.
    """
    if as_integer(batch_size, "lexsort: batch_size") < 1:
        raise ValueError(f"lexsort: batch_size must be positive; got {batch_size}.")
    rows: Any = keys
    if hasattr(keys, "shape"):
        rows = [rows[i] for i in range(rows.shape[0])]
    return _lexsort(*rows, axis=axis)


@fused(arrays=1)
def sort_complex(a: ArrayLike) -> Array:
    """The elements as complex numbers, sorted along the last axis."""
    t = type_of(a)
    a, axis = _along(cast(a, complex_dtype(t.dtype)), -1)
    return sort_op(a, dimension=axis)[0]


@fused(arrays=1)
def _top_k(a: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    t = type_of(a)
    last = t.ndim - 1
    x = move_axis(a, axis, last)
    if largest:
        values, places = top_k_op(x, k=k)
    else:
        order = iota(dtype=INT32, shape=type_of(x).shape, dimension=last)
        values, places = [
            slice_in_dim(v, 0, k, last) for v in sort_op(x, order, dimension=last, num_keys=1)
        ]
    return move_axis(values, last, axis), move_axis(places, last, axis)


def top_k(
    a: ArrayLike, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True
) -> tuple[Array, Array]:
    """The k largest or smallest elements along `axis`, in that order, and their indices.

    Args:
      k: at most the size along `axis`.
      mode: "largest" or "smallest". NaNs are larger than all numbers.
      sorted: has no effect: results are always sorted.
    """
    t = type_of(a)
    if mode not in ("largest", "smallest"):
        raise ValueError(f"top_k: mode must be 'largest' or 'smallest'; got {mode!r}.")
    along = canonical_axis(axis, t.ndim)
    count = as_integer(k, "top_k: k")
    if not 0 <= count <= t.shape[along] or is_complex(t.dtype):
        raise ValueError(
            f"top_k takes real numbers, and k from 0 to the size of axis {along}; got "
            f"{t.str_short(True)} and {count}."
        )
    values, places = _top_k(a, count, along, mode == "largest")
    return values, places


# -- partition: by a full sort, which satisfies its contract --


def _along_checked(name: str, a: Any, kth: int, axis: int) -> tuple[Any, int]:
    a, axis = _along(a, axis)
    n = type_of(a).shape[axis]
    if not -n <= kth < n:
        raise ValueError(f"{name}: kth={kth} is out of bounds for {n} elements.")
    return a, axis


@fused(arrays=1)
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Partitions along `axis`: the element at `kth` is as if sorted, and none larger precede it."""
    a, axis = _along_checked("partition", a, kth, axis)
    return sort_op(a, dimension=axis)[0]


@fused(arrays=1)
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The indices that partition the elements as `partition` does."""
    a, axis = _along_checked("argpartition", a, kth, axis)
    return places_in_order(a, axis, True, False, canonicalize(int))


# -- searching sorted vectors --


def take_from(x: Any, places: Any) -> Any:
    """The elements of a vector at in-bounds indices."""
    shape = type_of(places).shape
    return gather(
        x,
        reshape(places, shape=(*shape, 1)),
        dimension_numbers=GatherDimensionNumbers((), (0,), (0,)),
        slice_sizes=(1,),
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def write_to(x: Any, places: Any, values: Any) -> Any:
    """A vector with values written at indices; indices past its end are dropped."""
    return scatter(
        x,
        reshape(places, shape=(type_of(places).size, 1)),
        values,
        dimension_numbers=ScatterDimensionNumbers((), (0,), (0,)),
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def _less(x: Any, y: Any) -> Any:
    """Whether x sorts before y: NaN is last. Complex numbers compare by real part first."""
    if is_complex(type_of(x).dtype):
        first, second = _less(ew.real(x), ew.real(y)), _less(ew.imag(x), ew.imag(y))
        tie = ew.bitwise_not(ew.bitwise_or(first, _less(ew.real(y), ew.real(x))))
        return ew.bitwise_or(first, ew.bitwise_and(tie, second))
    if not is_inexact(type_of(x).dtype):
        return ew.lt(x, y)
    return ew.bitwise_or(ew.lt(x, y), ew.bitwise_and(ew.eq(x, x), ew.ne(y, y)))


MOST_REPLICATED = 2**20  # bytes


def replicated_if_small(a: Any, reads: Any) -> Any:
    """A vector of which many elements are read, at places that are computed. If it is small, or has
    fewer elements than are read, devices gather it once, instead of communicating in each step.

    reads: how many elements; it may be symbolic.
    """
    t = type_of(a)
    if not isinstance(t.size, int):
        return a
    is_small = t.nbytes <= MOST_REPLICATED or (isinstance(reads, int) and t.size <= reads)
    return replicated(a) if is_small else a


def place_in_order(a: Any, v: Any, side: str) -> Any:
    """The insertion index of each `v` in the sorted vector `a`: by an unrolled binary search, or if
    the size of `a` is symbolic, by comparing all pairs."""
    n = type_of(a).shape[0]
    shape = type_of(v).shape
    if not isinstance(n, int):  # the number of steps is unknown
        return _count_before(a, v, side)
    a = replicated_if_small(ew.stop_gradient(a), type_of(v).size * n.bit_length())
    low, high = full(0, shape, INT32), full(n, shape, INT32)
    for _ in range(n.bit_length()):
        middle = ew.shift_right_logical(ew.add(low, high), np.int32(1))
        x = take_from(a, middle)
        right = _less(x, v) if side == "left" else ew.bitwise_not(_less(v, x))
        low, high = ew.where(right, middle, low), ew.where(right, high, middle)
    return high


def _count_before(a: Any, v: Any, side: str) -> Any:
    """The same by comparing all pairs."""
    t, n = type_of(v), type_of(a).shape[0]
    shape = (*t.shape, n)
    x = broadcast_in_dim(a, shape=shape, dims=(t.ndim,))
    y = broadcast_in_dim(v, shape=shape, dims=tuple(range(t.ndim)))
    before = _less(x, y) if side == "left" else ew.bitwise_not(_less(y, x))
    return add_up(before, (t.ndim,), INT32)


_METHODS = ("default", "scan", "scan_unrolled", "sort", "compare_all")


@fused_optional
def _searchsorted(a: Any, v: Any, sorter: Any = None, *, side: str, method: str) -> Any:
    if type_of(a).ndim != 1:
        raise ValueError(f"searchsorted: a must be a vector; got {type_of(a).str_short(True)}.")
    a, v = promote(a, v)
    if sorter is not None:
        a = take_from(a, sorter)
    found = (_count_before if method == "compare_all" else place_in_order)(a, v, side)
    return cast(found, canonicalize(int))


@eager_jit(arrays=2)
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """The index at which each of `v` would be inserted into the sorted vector `a`.

    Args:
      side: whether "left" or "right" of equal elements.
      sorter: indices that sort `a`, if it is not sorted.
      method: "compare_all" compares all pairs, which is fast for short `a`; others search by
        bisection.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right'; got {side!r}.")
    if method not in _METHODS:
        raise ValueError(f"searchsorted: method must be one of {_METHODS}; got {method!r}.")
    return _searchsorted(a, v, sorter, side=side, method=method)


@fused(arrays=2)
def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Array:
    """The bin index of each element; `bins` must be monotonic.

    right: whether a bin includes its right edge instead of its left one.
    """
    if type_of(bins).ndim != 1:
        raise ValueError(f"digitize: bins must be a vector; got {type_of(bins).str_short(True)}.")
    x, bins = promote(x, bins)
    n = type_of(bins).shape[0]
    if n == 0:
        return full(0, type_of(x).shape, canonicalize(int))
    bins = replicated_if_small(bins, type_of(x).size)
    search = _count_before if method == "compare_all" else place_in_order
    side = "left" if right else "right"
    first, last = slice_in_dim(bins, 0, 1, 0), slice_in_dim(bins, n - 1, n, 0)
    rising = reshape(ew.ge(last, first), shape=())
    found = search(ew.where(rising, bins, rev(bins, dimensions=(0,))), x, side)
    return cast(ew.where(rising, found, ew.sub(np.int32(n), found)), canonicalize(int))
