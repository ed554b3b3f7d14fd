"""Functions of each element, or of each pair of elements.

Operands are arrays, NumPy arrays or scalars of one dtype and one shape, in which sizes of 1
broadcast. Scalars combine with every shape, and a Python scalar takes the dtype of the other
operand if it is of the same kind. The functions of `shardwise.numpy` promote and broadcast any
ranks.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from shardwise._src.arrays import array as arrays
from shardwise._src.base.lazy import public
from shardwise._src.base.named import named
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
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


class Unary(Protocol):
    def __call__(self, x: ArrayLike) -> Array: ...


class Binary(Protocol):
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array: ...


class Approximated(Protocol):
    def __call__(self, x: ArrayLike, *, accuracy: Accuracy = None) -> Array: ...


def _unary(name: str, op: Op, doc: str) -> Unary:
    def fun(x: ArrayLike) -> Array:
        return op(x)

    return named(fun, name, doc)


def _binary(name: str, op: Op, doc: str) -> Binary:
    def fun(x: ArrayLike, y: ArrayLike) -> Array:
        return op(*alike(x, y))

    return named(fun, name, doc)


def _approximated(name: str, formula: Callable[[Any], Any], doc: str) -> Approximated:
    """A function of which XLA could have several implementations."""

    def fun(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
        if accuracy is not None:
            check_accuracy(accuracy, name)
        return formula(x)

    return named(fun, name, doc)


# -- arithmetic --


neg = _unary("neg", ew.neg, "-x.")
sign = _unary("sign", ew.sign, "-1, 0 or 1 by the sign; x / |x| for complex numbers.")
abs = _unary("abs", ew.abs, "Absolute value.")
square = _unary("square", ew.square, "x * x.")
one_minus_square = _unary(
    "one_minus_square",
    ew.one_minus_square,
    "1 - x * x, accurate near 1 and -1, with a derivative accurate near 0.",
)
add = _binary("add", ew.add, "x + y.")
sub = _binary("sub", ew.sub, "x - y.")


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


div = _binary("div", ew.div, "x / y; integers are truncated towards zero.")
rem = _binary("rem", ew.rem, "Remainder of x / y, with the sign of x.")
max = _binary("max", ew.max, "The larger of each pair; NaN where either is.")
min = _binary("min", ew.min, "The smaller of each pair; NaN where either is.")


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The next representable number after x1 in the direction of x2."""
    return ew.nextafter(*alike(x1, x2))


# -- rounding --


floor = _unary("floor", ew.floor, "The largest integer not greater than x.")
ceil = _unary("ceil", ew.ceil, "The smallest integer not less than x.")
is_finite = _unary("is_finite", ew.is_finite, "Whether each element is neither infinite nor NaN.")

# -- exponentials, powers and roots --


@fused(arrays=1)
def _log2(x: Any) -> Any:
    out = ew.log(x)
    return ew.div(out, lit(math.log(2), out))


exp = _approximated("exp", ew.exp, "e to the power x.")
exp2 = _approximated("exp2", ew.exp2, "2 to the power x.")
expm1 = _approximated("expm1", ew.expm1, "exp(x) - 1, accurate for small x.")
log = _approximated("log", ew.log, "Natural logarithm.")
log2 = _approximated("log2", _log2, "Logarithm to base 2.")
log1p = _approximated("log1p", ew.log1p, "log(1 + x), accurate for small x.")
logistic = _approximated("logistic", ew.logistic, "1 / (1 + exp(-x)).")
pow = _binary("pow", ew.pow, "x to the power y.")
sqrt = _approximated("sqrt", ew.sqrt, "Square root.")
rsqrt = _approximated("rsqrt", ew.rsqrt, "1 / sqrt(x).")
cbrt = _approximated("cbrt", ew.cbrt, "Cube root.")

# -- trigonometry, in radians --


sin = _approximated("sin", ew.sin, "Sine.")
cos = _approximated("cos", ew.cos, "Cosine.")
tan = _approximated("tan", ew.tan, "Tangent.")
asin = _unary("asin", ew.asin, "Arc sine.")
acos = _unary("acos", ew.acos, "Arc cosine.")
atan = _unary("atan", ew.atan, "Arc tangent.")
atan2 = _binary("atan2", ew.atan2, "Angle of the point (y, x).")
sinh = _unary("sinh", ew.sinh, "Hyperbolic sine.")
cosh = _unary("cosh", ew.cosh, "Hyperbolic cosine.")
tanh = _approximated("tanh", ew.tanh, "Hyperbolic tangent.")
asinh = _unary("asinh", ew.asinh, "Inverse of sinh.")
acosh = _unary("acosh", ew.acosh, "Inverse of cosh.")
atanh = _unary("atanh", ew.atanh, "Inverse of tanh.")

# -- complex numbers --


real = _unary("real", ew.real, "Real part.")
imag = _unary("imag", ew.imag, "Imaginary part.")
conj = _unary("conj", ew.conj, "Complex conjugate; a real operand becomes complex.")
complex = _binary("complex", ew.complex, "x + iy.")

# -- comparisons --


eq = _binary("eq", ew.eq, "x == y.")
ne = _binary("ne", ew.ne, "x != y.")
lt = _binary("lt", ew.lt, "x < y.")
le = _binary("le", ew.le, "x <= y.")
gt = _binary("gt", ew.gt, "x > y.")
ge = _binary("ge", ew.ge, "x >= y.")

# -- bits --


bitwise_not = _unary("bitwise_not", ew.bitwise_not, "All bits flipped.")
bitwise_and = _binary("bitwise_and", ew.bitwise_and, "Bits set in both.")
bitwise_or = _binary("bitwise_or", ew.bitwise_or, "Bits set in either.")
bitwise_xor = _binary("bitwise_xor", ew.bitwise_xor, "Bits set in exactly one.")
population_count = _unary("population_count", ew.population_count, "The number of set bits.")
clz = _unary("clz", ew.clz, "The number of leading zero bits.")
shift_left = _binary("shift_left", ew.shift_left, "x shifted by y bits to the left.")
shift_right_arithmetic = _binary(
    "shift_right_arithmetic",
    ew.shift_right_arithmetic,
    "x shifted by y bits to the right, with the sign bit replicated.",
)
shift_right_logical = _binary(
    "shift_right_logical",
    ew.shift_right_logical,
    "x shifted by y bits to the right, filled with zeros.",
)

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
        listed = ", ".join(type_of(c).str_short(True) for c in cases)
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
