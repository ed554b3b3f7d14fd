"""Softmax and related reductions, which are accurate where the plain formula would overflow.

The largest element is subtracted first. It does not change the result, so it is treated as a
constant in derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.numpy.creation import asarray, dtype_of
from shardwise._src.numpy.statistics.named_reductions import (
    Axes,
    NamedAxes,
    count_of,
    folded,
    index_along,
    is_name,
    named_axes,
    reduced_axes,
)
from shardwise._src.numpy.statistics.reductions import add_up, kept
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import (
    abs,
    add,
    div,
    exp,
    log,
    lt,
    mul,
    rsqrt,
    stop_gradient,
    sub,
    where,
)
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.ops.reduce import reduce_max, spread
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded.sharding_ops import fitted, placed, target
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike, DTypeLike, OutSharding
from shardwise._src.types.array_type import says_nothing
from shardwise._src.types.dtypes import is_complex, to_inexact
from shardwise._src.types.partition_spec import AxisName
from shardwise._src.types.symbolic import broadcast_shapes
from shardwise._src.values.convert import (
    as_integer,
    broadcast,
    broadcast_to,
    cast,
    inexact,
    promote,
    promote_inexact,
)


def _axes(axis: Any, ndim: int) -> Axes:
    try:
        return reduced_axes(axis, ndim)
    except Exception as error:
        pass_on(error)
        raise


def _mask(where_: Any, x: Any) -> Any:
    return broadcast_to(cast(where_, BOOL), type_of(x).shape)


def optional(values: Sequence[Any], given: Sequence[bool]) -> list[Any]:
    """Optional operands of a fused function: the values of those given, None for the others."""
    rest = iter(values)
    return [next(rest) if g else None for g in given]


@eager_jit
def softmax(x: ArrayLike, axis: AnyAxis = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, an integer or several; without overflow.

    where: elements to include; the result is 0 elsewhere.
    """
    return _softmax(x, *_given(where), axes=_axes(axis, type_of(x).ndim), in_logs=False)


@eager_jit
def log_softmax(x: ArrayLike, axis: AnyAxis = -1, where: ArrayLike | None = None) -> Array:
    """log(softmax(x)), accurate where the softmax would underflow.

    where: elements to include; the result is -inf elsewhere.
    """
    return _softmax(x, *_given(where), axes=_axes(axis, type_of(x).ndim), in_logs=True)


def _given(*values: Any) -> list[Any]:
    return [v for v in values if v is not None]


@fused
def _softmax(x: Any, *mask: Any, axes: Axes, in_logs: bool) -> Any:
    x = cast(x, to_inexact(type_of(x).dtype))
    inside = _mask(mask[0], x) if mask else None
    return normalized(x, _axes(axes, type_of(x).ndim), inside, in_logs)


def normalized(x: Any, axes: Axes, mask: Any, in_logs: bool = False) -> Any:
    """The softmax of a floating-point `x`, or its logarithm."""
    if mask is not None:
        x = where(mask, x, lit(-np.inf, x))
    out = _plain_log_softmax(x, axes) if in_logs else _plain_softmax(x, axes)
    return out if mask is None else where(mask, out, lit(-np.inf if in_logs else 0, out))


def _shifted(x: Any, axes: Axes) -> Any:
    return sub(x, spread(folded(reduce_max, stop_gradient(x), axes), type_of(x).shape, axes))


def _plain_log_softmax(x: Any, axes: Axes) -> Any:
    x = _shifted(x, axes)
    return sub(x, spread(log(_total(exp(x), axes)), type_of(x).shape, axes))


@partial(custom_jvp, nondiff_argnums=(1,))
def _plain_softmax(x: Any, axes: Axes) -> Any:
    powers = exp(_shifted(x, axes))
    return div(powers, spread(_total(powers, axes), type_of(x).shape, axes))


@_plain_softmax.defjvp
def _softmax_jvp(axes: Axes, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """y (t - sum(y t)): one sum, of products with the result."""
    (x,), (t,) = primals, tangents
    y = _plain_softmax(x, axes)
    total = _total(mul(y, t), axes)
    return y, mul(y, sub(t, spread(total, type_of(x).shape, axes)))


def _total(x: Any, axes: Axes, mask: Any = None) -> Any:
    return add_up(x if mask is None else where(mask, x, lit(0, x)), axes, type_of(x).dtype)


@eager_jit
def logsumexp(
    a: ArrayLike,
    axis: AnyAxis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """log(sum(b * exp(a))) over `axis`, without overflow.

    b:           factors; 1 by default. If the sum is negative, the result is NaN, unless
                 `return_sign`.
    return_sign: whether to return the logarithm of its magnitude, and its sign.
    where:       elements to include.
    """
    axes = _axes(
        axis,
        type_of(a).ndim if b is None else len(broadcast_shapes(type_of(a).shape, type_of(b).shape)),
    )
    return _logsumexp(
        *_given(a, b, where),
        given=(b is not None, where is not None),
        axes=axes,
        keepdims=bool(keepdims),
        return_sign=bool(return_sign),
    )


@fused
def _logsumexp(
    a: Any, *rest: Any, given: tuple, axes: Axes, keepdims: bool, return_sign: bool
) -> Any:
    b, mask = optional(rest, given)
    if b is None:
        a = inexact(a)
    else:
        a, b = _factors(a, b)
    mask = None if mask is None else _mask(mask, a)
    return log_of_sum(a, b, mask, axes, keepdims, return_sign)


def _factors(a: Any, b: Any) -> list[Any]:
    a, b = promote_inexact(a, b)
    shape = broadcast_shapes(type_of(a).shape, type_of(b).shape)
    return [broadcast_to(x, shape) for x in (a, b)]


def log_of_sum(a: Any, b: Any, mask: Any, axes: Axes, keepdims: bool, return_sign: bool) -> Any:
    if b is not None:
        a = where(ew.ne(b, lit(0, b)), a, lit(-np.inf, a))
    if mask is not None:
        a = where(mask, a, lit(-np.inf, a))
    real = ew.real(a) if is_complex(type_of(a).dtype) else a
    top = folded(reduce_max, stop_gradient(real), axes)
    top = where(ew.is_finite(top), top, lit(0, top))
    powers = exp(sub(a, cast(spread(top, type_of(a).shape, axes), type_of(a).dtype)))
    total = _total(powers if b is None else mul(b, powers), axes, mask)
    signed = return_sign or b is not None
    sign = ew.sign(stop_gradient(total)) if signed else None
    if return_sign or not is_complex(type_of(total).dtype):
        total = abs(total) if signed else total
    out = add(_log_or_flat(total), cast(top, type_of(total).dtype))
    if signed and not return_sign and not is_complex(type_of(out).dtype):
        out = where(lt(sign, lit(0, sign)), lit(np.nan, out), out)
    out = kept(out, axes, keepdims)
    return (out, kept(sign, axes, keepdims)) if return_sign else out


def _log_or_flat(total: Any) -> Any:
    """log, with derivative 0 instead of NaN where the sum is empty."""
    empty = ew.eq(total, lit(0, total))
    return where(empty, lit(-np.inf, total), log(where(empty, lit(1, total), total)))


@eager_jit
def logmeanexp(
    x: ArrayLike, axis: AnyAxis = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Array:
    """log(mean(exp(x))) over `axis`, without overflow."""
    axes = _axes(axis, type_of(x).ndim)
    return _logmeanexp(x, *_given(where), axes=axes, keepdims=bool(keepdims))


@fused
def _logmeanexp(x: Any, *mask: Any, axes: Axes, keepdims: bool) -> Any:
    x = inexact(x)
    inside = _mask(mask[0], x) if mask else None
    out = log_of_sum(x, None, inside, axes, keepdims, False)
    if inside is None:
        return sub(out, lit(np.log(count_of(type_of(x).shape, axes)), out))
    count = _count(x, axes, inside)
    return sub(out, log(kept(count, axes, keepdims)))


@eager_jit
def standardize(
    x: ArrayLike,
    axis: AnyAxis = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """(x - mean) / sqrt(variance + epsilon), over `axis`.

    mean, variance: computed from `x` by default; must broadcast to the shape of `x`.
    where:          elements to include in the mean and variance.
    algorithm:      of the variance: "fast" is mean(x²) - mean(x)², or "stable", mean((x - mean)²),
                    which is also accurate for large means.
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm must be 'fast' or 'stable'; got {algorithm!r}.")
    given = tuple(v is not None for v in (mean, variance, where))
    axes = _axes(axis, type_of(x).ndim)
    return _standardize(
        *_given(x, epsilon, mean, variance, where),
        axes=axes,
        given=given,
        stable=algorithm == "stable",
    )


@fused
def _standardize(x: Any, epsilon: Any, *rest: Any, axes: Axes, given: tuple, stable: bool) -> Any:
    mean, variance, mask = optional(rest, given)
    x = inexact(x)
    mask = None if mask is None else _mask(mask, x)
    count = _count(x, axes, mask)
    if mean is None:
        mean = spread(div(_total(x, axes, mask), count), type_of(x).shape, axes)
    if variance is None:
        off = sub(*broadcast(*promote(x, mean))) if stable else x
        variance = spread(div(_total(mul(off, off), axes, mask), count), type_of(x).shape, axes)
        if not stable:  # subject to cancellation, but computes both sums in one pass over memory
            variance = sub(*broadcast(variance, mul(*broadcast(mean, mean))))
            variance = ew.max(variance, lit(0, variance))
    x, mean, variance, epsilon = promote(x, mean, variance, cast(epsilon, type_of(x).dtype))
    scale = rsqrt(add(*broadcast(variance, epsilon)))
    return mul(*broadcast(sub(*broadcast(x, mean)), scale))


def _count(x: Any, axes: Axes, mask: Any) -> Any:
    if mask is None:
        return lit(count_of(type_of(x).shape, axes), x)
    return add_up(mask, axes, type_of(x).dtype)


# -- one_hot --


def one_hot(
    x: ArrayLike,
    num_classes: int,
    *,
    dtype: DTypeLike | None = None,
    axis: AxisName = -1,
    out_sharding: OutSharding = None,
) -> Array:
    """For each index, a vector with 1 at that position and 0 elsewhere; all 0 if out of bounds.

    x: indices, or a list of them.
    axis: the position of the class dimension in the result; or the name of an axis in scope, of
      size `num_classes`, over which the classes are distributed: the result has the shape of `x`.
    out_sharding: how the result is sharded over explicit mesh axes: as `x`, and along the classes.
    """
    x = asarray(x) if isinstance(x, list | tuple) else x
    chosen = dtype_of(dtype, "one_hot")
    if not isinstance(num_classes, int | float):
        num_classes = as_integer(num_classes, "one_hot: num_classes")
    if is_name(axis):
        axes = named_axes("shardwise.nn.one_hot", (axis,))
        return _one_hot_along(x, int(num_classes), chosen, axes)
    how = int(num_classes), chosen, canonical_axis(axis, type_of(x).ndim + 1)
    if out_sharding is None or says_nothing(out_sharding):
        return _one_hot(x, *how)
    goal, t = target(out_sharding, "one_hot: out_sharding", x), type_of(x)
    wanted = list(fitted(goal, t.ndim + 1).spec.dims(t.ndim + 1))
    del wanted[how[-1]]
    if wanted != list((t.spec or goal.spec.update(partitions=())).dims(t.ndim)):
        raise ShardingTypeError(
            f"one_hot: x is of type {t.str_short(True)}, and out_sharding={goal.spec} shards its "
            "dimensions otherwise. Reshard x first with `shardwise.sharding.reshard`; "
            f"out_sharding chooses the sharding of the classes only, dimension {how[-1]}."
        )
    return placed(_one_hot, goal, x, *how)


@fused(arrays=1)
def _one_hot(x: Any, num_classes: int, dtype: Any, axis: int) -> Any:
    t = type_of(x)
    shape = (*t.shape[:axis], num_classes, *t.shape[axis:])
    kept = tuple(i for i in range(len(shape)) if i != axis)
    places = iota(dtype=t.dtype, shape=shape, dimension=axis)
    same = ew.eq(broadcast_in_dim(x, shape=shape, dims=kept), places)
    return convert_element_type(same, dtype=dtype)


def _one_hot_along(x: Any, num_classes: int, dtype: Any, axes: NamedAxes) -> Any:
    """Each vector's element at this instance's index along a named axis."""
    (name,), (size,) = axes.names, axes.sizes
    if size != num_classes:
        raise ValueError(
            "shardwise.nn.one_hot: num_classes must be the size of the axis of the classes, which "
            f"is {size} for {name!r}; got {num_classes}."
        )
    own = index_along(axes.found[0])
    return convert_element_type(ew.eq(*promote(*broadcast(x, own))), dtype=dtype)
