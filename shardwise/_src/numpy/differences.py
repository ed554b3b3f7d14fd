"""Differences along sample axes: gradient, unwrap."""

from __future__ import annotations

import math
from typing import Any, overload

from shardwise._src.core.fused import body_of, eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import as_operand
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.statistics.reductions import axes_of
from shardwise._src.numpy.statistics.scans import cumsum, diff
from shardwise._src.numpy.unary import absolute
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import canonical_axis, slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike, Axis
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.binary import (
    add,
    divide,
    equal,
    floor_divide,
    less,
    logical_and,
    multiply,
    remainder,
    subtract,
)
from shardwise._src.values.convert import constant, promote, promote_inexact


@overload
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: int, edge_order: int | None = None
) -> Array: ...
@overload
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: Axis = None, edge_order: int | None = None
) -> Array | list[Array]: ...
@eager_jit
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: Axis = None, edge_order: int | None = None
) -> Array | list[Array]:
    """Derivatives by central differences inside and one-sided ones at the ends, for each axis.

    Args:
      varargs: nothing, one distance for all axes, or for each axis a distance or coordinates.
      axis: the axes to differentiate along; by default all. Several axes return a list.
      edge_order: must be 1, the only order supported at the ends.
    """
    if edge_order not in (None, 1):
        raise NotImplementedError(f"gradient: edge_order must be 1; got {edge_order}.")
    axes = axes_of(axis, type_of(as_operand(f)).ndim)
    spacing = [as_operand(v) for v in varargs]
    if len(spacing) not in (0, 1, len(axes)):
        raise TypeError(
            f"gradient takes no spacing, 1 or {len(axes)}, one for each axis; got {len(spacing)}."
        )
    f, spacing = as_operand(f), spacing * (len(axes) if len(spacing) == 1 else 1)
    if spacing:
        slopes = [_slope(f, h, d) for h, d in zip(spacing, axes, strict=True)]
    else:
        slopes = [_unit_derivative(f, d) for d in axes]
    return slopes[0] if len(axes) == 1 else slopes


@fused(arrays=1)
def _unit_derivative(f: Any, axis: int) -> Any:
    (f,) = promote_inexact(f)
    return body_of(_slope)(f, constant(1, f), axis)


@fused(arrays=2)
def _slope(f: Any, h: Any, axis: int) -> Any:
    f, h = promote_inexact(f, h)
    shape = type_of(f).shape
    n = shape[axis]
    if n < 2:
        raise ValueError(
            f"gradient needs at least 2 elements along an axis; got {n} along axis {axis}."
        )
    if type_of(h).ndim == 0:
        ends = divide(diff(f, axis=axis), h)
        outer = subtract(slice_in_dim(f, 2, n, axis), slice_in_dim(f, 0, n - 2, axis))
        inner = divide(outer, multiply(h, 2))
    else:
        if type_of(h).shape != (n,):
            raise ValueError(
                f"gradient: coordinates along axis {axis} must have shape ({n},); "
                f"got {type_of(h).str_short(True)}."
            )
        along = [1] * len(shape)
        along[axis] = n - 1
        gaps = reshape(diff(h), shape=tuple(along))
        ends = divide(diff(f, axis=axis), gaps)
        # The derivative on each side of a point is weighted by the gap on the other side.
        low, high = [slice_in_dim(gaps, i, n - 2 + i, axis) for i in (0, 1)]
        left, right = [slice_in_dim(ends, i, n - 2 + i, axis) for i in (0, 1)]
        inner = divide(add(multiply(high, left), multiply(low, right)), add(low, high))
    first, last = slice_in_dim(ends, 0, 1, axis), slice_in_dim(ends, n - 2, n - 1, axis)
    return concatenate([first, inner, last], axis=axis)


@eager_jit
def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * math.pi
) -> Array:
    """`p` with multiples of the period added so that neighbors differ by at most half a period.

    discont: smaller differences stay unchanged; half a period by default.
    """
    limit = None if discont is None else as_operand(discont)
    return _unwrap(as_operand(p), as_operand(period), limit, axis=axis)


@fused_optional
def _unwrap(p: Any, period: Any, limit: Any = None, *, axis: int) -> Any:
    p, period = promote(p, period)
    whole = is_integer(type_of(p).dtype)
    axis = canonical_axis(axis, type_of(p).ndim)
    half = floor_divide(period, 2) if whole else divide(period, 2)
    steps = diff(p, axis=axis)
    short = subtract(remainder(add(steps, half), period), half)
    up = ew.bitwise_and(ew.eq(*promote(short, -half)), ew.gt(steps, constant(0, steps)))
    if whole:  # no step is half of an odd period
        up = logical_and(up, equal(remainder(period, 2), 0))
    short = ew.where(up, *promote(half, short))
    small = less(absolute(steps), divide(period, 2) if limit is None else limit)
    more = ew.where(small, constant(0, steps), subtract(short, steps))
    n = type_of(p).shape[axis]
    if n == 0:
        return p
    later = add(slice_in_dim(p, 1, n, axis), cumsum(more, axis=axis))
    return concatenate([slice_in_dim(p, 0, 1, axis), later], axis=axis)
