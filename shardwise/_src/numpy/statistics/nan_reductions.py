"""Reductions that skip NaN: nansum, nanprod, nanmax, nanmin, nanmean, nanvar, nanstd and others.

Each is the plain reduction with `where` selecting the elements that are not NaN. If all are NaN,
sums are 0, products 1, nanargmax and nanargmin -1, and the rest NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.averages import mean_of, spread_of
from shardwise._src.numpy.statistics.named_reductions import folded, reduced_axes
from shardwise._src.numpy.statistics.reductions import (
    axes_of,
    checked_dtype,
    kept,
    masked,
    place,
    reduce_masked,
    reject_out,
)
from shardwise._src.numpy.statistics.scans import cumulated
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cumulative import cumprod, cumsum
from shardwise._src.ops.reduce import argmax, argmin, reduce_and
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import is_inexact, max_value, min_value
from shardwise._src.values.convert import broadcast


def numbers(a: Any) -> Any:
    """A mask of the elements that are not NaN; None if none can be."""
    return ew.eq(a, a) if is_inexact(type_of(a).dtype) else None


def _both(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return ew.bitwise_and(*broadcast(first, second))


def _worst(dtype: Any, name: str) -> Any:
    return min_value(dtype) if name == "max" else max_value(dtype)


@fused
def _skipping(
    *arrays: Any, name: str, has_initial: bool, has_where: bool, axis: AnyAxis, dtype: Any,
    keepdims: bool,
) -> Any:
    a, *rest = arrays
    initial = rest.pop(0) if has_initial else None
    where = rest[0] if has_where else None
    real = numbers(a)
    start = initial
    if real is not None:
        if name in ("max", "min"):
            a = ew.where(real, a, _worst(type_of(a).dtype, name))
        else:
            where = _both(where, real)
    out = reduce_masked(a, start, where, name, axis, dtype, keepdims)
    if real is None or name not in ("max", "min") or initial is not None:
        return out
    t = type_of(a)
    axes = reduced_axes(axis, t.ndim)
    none = kept(folded(reduce_and, ew.bitwise_not(real), axes), axes, keepdims)
    return ew.where(none, np.asarray(np.nan).astype(t.dtype)[()], out)


def _call(
    name: str, a: Any, axis: AnyAxis, dtype: Any, out: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    dtype = checked_dtype(dtype, f"nan{name}")
    reject_out(f"nan{name}", out)
    given = [x for x in (initial, where) if x is not None]
    return _skipping(
        a, *given, name=name, has_initial=initial is not None, has_where=where is not None,
        axis=axis, dtype=dtype, keepdims=keepdims,
    )


@eager_jit
def nansum(
    a: ArrayLike, axis: AnyAxis = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Sum over `axis` of the elements that are not NaN; arguments as for `sum`."""
    return _call("sum", a, axis, dtype, out, keepdims, initial, where)


@eager_jit
def nanprod(
    a: ArrayLike, axis: AnyAxis = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Product over `axis` of the elements that are not NaN; arguments as for `prod`."""
    return _call("prod", a, axis, dtype, out, keepdims, initial, where)


@eager_jit
def nanmax(
    a: ArrayLike, axis: AnyAxis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Largest element over `axis` that is not NaN; arguments as for `max`."""
    return _call("max", a, axis, None, out, keepdims, initial, where)


@eager_jit
def nanmin(
    a: ArrayLike, axis: AnyAxis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:
    """Smallest element over `axis` that is not NaN; arguments as for `min`."""
    return _call("min", a, axis, None, out, keepdims, initial, where)


# -- means and variances --


@fused
def _mean(*arrays: Any, axis: AnyAxis, dtype: Any, keepdims: bool) -> Any:
    a, *where = arrays
    return mean_of(a, axis, dtype, keepdims, _both(numbers(a), where[0] if where else None))


@eager_jit
def nanmean(
    a: ArrayLike, axis: AnyAxis = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, where: ArrayLike | None = None,
) -> Array:
    """Mean over `axis` of the elements that are not NaN; arguments as for `mean`."""
    dtype = checked_dtype(dtype, "nanmean")
    reject_out("nanmean", out)
    given = () if where is None else (where,)
    return _mean(a, *given, axis=axis, dtype=dtype, keepdims=keepdims)


@fused
def _spread(
    *arrays: Any, has_mean: bool, has_where: bool, axis: AnyAxis, dtype: Any, ddof: float,
    keepdims: bool, root: bool,
) -> Any:
    a, *rest = arrays
    middle = rest.pop(0) if has_mean else None
    where = _both(numbers(a), rest[0] if has_where else None)
    return spread_of(a, middle, where, axis, dtype, ddof, keepdims, root)


@eager_jit
def nanvar(
    a: ArrayLike, axis: AnyAxis = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Variance over `axis` of the elements that are not NaN; arguments as for `var`."""
    return _spread_call("nanvar", a, axis, dtype, out, ddof, keepdims, where, mean)


@eager_jit
def nanstd(
    a: ArrayLike, axis: AnyAxis = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Standard deviation over `axis` of the elements that are not NaN; arguments as for `var`."""
    return _spread_call("nanstd", a, axis, dtype, out, ddof, keepdims, where, mean)


def _spread_call(
    name: str, a: Any, axis: AnyAxis, dtype: Any, out: Any, ddof: float, keepdims: bool, where: Any,
    mean: Any,
) -> Any:
    dtype = checked_dtype(dtype, name)
    reject_out(name, out)
    given = [x for x in (mean, where) if x is not None]
    return _spread(
        a, *given, has_mean=mean is not None, has_where=where is not None, axis=axis, dtype=dtype,
        ddof=ddof, keepdims=keepdims, root=name == "nanstd",
    )


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
    return ew.where(none, np.asarray(-1).astype(type_of(found).dtype)[()], found)


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
