"""Functions of each element, or of each pair of elements.

Operands are arrays, NumPy arrays or scalars of one dtype and one shape; scalars go with every
shape, and a Python scalar takes the dtype of the other if it is of its kind. The functions of
`shardwise.numpy` promote and broadcast.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.numpy.convert import cast
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import is_bool, is_integer

# -- arithmetic --


def neg(x: Any) -> Any:
    """-x."""
    return ew.neg(x)


def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign; x / |x| for complex numbers."""
    return ew.sign(x)


def abs(x: Any) -> Any:
    """Absolute value."""
    return ew.abs(x)


def square(x: Any) -> Any:
    """x * x."""
    return ew.square(x)


def add(x: Any, y: Any) -> Any:
    """x + y."""
    return ew.add(x, y)


def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return ew.sub(x, y)


def mul(x: Any, y: Any) -> Any:
    """x * y."""
    return ew.mul(x, y)


def div(x: Any, y: Any) -> Any:
    """x / y; integers are truncated towards zero."""
    return ew.div(x, y)


def rem(x: Any, y: Any) -> Any:
    """Remainder of x / y, with the sign of x."""
    return ew.rem(x, y)


def max(x: Any, y: Any) -> Any:
    """The larger of each pair; NaN where either is."""
    return ew.max(x, y)


def min(x: Any, y: Any) -> Any:
    """The smaller of each pair; NaN where either is."""
    return ew.min(x, y)


def nextafter(x1: Any, x2: Any) -> Any:
    """The next representable number after x1 in the direction of x2."""
    return ew.nextafter(x1, x2)


# -- rounding --


def floor(x: Any) -> Any:
    """The largest integer that is not larger."""
    return ew.floor(x)


def ceil(x: Any) -> Any:
    """The smallest integer that is not smaller."""
    return ew.ceil(x)


def is_finite(x: Any) -> Any:
    """Whether each element is neither infinite nor NaN."""
    return ew.is_finite(x)


# -- exponentials, powers and roots --


def exp(x: Any) -> Any:
    """e to the power x."""
    return ew.exp(x)


def exp2(x: Any) -> Any:
    """2 to the power x."""
    return ew.exp2(x)


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact for small x."""
    return ew.expm1(x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return ew.log(x)


def log1p(x: Any) -> Any:
    """log(1 + x), exact for small x."""
    return ew.log1p(x)


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return ew.logistic(x)


def pow(x: Any, y: Any) -> Any:
    """x to the power y."""
    return ew.pow(x, y)


def sqrt(x: Any) -> Any:
    """Square root."""
    return ew.sqrt(x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return ew.rsqrt(x)


def cbrt(x: Any) -> Any:
    """Cube root."""
    return ew.cbrt(x)


# -- trigonometry, in radians --


def sin(x: Any) -> Any:
    """Sine."""
    return ew.sin(x)


def cos(x: Any) -> Any:
    """Cosine."""
    return ew.cos(x)


def tan(x: Any) -> Any:
    """Tangent."""
    return ew.tan(x)


def asin(x: Any) -> Any:
    """Arc sine."""
    return ew.asin(x)


def acos(x: Any) -> Any:
    """Arc cosine."""
    return ew.acos(x)


def atan(x: Any) -> Any:
    """Arc tangent."""
    return ew.atan(x)


def atan2(x: Any, y: Any) -> Any:
    """Angle of the point (y, x)."""
    return ew.atan2(x, y)


def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
    return ew.sinh(x)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    return ew.cosh(x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return ew.tanh(x)


def asinh(x: Any) -> Any:
    """Inverse of sinh."""
    return ew.asinh(x)


def acosh(x: Any) -> Any:
    """Inverse of cosh."""
    return ew.acosh(x)


def atanh(x: Any) -> Any:
    """Inverse of tanh."""
    return ew.atanh(x)


# -- complex numbers --


def real(x: Any) -> Any:
    """Real part."""
    return ew.real(x)


def imag(x: Any) -> Any:
    """Imaginary part."""
    return ew.imag(x)


def conj(x: Any) -> Any:
    """Complex conjugate; a real operand becomes complex."""
    return ew.conj(x)


def complex(x: Any, y: Any) -> Any:
    """x + iy."""
    return ew.complex(x, y)


# -- comparisons --


def eq(x: Any, y: Any) -> Any:
    """x == y."""
    return ew.eq(x, y)


def ne(x: Any, y: Any) -> Any:
    """x != y."""
    return ew.ne(x, y)


def lt(x: Any, y: Any) -> Any:
    """x < y."""
    return ew.lt(x, y)


def le(x: Any, y: Any) -> Any:
    """x <= y."""
    return ew.le(x, y)


def gt(x: Any, y: Any) -> Any:
    """x > y."""
    return ew.gt(x, y)


def ge(x: Any, y: Any) -> Any:
    """x >= y."""
    return ew.ge(x, y)


# -- bits --


def bitwise_not(x: Any) -> Any:
    """All bits flipped."""
    return ew.bitwise_not(x)


def bitwise_and(x: Any, y: Any) -> Any:
    """Bits set in both."""
    return ew.bitwise_and(x, y)


def bitwise_or(x: Any, y: Any) -> Any:
    """Bits set in either."""
    return ew.bitwise_or(x, y)


def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits set in one only."""
    return ew.bitwise_xor(x, y)


def population_count(x: Any) -> Any:
    """How many bits are set."""
    return ew.population_count(x)


def clz(x: Any) -> Any:
    """How many leading bits are not set."""
    return ew.clz(x)


def shift_left(x: Any, y: Any) -> Any:
    """x shifted by y bits to the left."""
    return ew.shift_left(x, y)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """x shifted by y bits to the right; the sign stays."""
    return ew.shift_right_arithmetic(x, y)


def shift_right_logical(x: Any, y: Any) -> Any:
    """x shifted by y bits to the right, with zeros following."""
    return ew.shift_right_logical(x, y)


# -- functions with parameters --


class RoundingMethod(enum.IntEnum):
    """Where halves go."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest integer."""
    return ew.round(x, rounding_method=int(rounding_method))


def integer_pow(x: Any, y: int) -> Any:
    """x to the power of a Python integer."""
    return ew.integer_pow(x, y=y)


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return ew.div(lit(1, x), x)


# -- choices --


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Elements of `on_true` where `pred` is true, of `on_false` elsewhere.

    Args:
      pred: booleans, of the cases' shape or a scalar.
      on_true, on_false: the cases, of one shape and dtype.
    """
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
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


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x brought between `min` and `max`, which have its shape or are scalars."""
    return ew.clamp(min, x, max)


def stop_gradient(x: Any) -> Any:
    """The leaves of a tree as constants for differentiation."""
    leaves, tree = flatten(x)
    return tree.unflatten([ew.stop_gradient(leaf) for leaf in leaves])
