"""Counting values: bincount and histograms.

The number of bins determines the result's shape. Eagerly, it is computed from the values; under a
trace, it must be passed (`length`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import ConcretizationTypeError
from shardwise._src.core.fused import fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.ordering.sorting import place_in_order
from shardwise._src.numpy.statistics.reductions import max
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape
from shardwise._src.ops.create import full
from shardwise._src.ops.indexing.gather_rules import GatherScatterMode, ScatterDimensionNumbers
from shardwise._src.ops.indexing.gather_scatter import scatter_add
from shardwise._src.ops.reduce import reduce_max, reduce_min
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding
from shardwise._src.types.dtypes import canonicalize, is_bool, is_complex, is_integer, to_inexact
from shardwise._src.values.convert import (
    cast,
    inexact,
    joined,
    promote,
    promote_inexact,
    unknown_count,
)

INT32 = np.dtype(np.int32)


def add_at(bins: Any, size: int, weights: Any) -> Any:
    """The sum of the weights in each bin; bins beyond `size` are dropped."""
    t = type_of(weights)
    flat = reshape(bins, shape=(type_of(bins).size, 1))
    return scatter_add(
        full(0, (size,), t.dtype),
        flat,
        reshape(weights, shape=(t.size,)),
        dimension_numbers=ScatterDimensionNumbers((), (0,), (0,)),
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def known_count(count: Any, a: Any, what: str, argument: str) -> int:
    """A count computed from the values of `a`, which must be concrete."""
    try:
        return int(count)
    except ConcretizationTypeError:
        raise unknown_count(what, a, argument) from None


def _check_weights(name: str, weights: Any, what: str, x: Any) -> None:
    given, t = type_of(weights), type_of(x)
    if given.shape != t.shape:
        raise ValueError(
            f"{name}: weights must have the shape of {what}; got {given.str_short(True)} for "
            f"{t.str_short(True)}."
        )


# -- bincount --


@fused_optional
def _bincount(x: Any, weights: Any = None, *, length: int) -> Any:
    t, w = type_of(x), weights
    if w is not None:
        _check_weights("bincount", w, "x", x)
        w = cast(w, canonicalize(int)) if is_bool(type_of(w).dtype) else w
    else:
        w = full(1, t.shape, canonicalize(int))
    x = cast(x, INT32) if is_bool(t.dtype) else x
    zero = np.zeros((), type_of(x).dtype)[()]
    return add_at(ew.max(x, zero), length, w)


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """The number of occurrences of 0, 1, … in the integer vector `x`; negative values count as 0.

    Args:
      weights: the weight of each element.
      minlength: the minimum length of the result.
      length: the exact length of the result; required under a trace. Larger elements are dropped.
    """
    t = type_of(x)
    if t.ndim != 1 or not (is_integer(t.dtype) or is_bool(t.dtype)):
        raise TypeError(f"bincount: x must be a vector of integers; got {t.str_short(True)}.")
    if length is None:
        about = "bincount: the length of the result"
        largest = known_count(max(x), x, about, "length") + 1 if t.size else 0
        length = largest if largest > minlength else operator.index(minlength)
    return placed(_bincount, out_sharding, x, weights, length=operator.index(length))


# -- histograms --


@fused
def _edges(a: Any, *limits: Any, bins: int) -> Any:
    dtype: Any = to_inexact(joined(a)[0])
    flat = cast(a, dtype)
    axes = tuple(range(type_of(a).ndim))
    if limits:
        low, high = [cast(reshape(x, shape=()), dtype) for x in limits]
    elif type_of(a).size == 0:
        low, high = full(0, (), dtype), full(1, (), dtype)
    else:
        low, high = reduce_min(flat, axes=axes), reduce_max(flat, axes=axes)
    half = np.asarray(0.5).astype(dtype)[()]
    same = ew.eq(low, high)
    low, high = ew.where(same, ew.sub(low, half), low), ew.where(same, ew.add(high, half), high)
    step = np.linspace(0, 1, bins + 1).astype(dtype)
    last = np.arange(bins + 1) == bins
    spread = [broadcast_in_dim(x, shape=(bins + 1,), dims=()) for x in (low, high)]
    inner = ew.add(ew.mul(spread[0], np.asarray(1 - step, dtype)), ew.mul(spread[1], step))
    return ew.where(last, spread[1], inner)


def histogram_bin_edges(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None
) -> Array:
    """The edges of `bins` bins of equal width over `range`, by default the range of `a`.

    bins: the number of bins, or their edges.
    weights: of the elements; checked, but they do not affect the edges, as in NumPy.
    """
    if weights is not None:
        _check_weights("histogram_bin_edges", weights, "a", a)
    if isinstance(bins, str):
        raise NotImplementedError(
            f"histogram_bin_edges: the method {bins!r} is not supported. Pass the number of bins."
        )
    if np.ndim(bins) == 1:
        return _as_floats(bins, to_inexact(type_of(a).dtype))
    limits = () if range is None else tuple(range)
    return _edges(a, *limits, bins=operator.index(bins))


_as_floats = fused(cast)


@fused_optional
def _histogram(a: Any, edges: Any, weights: Any = None, *, density: bool) -> Any:
    a, edges = promote_inexact(inexact(a), edges)
    if weights is None:
        weights = full(1, type_of(a).shape, type_of(a).dtype)
    else:
        weights = inexact(weights)
        _check_weights("histogram", weights, "a", a)
    n = type_of(edges).shape[0]
    counts = add_at(_bins_of(a, edges), n - 1, weights)
    if not density:
        return counts
    return ew.div(ew.div(*promote(counts, _widths(edges))), _total(counts))


def _total(counts: Any) -> Any:
    t = type_of(counts)
    total = reduce_sum(counts, axes=tuple(range(t.ndim)))
    return broadcast_in_dim(total, shape=t.shape, dims=())


def _widths(edges: Any) -> Any:
    n = type_of(edges).shape[0]
    return ew.sub(slice_in_dim(edges, 1, n, 0), slice_in_dim(edges, 0, n - 1, 0))


def _bins_of(a: Any, edges: Any) -> Any:
    """The bin of each element, or an index past the end if none. The last bin is closed."""
    n = type_of(edges).shape[0]
    place = place_in_order(edges, a, "right")
    last = reshape(slice_in_dim(edges, n - 1, n, 0), shape=())
    place = ew.where(ew.eq(a, last), np.int32(n - 1), place)
    outside = ew.bitwise_or(ew.eq(place, np.int32(0)), ew.eq(place, np.int32(n)))
    return ew.where(outside, np.int32(n), ew.sub(place, np.int32(1)))


def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
    out_sharding: OutSharding = None,
) -> tuple[Array, Array]:
    """The number of elements in each bin, as floats, and the bin edges.

    Args:
      bins: the number of bins of equal width, or a vector of their edges.
      range: of the bins, if `bins` is a number; by default the range of `a`.
      weights: the weight of each element.
      density: whether to normalize the counts so that the integral is 1.
      out_sharding: how the counts are sharded over explicit mesh axes.
    """
    if weights is not None and not is_complex(type_of(weights).dtype):
        a, weights = promote_inexact(a, weights)
    edges = histogram_bin_edges(a, bins, range)
    counts = placed(_histogram, out_sharding, a, edges, weights, density=bool(density))
    return counts, edges


@fused_optional
def _histogramdd(weights: Any, *arrays: Any, density: bool) -> Any:
    count = len(arrays) // 2
    columns, edges = arrays[:count], arrays[count:]
    sizes = [type_of(e).shape[0] - 1 for e in edges]
    place, outside = np.int32(0), None
    for x, e, n in zip(columns, edges, sizes, strict=True):
        i = _bins_of(*promote_inexact(inexact(x), e))
        place = ew.add(ew.mul(place, np.int32(n)), i)
        out = ew.eq(i, np.int32(n + 1))
        outside = out if outside is None else ew.bitwise_or(outside, out)
    place = ew.where(outside, np.int32(math.prod(sizes)), place)
    t = type_of(columns[0])
    if weights is not None:
        weights = inexact(weights)
    else:
        weights = full(1, t.shape, to_inexact(t.dtype) if density else INT32)
    counts = reshape(add_at(place, math.prod(sizes), weights), shape=tuple(sizes))
    if not density:
        return counts
    out = ew.div(counts, _total(counts))
    for axis, e in enumerate(edges):
        width = cast(_widths(e), type_of(out).dtype)
        out = ew.div(out, broadcast_in_dim(width, shape=tuple(sizes), dims=(axis,)))
    return out


@fused(arrays=1)
def _columns(sample: Any) -> Any:
    rows, count = type_of(sample).shape
    return [reshape(slice_in_dim(sample, i, i + 1, 1), shape=(rows,)) for i in range(count)]


@hides_frames
def histogramdd(
    sample: ArrayLike,
    bins: ArrayLike | Sequence[ArrayLike] = 10,
    range: ArrayLike | Sequence[Sequence[ArrayLike] | None] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """Histogram of points: the counts, and a list of the bin edges in each dimension.

    sample: (points, dimensions); bins and range may be lists with one entry per dimension.
    """
    t = type_of(sample)
    if t.ndim != 2:
        raise ValueError(
            f"histogramdd: sample must have shape (points, dimensions); got {t.str_short(True)}."
        )
    return _histogram_of(list(_columns(sample)), bins, range, weights, density)


def _histogram_of(
    columns: list[Any], bins: Any, range: Any, weights: Any, density: bool | None
) -> tuple[Any, list[Any]]:
    columns, count = promote(*columns), len(columns)
    each = list(bins) if isinstance(bins, list | tuple) else [bins] * count
    limits = [None] * count if range is None else list(range)
    if len(each) != count or len(limits) != count:
        raise ValueError(
            f"histogramdd: bins and range need an entry for each of {count} dimensions."
        )
    edges = [histogram_bin_edges(x, b, r) for x, b, r in zip(columns, each, limits, strict=True)]
    return _histogramdd(weights, *columns, *edges, density=bool(density)), edges


@hides_frames
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: ArrayLike | Sequence[ArrayLike] = 10,
    range: ArrayLike | Sequence[Sequence[ArrayLike] | None] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """Histogram of points (x, y): the counts, and the bin edges in both dimensions."""
    each = list(bins) if isinstance(bins, list | tuple) and len(bins) == 2 else [bins, bins]
    counts, edges = _histogram_of([x, y], each, range, weights, density)
    return counts, edges[0], edges[1]
