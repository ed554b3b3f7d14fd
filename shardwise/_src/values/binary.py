"""Binary universal functions: arithmetic, comparison, logic, bits, extremes.

All broadcast as in NumPy and promote as in JAX. Unary functions are in `unary`, and functions on
the representation of floats in `floats`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.errors import DtypeError
from shardwise._src.base.named import alias, named
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import loops
from shardwise._src.ops.special import special_functions
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import (
    canonicalize,
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    is_unsigned,
)
from shardwise._src.types.promotion import lattice_join
from shardwise._src.values.convert import (
    broadcast,
    cast,
    constant,
    promote,
    promote_inexact,
    promote_numeric,
    strip_weak_type,
)

# -- arithmetic --


def _binary(
    name: str,
    formula: Callable[[Any, Any], Any],
    doc: str,
    promoted: Callable[..., list[Any]] = promote,
) -> Callable[[ArrayLike, ArrayLike], Array]:
    """A function of promoted operands of one shape."""

    def fun(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        return formula(*broadcast(*promoted(x1, x2)))

    return fused(named(fun, name, doc), arrays=2)


add = _binary("add", ew.add, "Element-wise sum; for booleans, logical OR.")
subtract = _binary("subtract", ew.sub, "Element-wise difference.")
multiply = _binary("multiply", ew.mul, "Element-wise product; for booleans, logical AND.")
true_divide = _binary("true_divide", ew.div, "Element-wise quotient, as floats.", promote_inexact)

divide = alias(true_divide, "divide")


def _quotient(x: Any, y: Any) -> Any:
    dtype = _real("floor_divide", x)
    if is_unsigned(dtype):
        return ew.div(x, y)
    zero = constant(0, y)
    if is_integer(dtype):
        exact = ew.eq(ew.rem(x, y), constant(0, x))
        same = ew.eq(ew.sign(x), ew.sign(y))
        quotient = ew.div(x, y)
        return ew.where(ew.bitwise_or(exact, same), quotient, ew.sub(quotient, constant(1, x)))
    left = ew.rem(x, y)
    quotient = ew.div(ew.where(ew.eq(y, zero), x, ew.sub(x, left)), y)
    crosses = ew.bitwise_and(ew.ne(left, zero), ew.ne(ew.sign(left), ew.sign(y)))
    down = ew.where(crosses, ew.sub(quotient, constant(1, x)), quotient)
    return ew.round(down, rounding_method=1)  # last, so that the derivative of the rounding is 0


def _remainder(x: Any, y: Any) -> Any:
    left = _truncated_remainder(x, y)
    if is_unsigned(_real("remainder", x)):
        return left
    zero = constant(0, y)
    crosses = ew.bitwise_and(ew.ne(left, zero), ew.ne(ew.lt(left, zero), ew.lt(y, zero)))
    return ew.where(crosses, ew.add(left, y), left)


def _truncated_remainder(x: Any, y: Any) -> Any:
    if is_integer(_real("remainder", x)):
        y = ew.where(ew.eq(y, constant(0, y)), constant(1, y), y)
    return ew.rem(x, y)


def _real(name: str, x: Any) -> Any:
    """The dtype of `x`, which must not be complex."""
    t = type_of(x)
    if is_complex(t.dtype):
        raise DtypeError(f"{name} takes real numbers; got {t.str_short(True)}.")
    return t.dtype


floor_divide = _binary(
    "floor_divide", _quotient, "Element-wise quotient, rounded down.", promote_numeric
)
remainder = _binary(
    "remainder",
    _remainder,
    "x1 - x2 · floor(x1 / x2), with the sign of x2; 0 for integers where x2 is 0.",
    promote_numeric,
)

mod = alias(remainder, "mod")


@fused(arrays=2)
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """`floor_divide` and `remainder` together."""
    x, y = broadcast(*promote_numeric(x1, x2))
    return _quotient(x, y), _remainder(x, y)


fmod = _binary("fmod", _truncated_remainder, "The remainder with the sign of x1.", promote_numeric)

# -- powers --


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 to the power x2. Integer inputs return integers; negative powers are undefined for them.

    A power that is a Python or NumPy integer preserves the dtype of x1, and raises a `TypeError` if
    it is negative and x1 is an integer, as does a concrete array of rank 0. For other negative
    powers of integers, only the low six bits of the power are used, as in JAX; such powers of 0
    are 0.
    """
    if type(x2) is int:
        return _fixed_power(x1, x2)
    if getattr(x2, "ndim", 1) == 0:
        y: Any = x2
        if isinstance(y, np.integer | np.ndarray) and y.dtype.kind in "iu":
            return _fixed_power(x1, int(y))
        if not is_inexact(type_of(x1).dtype) and _is_negative(y):
            return _fixed_power(x1, int(y))
    return _power(x1, x2)


def _is_negative(x: Any) -> bool:
    """Whether a scalar is known to be a negative integer."""
    return is_array(x) and is_integer(x.dtype) and not hasattr(x, "needed_for_shape") and int(x) < 0


pow = alias(power, "pow")


@fused(arrays=1)
def _fixed_power(x: Any, y: int) -> Any:
    t = type_of(x)
    dtype, weak = lattice_join((t.dtype, t.weak_type), (canonicalize(int), True))
    weak = weak and not is_bool(t.dtype)
    if y < 0 and is_integer(dtype):
        raise TypeError(
            f"integers cannot be raised to negative powers; got {t.str_short(True)} to the power "
            f"{y}. Make the base a float."
        )
    return ew.integer_pow(cast(x, dtype, weak), y=y)


@fused(arrays=2)
def _power(x1: Any, x2: Any) -> Any:
    x, y = promote_numeric(x1, x2)
    if is_integer(type_of(x).dtype):
        return strip_weak_type(_integer_power(*broadcast(x, *_of_six_bits(y, x2))))
    if is_integer(type_of(x2).dtype) and not type_of(x2).weak_type:
        y = x2  # exact, and without a derivative
    return ew.pow(*broadcast(x, y))


def _of_six_bits(y: Any, given: Any) -> tuple[Any, Any]:
    """Integer powers with negative ones reduced to their low bits, and a mask of nonzero powers.

    given: the powers before promotion, which can make them unsigned.
    """
    t = type_of(given)
    if not is_bool(t.dtype) and not is_unsigned(t.dtype):
        negative = ew.lt(given, constant(0, given))
        some = ew.ne(y, constant(0, y))
        return ew.where(negative, ew.bitwise_and(y, constant(63, y)), y), some
    return y, ew.ne(y, constant(0, y))


def _integer_power(x: Any, y: Any, some: Any) -> Any:
    """Repeated squaring, which wraps around on overflow. For x of 0, 0 where `some` holds."""
    zero, one = constant(0, x), constant(1, x)
    result = ew.where(ew.bitwise_and(some, ew.eq(x, zero)), zero, one)
    for _ in range(type_of(y).dtype.itemsize * 8):
        odd = ew.ne(ew.bitwise_and(y, constant(1, y)), constant(0, y))
        result = ew.where(odd, ew.mul(result, x), result)
        x, y = ew.mul(x, x), ew.shift_right_logical(y, constant(1, y))
    return result


float_power = _binary("float_power", ew.pow, "x1 to the power x2, as floats.", promote_inexact)


@fused(arrays=2)
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """log(exp(x1) + exp(x2)), without overflow."""
    x, y = broadcast(*promote_inexact(x1, x2))
    out = special_functions.logaddexp(x, y)
    return strip_weak_type(out) if is_complex(type_of(x).dtype) else out


@fused(arrays=2)
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """log2(2**x1 + 2**x2), without overflow."""
    x, y = broadcast(*promote_inexact(x1, x2))
    log2 = constant(0.6931471805599453, x)
    return ew.div(special_functions.logaddexp(ew.mul(x, log2), ew.mul(y, log2)), log2)


@fused(arrays=2)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """√(x1² + x2²), without overflow."""
    x, y = broadcast(*promote_inexact(x1, x2))
    _real("hypot", x)
    x, y = ew.abs(x), ew.abs(y)
    large, small = ew.max(x, y), ew.min(x, y)
    zero, one, inf = constant(0, x), constant(1, x), constant(float("inf"), x)
    flat = ew.eq(large, zero)
    ratio = ew.div(small, ew.where(flat, one, large))
    length = ew.mul(large, ew.sqrt(ew.add(one, ew.mul(ratio, ratio))))
    infinite = ew.bitwise_or(ew.eq(x, inf), ew.eq(y, inf))
    return ew.where(infinite, inf, ew.where(flat, large, length))


arctan2 = _binary(
    "arctan2", ew.atan2, "The angle of the point (x2, x1), in (-π, π].", promote_inexact
)

atan2 = alias(arctan2, "atan2")


@fused(arrays=2)
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """0 where x1 < 0, x2 where it is 0, 1 where x1 > 0."""
    x, y = broadcast(*promote_inexact(x1, x2))
    zero, one = constant(0, x), constant(1, x)
    steps = ew.where(ew.lt(x, zero), zero, ew.where(ew.gt(x, zero), one, y))
    return ew.where(ew.ne(x, x), x, steps)


# -- extremes; maximum and minimum propagate NaN, fmax and fmin ignore it --


maximum = _binary("maximum", ew.max, "The larger of each pair of elements; NaN if either is NaN.")
minimum = _binary("minimum", ew.min, "The smaller of each pair of elements; NaN if either is NaN.")


@fused(arrays=2)
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of each pair of elements; if one is NaN, the other."""
    x, y = broadcast(*promote(x1, x2))
    return ew.where(ew.bitwise_or(_ordered(ew.gt)(x, y), ew.ne(y, y)), x, y)


@fused(arrays=2)
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of each pair of elements; if one is NaN, the other."""
    x, y = broadcast(*promote(x1, x2))
    return ew.where(ew.bitwise_or(_ordered(ew.lt)(x, y), ew.ne(y, y)), x, y)


# -- comparison; complex numbers are compared lexicographically --


def _ordered(op: Op) -> Callable[[Any, Any], Any]:
    def compare(x: Any, y: Any) -> Any:
        if not is_complex(type_of(x).dtype):
            return op(x, y)
        tie = ew.eq(ew.real(x), ew.real(y))
        return ew.where(tie, op(ew.imag(x), ew.imag(y)), op(ew.real(x), ew.real(y)))

    return compare


equal = _binary("equal", ew.eq, "x1 == x2, element-wise.")
not_equal = _binary("not_equal", ew.ne, "x1 != x2, element-wise.")
less = _binary("less", _ordered(ew.lt), "x1 < x2, element-wise.")
less_equal = _binary("less_equal", _ordered(ew.le), "x1 <= x2, element-wise.")
greater = _binary("greater", _ordered(ew.gt), "x1 > x2, element-wise.")
greater_equal = _binary("greater_equal", _ordered(ew.ge), "x1 >= x2, element-wise.")

# -- logic: a number is true if it is nonzero --

BOOL = canonicalize(bool)


def truth(x: Any) -> Any:
    """`x` as booleans."""
    t = type_of(x)
    if is_bool(t.dtype):
        return x
    return ew.ne(x, constant(0, x)) if is_array(x) or t.ndim else cast(x, BOOL)


def _truths(*args: Any) -> list[Any]:
    return [truth(x) for x in args]


logical_and = _binary("logical_and", ew.bitwise_and, "Whether both elements are true.", _truths)
logical_or = _binary(
    "logical_or", ew.bitwise_or, "Whether at least one of the elements is true.", _truths
)
logical_xor = _binary(
    "logical_xor", ew.bitwise_xor, "Whether exactly one of the elements is true.", _truths
)


@fused(arrays=1)
def logical_not(x: ArrayLike, /) -> Array:
    """Whether the element is false."""
    return ew.bitwise_not(truth(x))


# -- bits --


bitwise_and = _binary("bitwise_and", ew.bitwise_and, "Bitwise AND.")
bitwise_or = _binary("bitwise_or", ew.bitwise_or, "Bitwise OR.")
bitwise_xor = _binary("bitwise_xor", ew.bitwise_xor, "Bitwise XOR.")


@fused(arrays=1)
def bitwise_not(x: ArrayLike, /) -> Array:
    """Bitwise NOT."""
    return ew.bitwise_not(x)


invert = alias(bitwise_not, "invert")
bitwise_invert = alias(bitwise_not, "bitwise_invert")

left_shift = _binary(
    "left_shift", ew.shift_left, "x1 with its bits shifted left by x2.", promote_numeric
)

bitwise_left_shift = alias(left_shift, "bitwise_left_shift")


@fused(arrays=2)
def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 with its bits shifted right by x2; signed integers keep their sign."""
    x, y = broadcast(*promote_numeric(x1, x2))
    unsigned = is_unsigned(type_of(x).dtype)
    return (ew.shift_right_logical if unsigned else ew.shift_right_arithmetic)(x, y)


bitwise_right_shift = alias(right_shift, "bitwise_right_shift")


@fused(arrays=1)
def bitwise_count(x: ArrayLike, /) -> Array:
    """The number of 1 bits in the absolute value, as uint8."""
    (x,) = promote_numeric(x)
    if not is_unsigned(type_of(x).dtype):
        x = ew.abs(x)
    return cast(ew.population_count(x), canonicalize("uint8"))


# -- integers --


@fused(arrays=2)
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Greatest common divisor."""
    return loops.gcd(*broadcast(*_integers("gcd", x1, x2)))


@fused(arrays=2)
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Least common multiple; 0 if either element is 0."""
    x, y = broadcast(*_integers("lcm", x1, x2))
    if not is_unsigned(type_of(x).dtype):
        x, y = ew.abs(x), ew.abs(y)
    common = loops.gcd(x, y)
    safe = ew.where(ew.eq(common, constant(0, x)), constant(1, x), common)
    return ew.mul(x, ew.div(y, safe))


def _integers(name: str, *args: Any) -> list[Any]:
    values = promote(*args)
    t = type_of(values[0])
    if not is_integer(t.dtype):
        raise ValueError(f"{name} takes integers; got {t.str_short(True)}.")
    return values


# -- choice --


def _real_operands(*args: Any) -> list[Any]:
    values = broadcast(*promote(*args))
    t = type_of(values[0])
    if is_complex(t.dtype):
        raise ValueError(
            f"clip takes real numbers; got {t.str_short(True)}. Clip the real and imaginary parts "
            "separately."
        )
    return values


@fused(arrays=3)
def _clip(x: Any, low: Any, high: Any) -> Any:
    x, low, high = _real_operands(x, low, high)
    return ew.min(ew.max(x, low), high)


@fused(arrays=2)
def _at_least(x: Any, low: Any) -> Any:
    return ew.max(*_real_operands(x, low))


@fused(arrays=2)
def _at_most(x: Any, high: Any) -> Any:
    return ew.min(*_real_operands(x, high))


@fused(arrays=1)
def _unbounded(x: Any) -> Any:
    return ew.copy(*_real_operands(x))


def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Elements clamped to the range from `min` to `max`; None leaves a side unbounded."""
    if min is not None and max is not None:
        return _clip(arr, min, max)
    if min is not None:
        return _at_least(arr, min)
    return _at_most(arr, max) if max is not None else _unbounded(arr)


@fused(arrays=1)
def positive(x: ArrayLike, /) -> Array:
    """The elements, unchanged."""
    (x,) = promote(x)
    return ew.copy(x)
