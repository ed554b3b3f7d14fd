"""Activation functions.

Gradients are finite wherever the function is, and 0 at the kink of `relu`. Integers are converted
to floats, except by `relu` and `hard_tanh`, which only clip.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.elementwise import (
    abs,
    add,
    div,
    exp,
    expm1,
    ge,
    gt,
    le,
    log,
    log1p,
    lt,
    mul,
    neg,
    sqrt,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.shape import canonical_axis, slice_in_dim
from shardwise._src.ops.special.special_functions import erfc
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_bool, is_inexact, to_inexact
from shardwise._src.values.convert import broadcast, cast, inexact, promote_inexact

INT32 = np.dtype(np.int32)


def _loosely(x: Any) -> Any:
    """`x` as floats, weakly typed unless it already is a float."""
    t = type_of(x)
    return cast(x, to_inexact(t.dtype), t.weak_type or not is_inexact(t.dtype))


def _no_bool(x: Any) -> Any:
    """`x`, with booleans as weak integers, as if promoted with a Python number."""
    return cast(x, canonicalize(int), True) if is_bool(type_of(x).dtype) else x


def _like(x: Any, out: Any) -> Any:
    """`out`, weakly typed if `x` is."""
    t = type_of(x)
    return cast(out, t.dtype, t.weak_type)


# -- clipped or piecewise linear --


@fused(arrays=1)
def identity(x: ArrayLike) -> Array:
    """x."""
    return x  # pyright: ignore[reportReturnType] (results of programs are arrays)


@fused(arrays=1)
def relu(x: ArrayLike) -> Array:
    """max(x, 0); the derivative at 0 is 0."""
    x = _no_bool(x)
    return _like(x, where(le(x, lit(0, x)), lit(0, x), x))


@fused(arrays=1)
def relu6(x: ArrayLike) -> Array:
    """x clipped to [0, 6]; the derivative at both ends is 0."""
    x = _loosely(x)
    return _like(x, _between(x, 0, 6))


@fused(arrays=1)
def hard_tanh(x: ArrayLike) -> Array:
    """x clipped to [-1, 1]."""
    x = _no_bool(x)
    low, high = lit(-1, x), lit(1, x)
    return _like(x, where(gt(x, high), high, where(lt(x, low), low, x)))


def _between(x: Any, low: float, high: float) -> Any:
    low, high = lit(low, x), lit(high, x)
    return where(le(x, low), low, where(ge(x, high), high, x))


@fused(arrays=1)
def hard_sigmoid(x: ArrayLike) -> Array:
    """relu6(x + 3) / 6."""
    x = _loosely(x)
    return _like(x, _hard_sigmoid(x))


def _hard_sigmoid(x: Any) -> Any:
    return div(_between(add(x, lit(3, x)), 0, 6), lit(6, x))


@fused(arrays=1)
def hard_silu(x: ArrayLike) -> Array:
    """x * hard_sigmoid(x)."""
    x = _loosely(x)
    return _like(x, mul(x, _hard_sigmoid(x)))


@fused(arrays=2)
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """x where it is nonnegative, negative_slope * x elsewhere."""
    x, slope = _with_parameter(x, negative_slope)
    return where(ge(x, lit(0, x)), x, mul(slope, x))


def _with_parameter(x: Any, parameter: Any) -> list[Any]:
    return broadcast(*promote_inexact(x, parameter))


@fused(arrays=1)
def sparse_plus(x: ArrayLike) -> Array:
    """0 up to -1, x from 1 on, and a parabola in between: (x + 1)**2 / 4."""
    x = _loosely(x)
    one = lit(1, x)
    middle = div(mul(add(x, one), add(x, one)), lit(4, x))
    return _like(x, where(le(x, neg(one)), lit(0, x), where(ge(x, one), x, middle)))


@fused(arrays=1)
def sparse_sigmoid(x: ArrayLike) -> Array:
    """The derivative of `sparse_plus`: (x + 1) / 2, clipped to [0, 1]."""
    x = _loosely(x)
    return _like(x, mul(lit(0.5, x), _between(add(x, lit(1, x)), 0, 2)))


# -- smooth --


@fused(arrays=1)
def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))."""
    return ew.logistic(inexact(x))


@fused(arrays=1)
def tanh(x: ArrayLike) -> Array:
    """Hyperbolic tangent."""
    return ew.tanh(inexact(x))


@fused(arrays=1)
def silu(x: ArrayLike) -> Array:
    """x * sigmoid(x), also known as swish."""
    x = inexact(x)
    return mul(x, ew.logistic(x))


@fused(arrays=1)
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x))."""
    x = inexact(_no_bool(x))
    return _like(x, _softplus(x))


def _softplus(x: Any) -> Any:
    """max(x, 0) + log1p(exp(-|x|)), neither of which can overflow. At 0, the first term has the
    derivative 0 here and the second 1/2.
    """
    positive = gt(x, lit(0, x))
    rest = log1p(exp(where(positive, neg(x), x)))
    return add(where(positive, x, lit(0, x)), rest)


@fused(arrays=1)
def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)), accurate also for very negative x."""
    x = inexact(x)
    return _like(x, neg(_softplus(neg(x))))


@fused(arrays=1)
def soft_sign(x: ArrayLike) -> Array:
    """x / (|x| + 1)."""
    x = inexact(_no_bool(x))
    return _like(x, div(x, add(cast(abs(x), type_of(x).dtype), lit(1, x))))


@fused(arrays=2)
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    x, alpha = _with_parameter(x, alpha)
    return _like(x, _elu(x, alpha))


def _elu(x: Any, alpha: Any) -> Any:
    positive = gt(x, lit(0, x))
    below = where(positive, lit(0, x), x)  # avoids overflow in the unused branch
    return where(positive, x, mul(alpha, expm1(below)))


@fused(arrays=2)
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1): smooth for every alpha."""
    x, alpha = _with_parameter(x, alpha)
    zero = lit(0, x)
    positive = gt(x, zero)
    below = where(positive, zero, x)
    return _like(x, where(positive, x, mul(alpha, expm1(div(below, alpha)))))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@fused(arrays=1)
def selu(x: ArrayLike) -> Array:
    """`elu` with the constants that preserve unit variance (Klambauer et al., 2017)."""
    x = _loosely(x)
    return _like(x, mul(lit(_SELU_SCALE, x), _elu(x, lit(_SELU_ALPHA, x))))


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """x * Φ(x), where Φ is the normal distribution function.

    approximate: uses a close approximation with tanh, which is common in older models.
    """
    return _gelu(x) if approximate else _exact_gelu(x)


@fused(arrays=1)
def _exact_gelu(x: Any) -> Any:
    x = inexact(x)
    return mul(mul(lit(0.5, x), x), erfc(mul(neg(x), lit(np.sqrt(0.5), x))))


@fused(arrays=1)
def _gelu(x: Any) -> Any:
    x = inexact(x)
    cube = mul(mul(x, x), x)
    inner = mul(lit(np.sqrt(2 / np.pi), x), add(x, mul(lit(0.044715, x), cube)))
    return mul(x, mul(lit(0.5, x), add(lit(1, x), ew.tanh(inner))))


@fused(arrays=1)
def mish(x: ArrayLike) -> Array:
    """x * tanh(softplus(x))."""
    x = inexact(_no_bool(x))
    return _like(x, mul(x, ew.tanh(_softplus(x))))


@fused(arrays=2)
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """(x + sqrt(x**2 + b)) / 2: close to `softplus`, without exponentials."""
    x, b = _with_parameter(cast(x, INT32) if is_bool(type_of(x).dtype) else x, b)
    return _like(x, div(add(x, sqrt(add(mul(x, x), b))), lit(2, x)))


@fused(arrays=1)
def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) for nonnegative x, accurate at both ends."""
    x = inexact(x)
    near = lt(x, lit(np.log(2), x))
    small = where(near, x, lit(1, x))  # keep each formula within its range
    large = where(near, lit(1, x), x)
    return _like(x, where(near, log(neg(expm1(neg(small)))), log1p(neg(exp(neg(large))))))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along `axis` times the sigmoid of the second."""
    return _glu(x, canonical_axis(axis, type_of(x).ndim))


@fused(arrays=1)
def _glu(x: Any, axis: int) -> Any:
    x = inexact(x)
    size = type_of(x).shape[axis]
    if size % 2:
        raise ValueError(
            f"glu: dimension {axis} must be of even size; got {type_of(x).str_short(True)}."
        )
    first = slice_in_dim(x, 0, size // 2, axis)
    return mul(first, ew.logistic(slice_in_dim(x, size // 2, size, axis)))


hard_swish, swish = hard_silu, silu
