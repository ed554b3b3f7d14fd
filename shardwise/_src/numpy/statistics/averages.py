"""Averages and variances: mean, var, std, average, cov, corrcoef."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from shardwise._src.core.fused import eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.named_reductions import (
    Axes,
    count_of,
    dimensions,
    reduced_axes,
)
from shardwise._src.numpy.statistics.reductions import (
    accumulated_dtype,
    add_up,
    checked_dtype,
    masked,
    reject_out,
)
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape, transpose
from shardwise._src.ops.contract import dot
from shardwise._src.ops.families import lit
from shardwise._src.ops.shape import concatenate
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import is_complex, is_inexact, is_integer, real_dtype, to_inexact
from shardwise._src.values.convert import broadcast, broadcast_to, cast, joined, promote_inexact

# -- mean --


def average_over(
    x: Any, axes: Axes, dtype: Any, keepdims: bool, where: Any = None, name: str = "mean"
) -> Any:
    """The mean over `axes`, computed and returned in `dtype`; `where` selects the elements."""
    if where is None:
        total = add_up(x, axes, dtype, keepdims)
        return ew.div(total, lit(count_of(type_of(x).shape, axes), total))
    x = masked(x, where, 0, name)
    return ew.div(add_up(x, axes, dtype, keepdims), counted(where, x, axes, dtype, keepdims))


def counted(where: Any, x: Any, axes: Axes, dtype: Any, keepdims: bool) -> Any:
    """The number of selected elements of `x` over `axes`, as `dtype`."""
    return add_up(broadcast_to(where, type_of(x).shape), axes, dtype, keepdims)


def mean_of(
    a: Any, axis: AnyAxis = None, dtype: Any = None, keepdims: bool = False, where: Any = None
) -> Any:
    t = type_of(a)
    wanted = to_inexact(t.dtype) if dtype is None else dtype
    wide = accumulated_dtype(wanted)
    return cast(average_over(a, reduced_axes(axis, t.ndim), wide, keepdims, where), wanted)


_mean = fused(mean_of)


@fused(arrays=2)
def _mean_where(a: Any, where: Any, axis: AnyAxis, dtype: Any, keepdims: bool) -> Any:
    return mean_of(a, axis, dtype, keepdims, where)


def mean(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Arithmetic mean over `axis` (all by default).

    Args:
      dtype: of the computation and the result; by default the dtype of `a`, float32 for integers.
      where: booleans; elements where it is false are skipped.
    """
    dtype = checked_dtype(dtype, "mean")
    if where is None and out is None:
        if axis is None and dtype is None and not keepdims:
            return _mean(a)
        return _mean(a, axis, dtype, keepdims)
    reject_out("mean", out)
    return _mean_where(a, where, axis, dtype, keepdims)


# -- variance and standard deviation --


def numbers(a: Any) -> Any:
    """A mask of the elements that are not NaN; None if none can be."""
    return ew.eq(a, a) if is_inexact(type_of(a).dtype) else None


def both(first: Any, second: Any) -> Any:
    """The conjunction of two masks, or of one if the other is None."""
    if first is None or second is None:
        return second if first is None else first
    return ew.bitwise_and(*broadcast(first, second))


@fused_optional
def _spread(
    a: Any,
    middle: Any = None,
    where: Any = None,
    *,
    axis: AnyAxis,
    dtype: Any,
    correction: float,
    keepdims: bool,
    name: str,
) -> Any:
    """The variance, or its square root."""
    t = type_of(a)
    skip_nan, name = name.startswith("nan"), name.removeprefix("nan")
    axes = reduced_axes(axis, t.ndim)
    wanted = to_inexact(t.dtype if dtype is None else dtype)
    if is_complex(t.dtype) and not is_complex(wanted):
        raise ValueError(
            f"{name}: the variance of complex values cannot be computed in the real dtype {wanted}."
        )
    if skip_nan:
        where = both(numbers(a), where)
    wide = accumulated_dtype(wanted)
    x = cast(a, wide)
    if where is not None:
        x = masked(x, where, 0, name)
    if middle is None:
        middle = average_over(x, axes, wide, True, where, name)
    away = ew.sub(*broadcast(x, cast(middle, wide)))
    squares = ew.real(ew.mul(away, ew.conj(away))) if is_complex(wide) else ew.square(away)
    part = real_dtype(wide)
    if where is None:
        left = count_of(type_of(x).shape, axes) - correction
        divisor = lit(left if left > 0 else np.nan, squares)
    else:
        squares = masked(squares, where, 0, name)
        left = counted(where, x, axes, part, keepdims)
        left = ew.sub(left, lit(correction, left))
        divisor = ew.where(ew.gt(left, lit(0, left)), left, lit(np.nan, left))
    out = ew.div(add_up(squares, axes, part, keepdims), divisor)
    return cast(ew.sqrt(out) if name == "std" else out, real_dtype(wanted))


def spread_of(
    name: str,
    a: Any,
    axis: AnyAxis,
    dtype: Any,
    out: Any,
    ddof: float,
    keepdims: bool,
    where: Any,
    mean: Any,
    correction: float | None = None,
) -> Any:
    """`var`, `std`, `nanvar` or `nanstd`, by name."""
    dtype = checked_dtype(dtype, name)
    reject_out(name, out)
    if correction is None:
        correction = ddof
    elif ddof != 0:
        raise ValueError(f"{name}: pass ddof or correction, not both; got {ddof} and {correction}.")
    how = {"dtype": dtype, "correction": correction, "keepdims": keepdims}
    return _spread(a, mean, where, axis=axis, name=name, **how)


@eager_jit
def var(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """Variance over `axis` (all by default): the mean squared distance from the mean.

    Args:
      dtype: of the computation; by default the dtype of `a`, float32 for integers.
      ddof, correction: two names of the number to subtract from the element count in the divisor.
      where: booleans; elements where it is false are skipped.
      mean: the mean, if already computed, with the reduced dimensions kept.
    """
    return spread_of("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


@eager_jit
def std(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """Standard deviation over `axis`: the square root of the variance; arguments as for `var`."""
    return spread_of("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


# -- weighted average --


@fused_optional
def _average(a: Any, weights: Any = None, *, axis: AnyAxis, keepdims: bool, returned: bool) -> Any:
    t = type_of(a)
    axes = reduced_axes(axis, t.ndim)
    if weights is None:
        dtype: Any = to_inexact(t.dtype)
        out = mean_of(a, axis, dtype, keepdims)
        total = np.asarray(count_of(t.shape, axes)).astype(dtype)[()]
    else:
        a, w = promote_inexact(a, weights)
        dtype = type_of(a).dtype
        w = _fitted_weights(w, t.shape, axis)
        total = add_up(w, axes, dtype, keepdims)
        out = ew.div(add_up(ew.mul(a, w), axes, dtype, keepdims), total)
    out = cast(out, dtype)
    return (out, broadcast_to(cast(total, dtype), type_of(out).shape)) if returned else out


def _fitted_weights(w: Any, shape: tuple, axis: AnyAxis) -> Any:
    given = type_of(w).shape
    if given == shape:
        return w
    if axis is None:
        raise TypeError(
            f"average: axis must be given where the shapes of a and weights differ: {shape} and "
            f"{given}."
        )
    axes = dimensions(reduced_axes(axis, len(shape)))
    if given != tuple(shape[i] for i in axes):
        raise ValueError(
            f"average: weights of shape {given} do not match axis {axis} of a, of shape {shape}."
        )
    order = sorted(range(len(axes)), key=axes.__getitem__)
    w = transpose(w, perm=tuple(order)) if order != list(range(len(order))) else w
    wide = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    return broadcast_to(reshape(w, shape=wide), shape)


@overload
def average(
    a: ArrayLike,
    axis: AnyAxis = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: AnyAxis = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...
@overload
def average(
    a: ArrayLike,
    axis: AnyAxis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, Array]: ...
@eager_jit
def average(
    a: ArrayLike,
    axis: AnyAxis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, Array]:
    """Weighted average over `axis` (all by default).

    Args:
      weights: with the shape of `a`, or its sizes at `axis`; None for equal weights.
      returned: whether to return the sums of the weights as a second result.
    """
    return _average(a, weights, axis=axis, keepdims=keepdims, returned=returned)


# -- covariance --


@fused_optional
def _cov(
    m: Any,
    y: Any = None,
    frequencies: Any = None,
    weights: Any = None,
    *,
    rowvar: bool,
    ddof: float,
    dtype: Any,
) -> Any:
    given = [m] if y is None else [m, y]
    wanted = dtype
    if wanted is None:
        found, weak = joined(*given)
        wanted = to_inexact(found)
        if weights is not None and not is_complex(type_of(weights).dtype):
            exact = cast(weights, type_of(weights).dtype, False)
            wanted, _ = joined(cast(m, wanted, weak), exact)
    x = _observations(m, rowvar, wanted, "m")
    if y is not None:
        x = concatenate(
            x, _observations(y, rowvar or type_of(y).ndim == 1, wanted, "y"), dimension=0
        )
    part: Any = real_dtype(wanted)
    count = type_of(x).shape[1]
    w = _combined_weights(frequencies, weights, count, part)
    if w is None:
        centre = average_over(x, (1,), wanted, True)
        divisor = np.asarray(count - ddof if count else 0).astype(part)[()]
    else:
        total = add_up(w, (0,), part)
        scaled = ew.mul(x, broadcast_to(cast(w, wanted), type_of(x).shape))
        centre = ew.div(*broadcast(add_up(scaled, (1,), wanted, True), cast(total, wanted)))
        lost = np.asarray(ddof).astype(part)[()]
        if weights is not None and ddof != 0:
            scaled_weights = ew.mul(w, cast(weights, part))
            lost = ew.mul(lost, ew.div(add_up(scaled_weights, (0,), part), total))
        divisor = ew.sub(total, lost)
    away = ew.sub(*broadcast(x, centre))
    left = away if w is None else ew.mul(away, broadcast_to(cast(w, wanted), type_of(x).shape))
    right = ew.conj(away) if is_complex(wanted) else away
    out = dot(left, right, (((1,), (1,)), ((), ())))
    out = ew.div(out, cast(divisor, wanted))
    return reshape(out, shape=()) if type_of(out).shape == (1, 1) else out


def _observations(x: Any, rowvar: bool, dtype: Any, name: str) -> Any:
    """One row per variable."""
    t = type_of(x)
    if t.ndim > 2:
        raise ValueError(f"cov: {name} must have at most 2 dimensions; got {t.str_short(True)}.")
    x = cast(x, dtype)
    if t.ndim < 2:
        return reshape(x, shape=(1, t.size))
    return x if rowvar else transpose(x, perm=(1, 0))


def _combined_weights(frequencies: Any, weights: Any, count: int, dtype: Any) -> Any:
    for w, name in ((frequencies, "fweights"), (weights, "aweights")):
        if w is not None and type_of(w).shape != (count,):
            raise ValueError(
                f"cov: {name} must be a vector with one entry for each of the {count} "
                f"observations; got {type_of(w).str_short(True)}."
            )
    if frequencies is not None and not is_integer(type_of(frequencies).dtype):
        raise TypeError(
            f"cov: fweights must be integers; got {type_of(frequencies).str_short(True)}."
        )
    given = [cast(w, dtype) for w in (frequencies, weights) if w is not None]
    return ew.mul(*given) if len(given) == 2 else given[0] if given else None


@eager_jit
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Covariance matrix of variables, which are the rows of `m` (and of `y`).

    Args:
      rowvar: whether rows are variables; else columns are.
      bias: whether to divide by the number of observations rather than by one less.
      ddof: overrides the number that is subtracted from the number of observations.
      fweights: integer frequencies of the observations.
      aweights: their relative importance.
    """
    dtype = checked_dtype(dtype, "cov")
    if ddof is None:
        ddof = 0 if bias else 1
    return _cov(m, y, fweights, aweights, rowvar=rowvar, ddof=ddof, dtype=dtype)


@fused(arrays=1)
def _normalized(c: Any) -> Any:
    t = type_of(c)
    if t.ndim == 0:
        return ew.div(c, c)
    dtype: Any = real_dtype(t.dtype)
    n = t.shape[0]
    here = np.eye(n, dtype=bool)
    zero = np.zeros((), t.dtype)[()]
    variances = add_up(ew.where(here, c, zero), (1,), t.dtype)
    if is_complex(t.dtype):
        variances = ew.real(variances)
    scale = ew.sqrt(variances)
    for shape in ((n, 1), (1, n)):
        c = ew.div(*broadcast(c, cast(reshape(scale, shape=shape), t.dtype)))
    one = np.ones((), dtype)[()]
    if is_complex(t.dtype):
        return ew.complex(ew.clamp(-one, ew.real(c), one), ew.clamp(-one, ew.imag(c), one))
    return ew.clamp(-one, c, one)


@eager_jit
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None
) -> Array:
    """Matrix of correlation coefficients; arguments as for `cov`."""
    return _normalized(cov(x, y, rowvar, dtype=dtype))
