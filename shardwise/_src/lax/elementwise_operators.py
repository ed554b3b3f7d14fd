"""Functions of each element, or of each pair of elements.

Operands are arrays, NumPy arrays or scalars of one dtype and one shape, in which sizes of 1
broadcast. Scalars combine with every shape, and a Python scalar takes the dtype of the other
operand if it is of the same kind. The functions of `shardwise.numpy` promote and broadcast any
ranks.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from shardwise._src.arrays import array as arrays
from shardwise._src.base.lazy import public
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.accuracy import Accuracy as Accuracy
from shardwise._src.lax.accuracy import check_accuracy
from shardwise._src.lax.broadcasting import alike
from shardwise._src.messages.called import by_name
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.families import common_dtype, lit, lit_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, T
from shardwise._src.types.dtypes import check_user_dtype, is_bool, is_integer, is_signed
from shardwise._src.values.convert import cast, constant

# -- arithmetic --


def neg(x: ArrayLike) -> Array:
    """-x."""
    return ew.neg(x)


def sign(x: ArrayLike) -> Array:
    """-1, 0 or 1 by the sign; x / |x| for complex numbers."""
    return ew.sign(x)


def abs(x: ArrayLike) -> Array:
    """Absolute value."""
    return ew.abs(x)


def square(x: ArrayLike) -> Array:
    """x * x."""
    return ew.square(x)


def one_minus_square(x: ArrayLike) -> Array:
    """1 - x * x, accurate near 1 and -1, with a derivative accurate near 0."""
    return ew.one_minus_square(x)


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y."""
    return ew.add(*alike(x, y))


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y."""
    return ew.sub(*alike(x, y))


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """x * y; with an out_dtype, both are converted to it first."""
    if out_dtype is not None:
        dtype = check_user_dtype(out_dtype, "mul")
        return ew.mul(*alike(cast(x, dtype), cast(y, dtype)))
    return ew.mul(*alike(x, y))


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The upper half of the bits of the double-width products of integers."""
    t = type_of(x)
    common_dtype("mulhi", (t, type_of(y)))
    if not is_integer(t.dtype):
        raise TypeError(f"mulhi takes integers; got {t.str_short(True)}.")
    return _upper_half(*alike(x, y))


@fused(arrays=2)
def _upper_half(x: Any, y: Any) -> Any:
    dtype = type_of(x).dtype
    bits, kind = 8 * dtype.itemsize, "int" if is_signed(dtype) else "uint"
    shift = ew.shift_right_arithmetic if is_signed(dtype) else ew.shift_right_logical
    if bits < 64:
        wide = np.dtype(f"{kind}{2 * bits}")
        product = ew.mul(cast(x, wide), cast(y, wide))
        count = broadcast_in_dim(lit(bits, x), shape=type_of(product).shape, dims=())
        return cast(shift(product, cast(count, wide)), dtype)
    half, low = lit(32, x), lit_of(0xFFFFFFFF, dtype)
    (a, b), (c, d) = ((shift(v, half), ew.bitwise_and(v, low)) for v in (x, y))
    carry = ew.shift_right_logical(ew.mul(b, d), half)
    middle = ew.add(ew.mul(a, d), carry)
    other = ew.add(ew.mul(b, c), ew.bitwise_and(middle, low))
    return ew.add(ew.add(ew.mul(a, c), shift(middle, half)), shift(other, half))


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """x / y; integers are truncated towards zero."""
    return ew.div(*alike(x, y))


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Remainder of x / y, with the sign of x."""
    return ew.rem(*alike(x, y))


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """The larger of each pair; NaN where either is."""
    return ew.max(*alike(x, y))


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """The smaller of each pair; NaN where either is."""
    return ew.min(*alike(x, y))


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The next representable number after x1 in the direction of x2."""
    return ew.nextafter(*alike(x1, x2))


# -- rounding --


def floor(x: ArrayLike) -> Array:
    """The largest integer not greater than x."""
    return ew.floor(x)


def ceil(x: ArrayLike) -> Array:
    """The smallest integer not less than x."""
    return ew.ceil(x)


def is_finite(x: ArrayLike) -> Array:
    """Whether each element is neither infinite nor NaN."""
    return ew.is_finite(x)


# -- exponentials, powers and roots --


def exp(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """e to the power x."""
    if accuracy is not None:
        check_accuracy(accuracy, "exp")
    return ew.exp(x)


def exp2(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """2 to the power x."""
    if accuracy is not None:
        check_accuracy(accuracy, "exp2")
    return ew.exp2(x)


def expm1(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """exp(x) - 1, accurate for small x."""
    if accuracy is not None:
        check_accuracy(accuracy, "expm1")
    return ew.expm1(x)


def log(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Natural logarithm."""
    if accuracy is not None:
        check_accuracy(accuracy, "log")
    return ew.log(x)


def log2(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Logarithm to base 2."""
    if accuracy is not None:
        check_accuracy(accuracy, "log2")
    return _log2(x)


@fused(arrays=1)
def _log2(x: Any) -> Any:
    out = ew.log(x)
    return ew.div(out, lit(math.log(2), out))


def log1p(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """log(1 + x), accurate for small x."""
    if accuracy is not None:
        check_accuracy(accuracy, "log1p")
    return ew.log1p(x)


def logistic(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """1 / (1 + exp(-x))."""
    if accuracy is not None:
        check_accuracy(accuracy, "logistic")
    return ew.logistic(x)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y."""
    return ew.pow(*alike(x, y))


def sqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Square root."""
    if accuracy is not None:
        check_accuracy(accuracy, "sqrt")
    return ew.sqrt(x)


def rsqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """1 / sqrt(x)."""
    if accuracy is not None:
        check_accuracy(accuracy, "rsqrt")
    return ew.rsqrt(x)


def cbrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Cube root."""
    if accuracy is not None:
        check_accuracy(accuracy, "cbrt")
    return ew.cbrt(x)


# -- trigonometry, in radians --


def sin(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Sine."""
    if accuracy is not None:
        check_accuracy(accuracy, "sin")
    return ew.sin(x)


def cos(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Cosine."""
    if accuracy is not None:
        check_accuracy(accuracy, "cos")
    return ew.cos(x)


def tan(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Tangent."""
    if accuracy is not None:
        check_accuracy(accuracy, "tan")
    return ew.tan(x)


def asin(x: ArrayLike) -> Array:
    """Arc sine."""
    return ew.asin(x)


def acos(x: ArrayLike) -> Array:
    """Arc cosine."""
    return ew.acos(x)


def atan(x: ArrayLike) -> Array:
    """Arc tangent."""
    return ew.atan(x)


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Angle of the point (y, x)."""
    return ew.atan2(*alike(x, y))


def sinh(x: ArrayLike) -> Array:
    """Hyperbolic sine."""
    return ew.sinh(x)


def cosh(x: ArrayLike) -> Array:
    """Hyperbolic cosine."""
    return ew.cosh(x)


def tanh(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Hyperbolic tangent."""
    if accuracy is not None:
        check_accuracy(accuracy, "tanh")
    return ew.tanh(x)


def asinh(x: ArrayLike) -> Array:
    """Inverse of sinh."""
    return ew.asinh(x)


def acosh(x: ArrayLike) -> Array:
    """Inverse of cosh."""
    return ew.acosh(x)


def atanh(x: ArrayLike) -> Array:
    """Inverse of tanh."""
    return ew.atanh(x)


# -- complex numbers --


def real(x: ArrayLike) -> Array:
    """Real part."""
    return ew.real(x)


def imag(x: ArrayLike) -> Array:
    """Imaginary part."""
    return ew.imag(x)


def conj(x: ArrayLike) -> Array:
    """Complex conjugate; a real operand becomes complex."""
    return ew.conj(x)


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """x + iy."""
    return ew.complex(*alike(x, y))


# -- comparisons --


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """x == y."""
    return ew.eq(*alike(x, y))


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """x != y."""
    return ew.ne(*alike(x, y))


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """x < y."""
    return ew.lt(*alike(x, y))


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """x <= y."""
    return ew.le(*alike(x, y))


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """x > y."""
    return ew.gt(*alike(x, y))


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """x >= y."""
    return ew.ge(*alike(x, y))


# -- bits --


def bitwise_not(x: ArrayLike) -> Array:
    """All bits flipped."""
    return ew.bitwise_not(x)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in both."""
    return ew.bitwise_and(*alike(x, y))


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in either."""
    return ew.bitwise_or(*alike(x, y))


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in exactly one."""
    return ew.bitwise_xor(*alike(x, y))


def population_count(x: ArrayLike) -> Array:
    """The number of set bits."""
    return ew.population_count(x)


def clz(x: ArrayLike) -> Array:
    """The number of leading zero bits."""
    return ew.clz(x)


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the left."""
    return ew.shift_left(*alike(x, y))


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the right, with the sign bit replicated."""
    return ew.shift_right_arithmetic(*alike(x, y))


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the right, filled with zeros."""
    return ew.shift_right_logical(*alike(x, y))


# -- functions with parameters --


@public("shardwise.lax")
class RoundingMethod(enum.IntEnum):
    """How halves are rounded."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer."""
    return ew.round(x, rounding_method=int(rounding_method))


def integer_pow(x: ArrayLike, y: int) -> Array:
    """x to the power of a Python integer."""
    return ew.integer_pow(x, y=y)


def reciprocal(x: ArrayLike) -> Array:
    """1 / x."""
    return ew.div(constant(1, x), x)


# -- choices --


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Elements of `on_true` where `pred` is true, of `on_false` elsewhere.

    Args:
      pred: booleans, of the cases' shape or a scalar.
      on_true, on_false: the cases, of one shape and dtype.
    """
    return select_n(pred, on_false, on_true)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """For each element, the case that `which` selects.

    Args:
      which: integers, or booleans for two cases (False selects the first); of the cases' shape or
        a scalar.
      cases: arrays of one shape and dtype.

    Raises:
      TypeError: if shapes or dtypes differ.
    """
    shapes = {type_of(c).shape for c in cases}
    if len(shapes) > 1:
        listed = ', '.join(type_of(c).str_short(True) for c in cases)
        raise TypeError(by_name(f"cases must have the same shape; got {listed}."))
    dtype = type_of(which).dtype
    if is_integer(dtype) and not is_bool(dtype):
        which = cast(which, np.dtype("int32"))
    return ew.select_n(which, *cases)


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x limited to between `min` and `max`, which have its shape or are scalars."""
    return ew.clamp(min, x, max)


def stop_gradient(x: T) -> T:
    """The leaves of a pytree as constants for differentiation."""
    leaves, tree = flatten(x)
    # An array, unlike a tracer, depends on nothing that could be differentiated.
    made = [x if x.__class__ is arrays.Array else ew.stop_gradient(x) for x in leaves]
    return tree.unflatten(made)
