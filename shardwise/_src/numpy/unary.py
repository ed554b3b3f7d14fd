"""Unary universal functions: signs, rounding, exponentials, trigonometry, complex parts.

Integers and booleans become floats if the function requires it: `sin(1)` is a float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.named import named
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.numpy.creation import zeros_like
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import special_functions
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_bool, is_complex, is_float, is_integer, is_unsigned
from shardwise._src.values.convert import (
    cast,
    constant,
    promote,
    promote_inexact,
    promote_numeric,
    reject_out,
    strip_weak_type,
)

FLOAT32 = np.dtype("float32")


def _of_floats(name: str, formula: Callable[[Any], Any], doc: str) -> Callable[[ArrayLike], Array]:
    """A function whose formula requires floats or complex numbers."""

    def fun(x: ArrayLike, /) -> Array:
        return formula(*promote_inexact(x))

    return fused(named(fun, name, doc))


def _to_base(base: float) -> Callable[[Any], Any]:
    return lambda x: ew.div(ew.log(x), strip_weak_type(constant(math.log(base), x)))


# -- signs --


@fused(arrays=1)
def negative(x: ArrayLike, /) -> Array:
    """-x; not for booleans."""
    (x,) = promote(x)
    return ew.neg(x)


@fused(arrays=1)
def absolute(x: ArrayLike, /) -> Array:
    """|x|; for complex numbers, the modulus."""
    (x,) = promote(x)
    dtype = type_of(x).dtype
    return ew.copy(x) if is_bool(dtype) or is_unsigned(dtype) else ew.abs(x)


abs = absolute


@fused(arrays=1)
def fabs(x: ArrayLike, /) -> Array:
    """|x| as a float; not for complex numbers."""
    (x,) = promote_inexact(x)
    if is_complex(type_of(x).dtype):
        raise TypeError(f"fabs takes real numbers; got {type_of(x).str_short(True)}.")
    return ew.abs(x)


@fused(arrays=1)
def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1; for complex numbers, x / |x|."""
    (x,) = promote(x)
    return ew.sign(x)


@fused(arrays=1)
def square(x: ArrayLike, /) -> Array:
    """x²."""
    (x,) = promote_numeric(x)
    return ew.square(x)


reciprocal = _of_floats("reciprocal", lambda x: ew.integer_pow(x, y=-1), "1 / x, as a float.")

# -- rounding: integers and booleans are unchanged --


def _is_whole(x: Any) -> bool:
    dtype = type_of(x).dtype
    return is_bool(dtype) or is_integer(dtype)


@fused(arrays=1)
def floor(x: ArrayLike, /) -> Array:
    """The largest integer not above x."""
    (x,) = promote(x)
    return ew.copy(x) if _is_whole(x) else ew.floor(x)


@fused(arrays=1)
def ceil(x: ArrayLike, /) -> Array:
    """The smallest integer not below x."""
    (x,) = promote(x)
    return ew.copy(x) if _is_whole(x) else ew.ceil(x)


@fused(arrays=1)
def trunc(x: ArrayLike) -> Array:
    """x without its fractional part."""
    (x,) = promote(x)
    return ew.copy(x) if _is_whole(x) else toward_zero(x)


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
    return _round(a, decimals) if decimals else _round(a)


around = round

# -- exponentials and logarithms --


exp = _of_floats("exp", ew.exp, "e to the power x.")
exp2 = _of_floats("exp2", ew.exp2, "2 to the power x.")
expm1 = _of_floats("expm1", ew.expm1, "exp(x) - 1, accurate for small x.")
log = _of_floats("log", ew.log, "Natural logarithm.")
log2 = _of_floats("log2", _to_base(2), "Logarithm to base 2.")
log10 = _of_floats("log10", _to_base(10), "Logarithm to base 10.")
log1p = _of_floats("log1p", ew.log1p, "log(1 + x), accurate for small x.")
sqrt = _of_floats("sqrt", ew.sqrt, "Square root.")
cbrt = _of_floats("cbrt", ew.cbrt, "Cube root, of real numbers.")

# -- trigonometry, in radians --


sin = _of_floats("sin", ew.sin, "Sine.")
cos = _of_floats("cos", ew.cos, "Cosine.")
tan = _of_floats("tan", ew.tan, "Tangent.")
arcsin = _of_floats("arcsin", ew.asin, "The angle in [-π/2, π/2] whose sine is x.")
arccos = _of_floats("arccos", ew.acos, "The angle in [0, π] whose cosine is x.")
arctan = _of_floats("arctan", ew.atan, "The angle in (-π/2, π/2) whose tangent is x.")


@fused(arrays=1)
def sinc(x: ArrayLike, /) -> Array:
    """sin(πx) / (πx), which is 1 at 0; smooth to every order."""
    (x,) = promote_inexact(x)
    return special_functions.sinc_derivative(ew.mul(x, constant(math.pi, x)), order=0)


deg2rad = _of_floats(
    "deg2rad", lambda x: ew.mul(x, constant(math.pi / 180, x)), "Converts degrees to radians."
)
rad2deg = _of_floats(
    "rad2deg", lambda x: ew.mul(x, constant(180 / math.pi, x)), "Converts radians to degrees."
)

radians, degrees = deg2rad, rad2deg
asin, acos, atan = arcsin, arccos, arctan

# -- hyperbolic functions --


sinh = _of_floats("sinh", ew.sinh, "Hyperbolic sine.")
cosh = _of_floats("cosh", ew.cosh, "Hyperbolic cosine.")
tanh = _of_floats("tanh", ew.tanh, "Hyperbolic tangent.")
arcsinh = _of_floats("arcsinh", ew.asinh, "Inverse hyperbolic sine.")
arccosh = _of_floats(
    "arccosh", ew.acosh, "Inverse hyperbolic cosine; NaN below 1 for real numbers."
)
arctanh = _of_floats("arctanh", ew.atanh, "Inverse hyperbolic tangent.")

asinh, acosh, atanh = arcsinh, arccosh, arctanh


@fused(arrays=1)
def i0(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0."""
    (x,) = promote_inexact(x)
    if is_complex(type_of(x).dtype):
        raise ValueError(f"i0 takes real numbers; got {type_of(x).str_short(True)}.")
    return ew.mul(ew.exp(ew.abs(x)), special_functions.bessel_i0e(x))


# -- complex parts --


@fused(arrays=1)
def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate."""
    (x,) = promote(x)
    return ew.conj(x) if is_complex(type_of(x).dtype) else ew.copy(x)


conj = conjugate


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
