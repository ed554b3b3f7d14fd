"""Unary universal functions: signs, rounding, exponentials, trigonometry, complex parts.

Integers and booleans become floats if the function requires it: `sin(1)` is a float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.named import alias, named
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.numpy.creation import zeros_like
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import special_functions
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import (
    finfo,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    is_unsigned,
)
from shardwise._src.values.convert import (
    as_integer,
    cast,
    constant,
    promote,
    promote_inexact,
    promote_numeric,
    reject_out,
    strip_weak_type,
)

FLOAT32 = np.dtype("float32")


def _unary(
    name: str,
    formula: Callable[[Any], Any],
    doc: str,
    promoted: Callable[[Any], list[Any]] = promote_inexact,
) -> Callable[[ArrayLike], Array]:
    """A function of a promoted operand: by default of floats or complex numbers."""

    def fun(x: ArrayLike, /) -> Array:
        return formula(*promoted(x))

    return fused(named(fun, name, doc))


def _to_base(base: float) -> Callable[[Any], Any]:
    return lambda x: ew.div(ew.log(x), strip_weak_type(constant(math.log(base), x)))


# -- signs --


negative = _unary("negative", ew.neg, "-x; not for booleans.", promote)


@fused(arrays=1)
def absolute(x: ArrayLike, /) -> Array:
    """|x|; for complex numbers, the modulus."""
    (x,) = promote(x)
    dtype = type_of(x).dtype
    return ew.copy(x) if is_bool(dtype) or is_unsigned(dtype) else ew.abs(x)


abs = alias(absolute, "abs")


@fused(arrays=1)
def fabs(x: ArrayLike, /) -> Array:
    """|x| as a float; not for complex numbers."""
    (x,) = promote_inexact(x)
    if is_complex(type_of(x).dtype):
        raise TypeError(f"fabs takes real numbers; got {type_of(x).str_short(True)}.")
    return ew.abs(x)


sign = _unary("sign", ew.sign, "-1, 0 or 1; for complex numbers, x / |x|.", promote)
square = _unary("square", ew.square, "x².", promote_numeric)
reciprocal = _unary("reciprocal", lambda x: ew.integer_pow(x, y=-1), "1 / x, as a float.")

# -- rounding: integers and booleans are unchanged --


def _is_whole(x: Any) -> bool:
    dtype = type_of(x).dtype
    return is_bool(dtype) or is_integer(dtype)


def _rounded(op: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: ew.copy(x) if _is_whole(x) else op(x)


floor = _unary("floor", _rounded(ew.floor), "The largest integer not above x.", promote)
ceil = _unary("ceil", _rounded(ew.ceil), "The smallest integer not below x.", promote)


@fused(arrays=1)
def trunc(x: ArrayLike) -> Array:
    """x without its fractional part."""
    return _rounded(toward_zero)(*promote(x))


fix = trunc


def toward_zero(x: Any) -> Any:
    return ew.where(ew.lt(x, constant(0, x)), ew.ceil(x), ew.floor(x))


@fused(arrays=1)
def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, as a float; ties round to even."""
    (v,) = promote_inexact(x)
    return _to_even(strip_weak_type(v) if _is_whole(x) else v)


def _to_even(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        parts = ew.real(x), ew.imag(x)
        return ew.complex(*[ew.round(p, rounding_method=1) for p in parts])
    return ew.round(x, rounding_method=1)


@fused(arrays=1)
def _round(x: Any, decimals: int = 0) -> Any:
    (x,) = promote(x)
    if _is_whole(x):
        if decimals < 0:
            raise NotImplementedError("rounding of integers to tens is not implemented")
        return ew.copy(x)
    if decimals == 0:
        return _to_even(x)
    t = type_of(x)
    if decimals > math.log10(float(finfo(t.dtype).max)):
        return ew.copy(x)  # beyond the precision of any number
    narrow = is_float(t.dtype) and t.dtype.itemsize < 4
    wide = cast(x, FLOAT32) if narrow else x
    factor = constant(10.0 ** math.fabs(decimals), wide)
    if decimals > 0:
        rounded = ew.div(_to_even(ew.mul(wide, factor)), factor)
    else:
        rounded = ew.mul(_to_even(ew.div(wide, factor)), factor)
    return cast(rounded, t.dtype, t.weak_type)


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """x rounded to the given number of decimals; ties round to even."""
    if out is not None:
        reject_out("round", out)
    decimals = as_integer(decimals, "round: decimals")
    return _round(a, decimals) if decimals else _round(a)


around = alias(round, "around")

# -- exponentials and logarithms --


exp = _unary("exp", ew.exp, "e to the power x.")
exp2 = _unary("exp2", ew.exp2, "2 to the power x.")
expm1 = _unary("expm1", ew.expm1, "exp(x) - 1, accurate for small x.")
log = _unary("log", ew.log, "Natural logarithm.")
log2 = _unary("log2", _to_base(2), "Logarithm to base 2.")
log10 = _unary("log10", _to_base(10), "Logarithm to base 10.")
log1p = _unary("log1p", ew.log1p, "log(1 + x), accurate for small x.")
sqrt = _unary("sqrt", ew.sqrt, "Square root.")
cbrt = _unary("cbrt", ew.cbrt, "Cube root, of real numbers.")

# -- trigonometry, in radians --


sin = _unary("sin", ew.sin, "Sine.")
cos = _unary("cos", ew.cos, "Cosine.")
tan = _unary("tan", ew.tan, "Tangent.")
arcsin = _unary("arcsin", ew.asin, "The angle in [-π/2, π/2] whose sine is x.")
arccos = _unary("arccos", ew.acos, "The angle in [0, π] whose cosine is x.")
arctan = _unary("arctan", ew.atan, "The angle in (-π/2, π/2) whose tangent is x.")


sinc = _unary(
    "sinc",
    lambda x: special_functions.sinc_derivative(ew.mul(x, constant(math.pi, x)), order=0),
    "sin(πx) / (πx), which is 1 at 0; smooth to every order.",
)
deg2rad = _unary(
    "deg2rad", lambda x: ew.mul(x, constant(math.pi / 180, x)), "Converts degrees to radians."
)
rad2deg = _unary(
    "rad2deg", lambda x: ew.mul(x, constant(180 / math.pi, x)), "Converts radians to degrees."
)

radians = alias(deg2rad, "radians")
degrees = alias(rad2deg, "degrees")
asin = alias(arcsin, "asin")
acos = alias(arccos, "acos")
atan = alias(arctan, "atan")

# -- hyperbolic functions --


sinh = _unary("sinh", ew.sinh, "Hyperbolic sine.")
cosh = _unary("cosh", ew.cosh, "Hyperbolic cosine.")
tanh = _unary("tanh", ew.tanh, "Hyperbolic tangent.")
arcsinh = _unary("arcsinh", ew.asinh, "Inverse hyperbolic sine.")
arccosh = _unary("arccosh", ew.acosh, "Inverse hyperbolic cosine; NaN below 1 for real numbers.")
arctanh = _unary("arctanh", ew.atanh, "Inverse hyperbolic tangent.")

asinh = alias(arcsinh, "asinh")
acosh = alias(arccosh, "acosh")
atanh = alias(arctanh, "atanh")


@fused(arrays=1)
def i0(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0."""
    (x,) = promote_inexact(x)
    if is_complex(type_of(x).dtype):
        raise ValueError(f"i0 takes real numbers; got {type_of(x).str_short(True)}.")
    size = ew.mul(x, ew.sign(x))  # unlike that of `abs`, its derivative at 0 is 0
    return ew.mul(ew.exp(size), special_functions.bessel_i0e(x))


# -- complex parts --


@fused(arrays=1)
def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate."""
    (x,) = promote(x)
    return ew.conj(x) if is_complex(type_of(x).dtype) else ew.copy(x)


conj = alias(conjugate, "conj")


@fused(arrays=1)
def real(val: ArrayLike, /) -> Array:
    """The real part."""
    (x,) = promote(val)
    return ew.real(x) if is_complex(type_of(x).dtype) else ew.copy(x)


@fused(arrays=1)
def _imag(val: Any) -> Any:
    (x,) = promote(val)
    return ew.imag(x)


def imag(val: ArrayLike, /) -> Array:
    """The imaginary part: zeros for real inputs."""
    t = type_of(val)
    return _imag(val) if is_complex(t.dtype) else zeros_like(check_alive(val))


@fused(arrays=1)
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The angle of a complex number, in (-π, π] radians, or in degrees if `deg`."""
    (x,) = promote(z)
    t = type_of(x)
    if is_complex(t.dtype):
        angle = ew.atan2(ew.imag(x), ew.real(x))
    else:
        (x,) = promote_inexact(x)
        angle = ew.atan2(strip_weak_type(constant(0, x)), strip_weak_type(x))
    return ew.mul(angle, constant(180 / math.pi, angle)) if deg else angle
