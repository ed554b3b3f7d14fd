"""Reductions that skip NaN: nansum, nanprod, nanmax, nanmin, nanmean, nanvar, nanstd and others.

Each is the plain reduction with `where` selecting the elements that are not NaN. If all are NaN,
sums are 0, products 1, nanargmax and nanargmin -1, and the rest NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.averages import both, mean_of, numbers, spread_of
from shardwise._src.numpy.statistics.named_reductions import folded, reduced_axes
from shardwise._src.numpy.statistics.reductions import (
    axes_of,
    checked_dtype,
    kept,
    masked,
    place,
    reduced,
    reject_out,
)
from shardwise._src.numpy.statistics.scans import cumulated
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cumulative import cumprod, cumsum
from shardwise._src.ops.families import lit
from shardwise._src.ops.reduce import argmax, argmin, reduce_and
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import max_value, min_value


def _worst(dtype: Any, name: str) -> Any:
    return min_value(dtype) if name == "max" else max_value(dtype)


@fused_optional
def _skipping(a: Any, initial: Any = None, where: Any = None, *, name: str, **how: Any) -> Any:
    real = numbers(a)
    if real is None or name not in ("max", "min"):
        return reduced(a, initial, both(where, real), name, **how)
    t, axis, keepdims = type_of(a), how["axis"], how["keepdims"]
    out = reduced(ew.where(real, a, _worst(t.dtype, name)), initial, where, name, **how)
    if initial is not None:
        return out
    axes = reduced_axes(axis, t.ndim)
    none = kept(folded(reduce_and, ew.bitwise_not(real), axes), axes, keepdims)
    return ew.where(none, np.asarray(np.nan).astype(t.dtype)[()], out)


def _call(
    name: str, a: Any, axis: AnyAxis, dtype: Any, out: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    dtype = checked_dtype(dtype, f"nan{name}")
    reject_out(f"nan{name}", out)
    return _skipping(a, initial, where, name=name, axis=axis, dtype=dtype, keepdims=keepdims)


@eager_jit
def nansum(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Sum over `axis` of the elements that are not NaN; arguments as for `sum`."""
    return _call("sum", a, axis, dtype, out, keepdims, initial, where)


@eager_jit
def nanprod(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Product over `axis` of the elements that are not NaN; arguments as for `prod`."""
    return _call("prod", a, axis, dtype, out, keepdims, initial, where)


@eager_jit
def nanmax(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Largest element over `axis` that is not NaN; arguments as for `max`."""
    return _call("max", a, axis, None, out, keepdims, initial, where)


@eager_jit
def nanmin(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Smallest element over `axis` that is not NaN; arguments as for `min`."""
    return _call("min", a, axis, None, out, keepdims, initial, where)


# -- means and variances --


@fused_optional
def _mean(a: Any, where: Any = None, *, axis: AnyAxis, dtype: Any, keepdims: bool) -> Any:
    return mean_of(a, axis, dtype, keepdims, both(numbers(a), where))


@eager_jit
def nanmean(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Mean over `axis` of the elements that are not NaN; arguments as for `mean`."""
    dtype = checked_dtype(dtype, "nanmean")
    reject_out("nanmean", out)
    return _mean(a, where, axis=axis, dtype=dtype, keepdims=keepdims)


@eager_jit
def nanvar(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Variance over `axis` of the elements that are not NaN; arguments as for `var`."""
    return spread_of("nanvar", a, axis, dtype, out, ddof, keepdims, where, mean)


@eager_jit
def nanstd(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Standard deviation over `axis` of the elements that are not NaN; arguments as for `var`."""
    return spread_of("nanstd", a, axis, dtype, out, ddof, keepdims, where, mean)


# -- indices --


@fused(arrays=1)
def _place(a: Any, axis: int | None, keepdims: bool, name: str) -> Any:
    op = argmax if name == "max" else argmin
    real = numbers(a)
    if real is None:
        return place(a, axis, keepdims, op)
    found = place(ew.where(real, a, _worst(type_of(a).dtype, name)), axis, keepdims, op)
    axes = axes_of(axis, type_of(a).ndim)
    none = kept(reduce_and(ew.bitwise_not(real), axes=axes), axes, keepdims)
    return ew.where(none, lit(-1, found), found)


@eager_jit
def nanargmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Index of the largest element that is not NaN; -1 if all are NaN."""
    reject_out("nanargmax", out)
    return _place(a, axis, bool(keepdims), "max")


@eager_jit
def nanargmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Index of the smallest element that is not NaN; -1 if all are NaN."""
    reject_out("nanargmin", out)
    return _place(a, axis, bool(keepdims), "min")


# -- cumulative sums and products --


@fused(arrays=1)
def _scan(a: Any, axis: int | None, dtype: Any, filler: int) -> Any:
    real = numbers(a)
    if real is not None:
        a = masked(a, real, filler, "nancumsum")
    return cumulated(a, axis, dtype, cumsum if filler == 0 else cumprod)


@eager_jit
def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Cumulative sum along `axis` (by default of the flat array), with NaN as 0."""
    reject_out("nancumsum", out)
    return _scan(a, axis, checked_dtype(dtype, "nancumsum"), 0)


@eager_jit
def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Cumulative product along `axis` (by default of the flat array), with NaN as 1."""
    reject_out("nancumprod", out)
    return _scan(a, axis, checked_dtype(dtype, "nancumprod"), 1)
