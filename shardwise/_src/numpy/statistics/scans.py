"""Along an axis: cumsum, cumprod and other scans, diff, ediff1d, trapezoid, interp."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.ordering.sorting import place_in_order, replicated_if_small, take_from
from shardwise._src.numpy.statistics.reductions import add_up, checked_dtype, summed_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.create import full
from shardwise._src.ops.cumulative import cumprod as cumprod_op
from shardwise._src.ops.cumulative import cumsum as cumsum_op
from shardwise._src.ops.shape import canonical_axis, concatenate, slice_in_dim
from shardwise._src.ops.sort import sort
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import canonicalize, is_bool, is_complex
from shardwise._src.values.convert import (
    broadcast,
    cast,
    constant,
    promote,
    promote_inexact,
    reject_out,
)

# -- cumulative sums and products --


def cumulated(a: Any, axis: int | None, dtype: Any, op: Any) -> Any:
    t = type_of(a)
    if axis is None or not t.ndim:
        if axis is not None:
            canonical_axis(axis, 1)
        a, axis = reshape(a, shape=(t.size,)), 0
    wanted = (canonicalize(int) if is_bool(t.dtype) else t.dtype) if dtype is None else dtype
    axis = canonical_axis(axis, type_of(a).ndim)
    if not is_bool(wanted):
        return op(cast(a, wanted), axis=axis)
    return cast(op(cast(cast(a, wanted), np.dtype(np.uint8)), axis=axis), wanted)


_cumulated = fused(cumulated)


@eager_jit
def cumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Cumulative sum along `axis` (by default of the flat array).

    dtype: of the result; by default the dtype of `a`, or the default integer for booleans.
    """
    reject_out("cumsum", out)
    return _cumulated(a, axis, checked_dtype(dtype, "cumsum"), cumsum_op)


@eager_jit
def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Cumulative product along `axis` (by default of the flat array); arguments as for `cumsum`."""
    reject_out("cumprod", out)
    return _cumulated(a, axis, checked_dtype(dtype, "cumprod"), cumprod_op)


@fused(arrays=1)
def _running(
    x: Any, axis: int | None, dtype: Any, include_initial: bool, name: str, first: int
) -> Any:
    t = type_of(x)
    if t.ndim == 0:
        raise ValueError(f"{name}: x must have at least one dimension; got a scalar.")
    if axis is None and t.ndim > 1:
        raise ValueError(f"{name}: axis must be given for {t.str_short(True)}.")
    axis = 0 if axis is None else canonical_axis(axis, t.ndim)
    wanted = dtype
    if dtype is None:  # products of small integers preserve the dtype, as in JAX
        wanted = summed_dtype(t.dtype, first == 0 or is_bool(t.dtype))
    out = cumulated(x, axis, wanted, cumsum_op if first == 0 else cumprod_op)
    if not include_initial:
        return out
    shape = t.shape[:axis] + (1,) + t.shape[axis + 1 :]
    return concatenate(full(first, shape, wanted), out, dimension=axis)


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Cumulative sum along `axis`; small integers are summed as the default integer.

    include_initial: whether to start with 0, so that the result has one more element.
    """
    dtype = checked_dtype(dtype, "cumulative_sum")
    return _running(x, axis, dtype, include_initial, "cumulative_sum", 0)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Cumulative product along `axis`; arguments as for `cumulative_sum`, but it starts with 1."""
    dtype = checked_dtype(dtype, "cumulative_prod")
    return _running(x, axis, dtype, include_initial, "cumulative_prod", 1)


# -- differences --


@fused_optional
def _diff(a: Any, prepend: Any = None, append: Any = None, *, n: int, axis: int) -> Any:
    t = type_of(a)
    if t.ndim == 0:
        raise ValueError("diff: a must have at least one dimension; got a scalar.")
    if n < 0:
        raise ValueError(f"diff: n must not be negative; got {n}.")
    axis = canonical_axis(axis, t.ndim)
    if n == 0:
        return a
    before, after = [[] if x is None else [_edge(x, t.shape, axis)] for x in (prepend, append)]
    parts = promote(*before, a, *after)
    x = concatenate(*parts, dimension=axis) if len(parts) > 1 else parts[0]
    op = ew.ne if is_bool(type_of(x).dtype) else ew.sub
    for _ in range(n):
        x = _steps(x, axis, op)
    return x


def _steps(x: Any, axis: int, op: Any) -> Any:
    """`op` of each element along `axis` but the first, and the one before it."""
    n = type_of(x).shape[axis]
    low = slice_in_dim(x, 0, max(n - 1, 0), axis)
    return op(slice_in_dim(x, min(1, n), n, axis), low)


def _edge(x: Any, shape: tuple, axis: int) -> Any:
    """A scalar broadcast to a layer of size 1 along `axis`; other values unchanged."""
    if type_of(x).ndim:
        return x
    layer = shape[:axis] + (1,) + shape[axis + 1 :]
    t = type_of(x)
    return full(x, layer, t.dtype, t.weak_type)


@eager_jit
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """Differences of adjacent elements along `axis`, taken `n` times.

    prepend, append: values to add before and after `a` first.
    """
    return _diff(a, prepend, append, n=n, axis=axis)


@fused_optional
def _ediff1d(ary: Any, end: Any = None, begin: Any = None) -> Any:
    t = type_of(ary)
    flat = reshape(ary, shape=(t.size,))
    parts = [_steps(flat, 0, ew.sub)]
    if end is not None:
        parts.append(_flat(end, t.dtype))
    if begin is not None:
        parts.insert(0, _flat(begin, t.dtype))
    return concatenate(*parts, dimension=0) if len(parts) > 1 else parts[0]


def _flat(x: Any, dtype: Any) -> Any:
    return reshape(cast(x, dtype), shape=(type_of(x).size,))


@eager_jit
def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Array:
    """Differences of adjacent elements in the flat array, with values before or after them."""
    return _ediff1d(ary, to_end, to_begin)


# -- integrals --


@fused
def _trapezoid(*arrays: Any, axis: int, has_x: bool) -> Any:
    first, second = promote_inexact(*arrays)
    t = type_of(first)
    axis = canonical_axis(axis, t.ndim)
    n = t.shape[axis]
    if n == 0:
        return add_up(first, (axis,), t.dtype)
    sums = _steps(first, axis, ew.add)
    width, rank = second, type_of(second).ndim
    if has_x:
        width = _steps(second, 0 if rank == 1 else canonical_axis(axis - t.ndim, rank), ew.sub)
        if rank == 1:
            steps = type_of(width).size
            width = reshape(width, shape=tuple(steps if i == axis else 1 for i in range(t.ndim)))
    sums = ew.mul(*broadcast(sums, width))
    total = add_up(sums, (axis,), t.dtype)
    return ew.mul(total, np.asarray(0.5).astype(t.dtype)[()])


@eager_jit(arrays=2)
def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """Integral along `axis` by the trapezoidal rule.

    x:  the sample points; if None, they are `dx` apart, an array that broadcasts to the intervals.
    """
    return _trapezoid(y, dx if x is None else x, axis=axis, has_x=x is not None)


# -- interpolation --


@fused_optional
def _interp(
    x: Any,
    xp: Any,
    fp: Any,
    left: Any = None,
    right: Any = None,
    period: Any = None,
    *,
    extrapolate: tuple,
) -> Any:
    if type_of(xp).ndim != 1 or type_of(fp).shape != type_of(xp).shape:
        raise ValueError(
            "interp: xp and fp must be vectors of the same size; got "
            f"{type_of(xp).str_short(True)} and {type_of(fp).str_short(True)}."
        )
    x, xp = promote_inexact(x, xp)
    (fp,) = promote_inexact(fp)
    if period is not None:
        x, xp, fp = _on_circle(x, xp, fp, ew.abs(cast(period, type_of(x).dtype)))
    n = type_of(xp).shape[0]
    xp, fp = [replicated_if_small(a, type_of(x).size) for a in (xp, fp)]
    i = place_in_order(xp, x, "right")
    i = ew.clamp(np.int32(min(1, n - 1)), i, np.int32(n - 1))
    before = ew.max(ew.sub(i, np.int32(1)), np.int32(0))
    x0, x1 = take_from(xp, before), take_from(xp, i)
    f0, f1 = take_from(fp, before), take_from(fp, i)
    if is_complex(type_of(fp).dtype):
        weight, t = _weight(x, x0, x1), type_of(fp)
        weight = cast(weight, t.dtype, t.weak_type and type_of(weight).weak_type)
    else:
        f0, f1, weight = promote(f0, f1, _weight(x, x0, x1))
    out = ew.add(f0, ew.mul(weight, ew.sub(f1, f0)))
    if period is not None:
        return out
    first, last = slice_in_dim(xp, 0, 1, 0), slice_in_dim(xp, n - 1, n, 0)
    ends = (
        (left, first, slice_in_dim(fp, 0, 1, 0), ew.lt, extrapolate[0]),
        (right, last, slice_in_dim(fp, n - 1, n, 0), ew.gt, extrapolate[1]),
    )
    for value, end, default, op, keep in ends:
        if keep:
            continue
        beyond = op(x, reshape(end, shape=()))
        given = reshape(default, shape=()) if value is None else value
        weak = type_of(out).weak_type and type_of(given).weak_type
        given, out = [cast(v, type_of(out).dtype, weak) for v in (given, out)]
        out = ew.where(beyond, *broadcast(given, out))
    return out


def _weight(x: Any, x0: Any, x1: Any) -> Any:
    """The fraction of the distance from x0 to x1 at which x is; 0 if these are equal."""
    width = ew.sub(x1, x0)
    one, zero = constant(1, width), constant(0, width)
    none = ew.eq(width, zero)
    return ew.where(none, zero, ew.div(ew.sub(x, x0), ew.where(none, one, width)))


def _on_circle(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Points modulo the period, sorted, with the last and the first repeated around them."""
    from_zero = [_modulo(v, period) for v in (x, xp)]
    x = from_zero[0]
    xp, fp = sort(from_zero[1], fp, dimension=0)
    n = type_of(xp).shape[0]

    def ends(v: Any) -> tuple[Any, Any]:
        return slice_in_dim(v, n - 1, n, 0), slice_in_dim(v, 0, 1, 0)

    (last, first), (f_last, f_first) = ends(xp), ends(fp)
    xp = concatenate(ew.sub(last, period), xp, ew.add(first, period), dimension=0)
    return x, xp, concatenate(f_last, fp, f_first, dimension=0)


def _modulo(x: Any, period: Any) -> Any:
    low = ew.mul(period, ew.floor(ew.div(*broadcast(x, period))))
    return ew.sub(*broadcast(x, low))


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Piecewise linear interpolation of the points (xp, fp), at `x`.

    Args:
      xp: ascending coordinates, of size n.
      fp: the values at these.
      left, right: the values beyond; by default the end values, "extrapolate" extrapolates.
      period: of xp, which then need not be ascending; left and right are ignored.
    """
    for value in (left, right):
        if isinstance(value, str) and value != "extrapolate":
            raise ValueError(
                f"interp: left and right must be values or 'extrapolate'; got {value!r}."
            )
    flags = (isinstance(left, str), isinstance(right, str))
    left, right = None if flags[0] else left, None if flags[1] else right
    return _interp(x, xp, fp, left, right, period, extrapolate=flags)
