"""Functions of each element, or of each pair of elements.

Operands are arrays, NumPy arrays or scalars of one dtype and one shape; scalars go with every
shape, and a Python scalar takes the dtype of the other if it is of its kind. The functions of
`shardwise.numpy` promote and broadcast.
"""

from __future__ import annotations

import enum

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.convert import cast, constant
from shardwise._src.ops import elementwise as ew
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, ArrayLike, T
from shardwise._src.types.dtypes import is_bool, is_integer

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


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y."""
    return ew.add(x, y)


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """x - y."""
    return ew.sub(x, y)


def mul(x: ArrayLike, y: ArrayLike) -> Array:
    """x * y."""
    return ew.mul(x, y)


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """x / y; integers are truncated towards zero."""
    return ew.div(x, y)


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Remainder of x / y, with the sign of x."""
    return ew.rem(x, y)


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """The larger of each pair; NaN where either is."""
    return ew.max(x, y)


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """The smaller of each pair; NaN where either is."""
    return ew.min(x, y)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The next representable number after x1 in the direction of x2."""
    return ew.nextafter(x1, x2)


# -- rounding --


def floor(x: ArrayLike) -> Array:
    """The largest integer that is not larger."""
    return ew.floor(x)


def ceil(x: ArrayLike) -> Array:
    """The smallest integer that is not smaller."""
    return ew.ceil(x)


def is_finite(x: ArrayLike) -> Array:
    """Whether each element is neither infinite nor NaN."""
    return ew.is_finite(x)


# -- exponentials, powers and roots --


def exp(x: ArrayLike) -> Array:
    """e to the power x."""
    return ew.exp(x)


def exp2(x: ArrayLike) -> Array:
    """2 to the power x."""
    return ew.exp2(x)


def expm1(x: ArrayLike) -> Array:
    """exp(x) - 1, exact for small x."""
    return ew.expm1(x)


def log(x: ArrayLike) -> Array:
    """Natural logarithm."""
    return ew.log(x)


def log1p(x: ArrayLike) -> Array:
    """log(1 + x), exact for small x."""
    return ew.log1p(x)


def logistic(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))."""
    return ew.logistic(x)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y."""
    return ew.pow(x, y)


def sqrt(x: ArrayLike) -> Array:
    """Square root."""
    return ew.sqrt(x)


def rsqrt(x: ArrayLike) -> Array:
    """1 / sqrt(x)."""
    return ew.rsqrt(x)


def cbrt(x: ArrayLike) -> Array:
    """Cube root."""
    return ew.cbrt(x)


# -- trigonometry, in radians --


def sin(x: ArrayLike) -> Array:
    """Sine."""
    return ew.sin(x)


def cos(x: ArrayLike) -> Array:
    """Cosine."""
    return ew.cos(x)


def tan(x: ArrayLike) -> Array:
    """Tangent."""
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
    return ew.atan2(x, y)


def sinh(x: ArrayLike) -> Array:
    """Hyperbolic sine."""
    return ew.sinh(x)


def cosh(x: ArrayLike) -> Array:
    """Hyperbolic cosine."""
    return ew.cosh(x)


def tanh(x: ArrayLike) -> Array:
    """Hyperbolic tangent."""
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
    return ew.complex(x, y)


# -- comparisons --


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """x == y."""
    return ew.eq(x, y)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """x != y."""
    return ew.ne(x, y)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """x < y."""
    return ew.lt(x, y)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """x <= y."""
    return ew.le(x, y)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """x > y."""
    return ew.gt(x, y)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """x >= y."""
    return ew.ge(x, y)


# -- bits --


def bitwise_not(x: ArrayLike) -> Array:
    """All bits flipped."""
    return ew.bitwise_not(x)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in both."""
    return ew.bitwise_and(x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in either."""
    return ew.bitwise_or(x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Bits set in one only."""
    return ew.bitwise_xor(x, y)


def population_count(x: ArrayLike) -> Array:
    """How many bits are set."""
    return ew.population_count(x)


def clz(x: ArrayLike) -> Array:
    """How many leading bits are not set."""
    return ew.clz(x)


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the left."""
    return ew.shift_left(x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the right; the sign stays."""
    return ew.shift_right_arithmetic(x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """x shifted by y bits to the right, with zeros following."""
    return ew.shift_right_logical(x, y)


# -- functions with parameters --


@public("shardwise.lax")
class RoundingMethod(enum.IntEnum):
    """Where halves go."""

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
    """From several cases, for each element, the one that `which` names.

    Args:
      which: integers, or booleans for two cases (False names the first); of the cases' shape or
        a scalar.
      cases: arrays of one shape and dtype.

    Raises:
      TypeError: if shapes or dtypes differ.
    """
    shapes = {type_of(c).shape for c in cases}
    if len(shapes) > 1:
        listed = ', '.join(type_of(c).str_short(True) for c in cases)
        raise TypeError(f"[select_n] cases must have one shape; got {listed}.")
    dtype = type_of(which).dtype
    if is_integer(dtype) and not is_bool(dtype):
        which = cast(which, np.dtype("int32"))
    return ew.select_n(which, *cases)


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x brought between `min` and `max`, which have its shape or are scalars."""
    return ew.clamp(min, x, max)


def stop_gradient(x: T) -> T:
    """The leaves of a tree as constants for differentiation."""
    leaves, tree = flatten(x)
    return tree.unflatten([ew.stop_gradient(leaf) for leaf in leaves])
