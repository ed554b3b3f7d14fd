"""Quantiles, percentiles and medians, with and without NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.core.fused import body_of, eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.reductions import accumulated_dtype, add_up, axes_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from shardwise._src.ops.create import full
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.ops.sort import sort, take_along
from shardwise._src.types.annotations import Array, ArrayLike, Axis, OutSharding
from shardwise._src.types.dtypes import is_complex, to_inexact
from shardwise._src.values.convert import cast, reject_out

METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")
INT32 = np.dtype(np.int32)


@fused(arrays=2)
def _quantile(
    a: Any, q: Any, axis: Axis, method: str, keepdims: bool, skip_nan: bool, scale: float, name: str
) -> Any:
    t, qt = type_of(a), type_of(q)
    if is_complex(t.dtype) or is_complex(qt.dtype):
        raise ValueError(f"{name}: complex numbers have no order; got {t.str_short(True)}.")
    if qt.ndim > 1:
        raise ValueError(f"{name}: q must be a scalar or a vector; got {qt.str_short(True)}.")
    dtype = to_inexact(t.dtype)
    axes = axes_of(axis, t.ndim)
    x = _last(cast(a, dtype), axes)
    n = type_of(x).shape[-1]
    if n == 0:
        raise ValueError(f"{name}: there are no elements along axis {axis} of {t.str_short(True)}.")
    wide = accumulated_dtype(dtype)
    count = qt.size
    points = reshape(cast(q, wide), shape=(count,))
    if scale != 1:
        points = ew.div(points, np.asarray(scale).astype(wide)[()])
    out = _at(x, points, method, skip_nan, wide)  # [*rest, count]
    out = cast(out, dtype)
    rest = type_of(out).shape[:-1]
    kept = tuple(1 if i in axes else m for i, m in enumerate(t.shape)) if keepdims else rest
    out = reshape(out, shape=(*kept, count)) if keepdims else out
    if not qt.ndim:
        return reshape(out, shape=kept)
    return move_axis(out, len(kept), 0)


def _last(x: Any, axes: tuple) -> Any:
    """Moves `axes` to the end and flattens them."""
    shape = type_of(x).shape
    rest = [i for i in range(len(shape)) if i not in axes]
    perm = (*rest, *sorted(axes))
    x = transpose(x, perm=perm) if perm != tuple(range(len(perm))) else x
    return reshape(x, shape=(*[shape[i] for i in rest], math.prod([shape[i] for i in axes])))


def _at(x: Any, points: Any, method: str, skip_nan: bool, wide: Any) -> Any:
    """The quantiles of the last dimension at points from 0 to 1."""
    shape = type_of(x).shape
    n, count = shape[-1], type_of(points).shape[0]
    new = (*shape[:-1], count)
    is_nan = ew.ne(x, x)
    points = broadcast_in_dim(points, shape=new, dims=(len(new) - 1,))
    every = tuple(range(len(new) - 1))
    if skip_nan:
        left = add_up(ew.bitwise_not(is_nan), (len(shape) - 1,), wide)
    else:
        left = full(n, shape[:-1], wide)
    left = broadcast_in_dim(left, shape=new, dims=every)
    (ordered,) = sort(x, dimension=len(shape) - 1)
    one, zero = np.ones((), wide)[()], np.zeros((), wide)[()]
    if method == "inverted_cdf":
        place = ew.sub(ew.ceil(ew.mul(points, left)), one)
    else:
        place = ew.mul(points, ew.sub(left, one))
    top = ew.max(ew.sub(left, one), zero)
    low, high = [ew.clamp(zero, f(place), top) for f in (ew.floor, ew.ceil)]
    share = ew.sub(place, low)
    first, second = [
        cast(take_along(ordered, cast(i, INT32), len(shape) - 1), wide) for i in (low, high)
    ]
    out = _between(first, second, share, method)
    nan = np.asarray(np.nan).astype(wide)[()]
    if skip_nan:
        return ew.where(ew.eq(left, zero), nan, out)
    spoilt = broadcast_in_dim(reduce_or(is_nan, axes=(len(shape) - 1,)), shape=new, dims=every)
    return ew.where(spoilt, nan, out)


def _between(first: Any, second: Any, share: Any, method: str) -> Any:
    dtype = type_of(first).dtype
    half, one = [np.asarray(v).astype(dtype)[()] for v in (0.5, 1)]
    if method in ("lower", "inverted_cdf"):
        return first
    if method == "higher":
        return second
    if method == "nearest":
        return ew.where(ew.le(share, half), first, second)
    if method == "midpoint":
        return ew.mul(ew.add(first, second), half)
    mixed = ew.add(ew.mul(first, ew.sub(one, share)), ew.mul(second, share))
    return ew.where(ew.eq(first, second), first, mixed)  # also handles infinities


def _call(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    out: Any,
    overwrite_input: bool,
    method: str,
    keepdims: bool,
    weights: Any,
    scale: float,
    out_sharding: Any = None,
) -> Any:
    _reject(name, out, overwrite_input)
    if weights is not None:
        raise NotImplementedError(f"{name}: weights are not supported.")
    if method not in METHODS:
        raise ValueError(f"{name}: method must be one of {METHODS}; got {method!r}.")
    how = axis, method, keepdims, name.startswith("nan"), scale, name
    return placed(_quantile, out_sharding, a, q, *how)


def _reject(name: str, out: Any, overwrite_input: bool) -> None:
    reject_out(name, out)
    if overwrite_input:
        raise ValueError(f"{name}: overwrite_input is not supported, as arrays are immutable.")


@eager_jit(arrays=2)
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Quantiles over `axis` (all by default); NaN if any element is NaN.

    Args:
      q: from 0 to 1; if a vector, its dimension comes first in the result's shape.
      method: how to choose between two elements: linear, lower, higher, midpoint, nearest, or
        inverted_cdf for the least element with at least a fraction q at or below it.
    """
    return _call("quantile", a, q, axis, out, overwrite_input, method, keepdims, weights, 1)


@eager_jit(arrays=2)
def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Quantiles over `axis` of the elements that are not NaN; arguments as for `quantile`."""
    return _call("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, weights, 1)


@eager_jit(arrays=2)
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Percentiles over `axis`: quantiles at q / 100; arguments as for `quantile`.

    out_sharding: how the result is sharded over explicit mesh axes.
    """
    how = overwrite_input, method, keepdims, weights, 100, out_sharding
    return _call("percentile", a, q, axis, out, *how)


@eager_jit(arrays=2)
def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Percentiles over `axis` of the elements that are not NaN; arguments as for `quantile`."""
    return _call("nanpercentile", a, q, axis, out, overwrite_input, method, keepdims, weights, 100)


@fused(arrays=1)
def _median(a: Any, axis: Axis, keepdims: bool, name: str) -> Any:
    skip_nan = name == "nanmedian"
    return body_of(_quantile)(a, 0.5, axis, "midpoint", keepdims, skip_nan, 1, name)


@eager_jit
def median(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Median over `axis` (all by default); NaN if any element is NaN."""
    _reject("median", out, overwrite_input)
    return _median(a, axis, keepdims, "median")


@eager_jit
def nanmedian(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Median over `axis` of the elements that are not NaN."""
    _reject("nanmedian", out, overwrite_input)
    return _median(a, axis, keepdims, "nanmedian")
