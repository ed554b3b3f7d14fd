"""The representation of floats: infinities and NaN, signs, mantissas and exponents, neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.errors import DtypeError
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.numpy.unary import toward_zero
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type
from shardwise._src.ops.create import full
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import (
    finfo,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
)
from shardwise._src.values.convert import (
    broadcast,
    broadcast_to,
    cast,
    constant,
    promote,
    promote_inexact,
    reject_out,
    strip_weak_type,
)

BOOL, INT32, FLOAT32 = np.dtype(bool), np.dtype("int32"), np.dtype("float32")

# -- classes of numbers --


def _everywhere(value: bool, x: Any) -> Any:
    return full(value, type_of(x).shape, BOOL)


def _some_part(test: Any, x: Any) -> Any:
    """`test` of a float; for a complex number, whether either part passes."""
    if is_complex(type_of(x).dtype):
        return ew.bitwise_or(test(ew.real(x)), test(ew.imag(x)))
    return test(x)


@fused(arrays=1)
def isnan(x: ArrayLike, /) -> Array:
    """Whether the element is NaN."""
    (x,) = promote(x)
    return ew.ne(x, x) if is_inexact(type_of(x).dtype) else _everywhere(False, x)


@fused(arrays=1)
def isinf(x: ArrayLike, /) -> Array:
    """Whether the element is infinite."""
    (x,) = promote(x)
    if not is_inexact(type_of(x).dtype):
        return _everywhere(False, x)
    return _some_part(lambda p: ew.eq(ew.abs(p), constant(np.inf, p)), x)


@fused(arrays=1)
def isfinite(x: ArrayLike, /) -> Array:
    """Whether the element is neither infinite nor NaN."""
    (x,) = promote(x)
    if not is_inexact(type_of(x).dtype):
        return _everywhere(True, x)
    return ew.bitwise_not(_some_part(lambda p: ew.bitwise_not(ew.is_finite(p)), x))


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether the element is +inf."""
    reject_out("isposinf", out)
    return _is_infinity(x, "isposinf", np.inf)


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether the element is -inf."""
    reject_out("isneginf", out)
    return _is_infinity(x, "isneginf", -np.inf)


@fused(arrays=1)
def _is_infinity(x: Any, name: str, value: float) -> Any:
    (x,) = promote(x)
    t = type_of(x)
    if is_complex(t.dtype):
        raise ValueError(f"{name} takes real numbers; got {t.str_short(True)}.")
    return ew.eq(x, constant(value, x)) if is_float(t.dtype) else _everywhere(False, x)


@fused(arrays=1)
def iscomplex(x: ArrayLike) -> Array:
    """Whether the imaginary part of the element is not 0."""
    (x,) = promote(x)
    if not is_complex(type_of(x).dtype):
        return _everywhere(False, x)
    part = ew.imag(x)
    return ew.ne(part, constant(0, part))


@fused(arrays=1)
def isreal(x: ArrayLike) -> Array:
    """Whether the imaginary part of the element is 0."""
    (x,) = promote(x)
    if not is_complex(type_of(x).dtype):
        return _everywhere(True, x)
    part = ew.imag(x)
    return ew.eq(part, constant(0, part))


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype of `x` is complex, regardless of its values."""
    return x is not None and is_complex(
        np.result_type(x) if isinstance(x, list | tuple) else type_of(x).dtype
    )


def isrealobj(x: Any) -> bool:
    """Whether the dtype of `x` is not complex."""
    return not iscomplexobj(x)


@fused(arrays=4)
def _nan_to_num(x: Any, nan: Any, high: Any, low: Any, largest: bool, smallest: bool) -> Any:
    (x,) = promote(x)
    t = type_of(x)
    if not is_inexact(t.dtype):
        return ew.copy(x)

    def replaced(part: Any) -> Any:
        info = finfo(type_of(part).dtype)
        part = ew.where(ew.ne(part, part), _replacement(nan, part), part)
        top = constant(float(info.max), part) if largest else _replacement(high, part)
        part = ew.where(ew.eq(part, constant(np.inf, part)), top, part)
        bottom = constant(float(info.min), part) if smallest else _replacement(low, part)
        return ew.where(ew.eq(part, constant(-np.inf, part)), bottom, part)

    if is_complex(t.dtype):
        return ew.complex(replaced(ew.real(x)), replaced(ew.imag(x)))
    return replaced(strip_weak_type(x))


def _replacement(value: Any, like: Any) -> Any:
    """A replacement with the dtype and shape of its target."""
    t = type_of(like)
    value = cast(value, t.dtype)
    return broadcast_to(value, t.shape) if type_of(value).ndim else value


@eager_jit
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """Replaces NaN and infinities by numbers: by default 0 and the largest finite values.

    copy: has no effect; arrays are immutable.
    """
    high, low = 0 if posinf is None else posinf, 0 if neginf is None else neginf
    return _nan_to_num(x, nan, high, low, posinf is None, neginf is None)


# -- bits of floats --


def _wide(x: Any) -> Any:
    """Floats of fewer than 32 bits as float32."""
    return cast(x, FLOAT32) if type_of(x).dtype.itemsize < 4 else x


def _bits(x: Any) -> tuple[Any, int, int]:
    """The bits of a float as a signed integer, and the bit widths of exponent and mantissa."""
    dtype = type_of(x).dtype
    info = finfo(dtype)
    integer = np.dtype(f"int{dtype.itemsize * 8}")
    return bitcast_convert_type(x, dtype=integer), info.nexp, info.nmant


@fused(arrays=1)
def signbit(x: ArrayLike, /) -> Array:
    """Whether the sign bit is set, including for -0.0 and NaN."""
    (x,) = promote(x)
    dtype = type_of(x).dtype
    if is_complex(dtype):
        raise DtypeError(f"signbit takes real numbers; got {type_of(x).str_short(True)}.")
    if is_bool(dtype) or is_unsigned(dtype):
        return _everywhere(False, x)
    return _negative(x)


def _negative(x: Any) -> Any:
    if is_integer(type_of(x).dtype):
        return ew.lt(x, constant(0, x))
    bits, _, _ = _bits(_wide(x))
    return ew.lt(bits, constant(0, bits))


@fused(arrays=2)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 with the sign of x2."""
    x, y = broadcast(*promote_inexact(x1, x2))
    return ew.where(ew.ne(_negative(x), _negative(y)), ew.neg(x), x)


@fused(arrays=2)
def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The next number after x1 in the direction of x2."""
    return ew.nextafter(*broadcast(*promote_inexact(x1, x2)))


@fused(arrays=1)
def spacing(x: ArrayLike, /) -> Array:
    """The distance to the adjacent number away from 0."""
    x = strip_weak_type(*promote_inexact(x))
    if is_complex(type_of(x).dtype):
        raise ValueError(f"spacing takes real numbers; got {type_of(x).str_short(True)}.")
    zero, inf = constant(0, x), constant(np.inf, x)
    step = ew.sub(ew.nextafter(x, ew.where(ew.lt(x, zero), ew.neg(inf), inf)), x)
    # The smallest number may be a subtraction's underflow: some devices flush it to 0.
    return ew.where(
        ew.eq(x, zero), constant(float(finfo(type_of(x).dtype).smallest_subnormal), x), step
    )


@fused(arrays=2)
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 · 2**x2, for integers x2."""
    t = type_of(x2)
    if not is_integer(t.dtype) and not is_bool(t.dtype):
        raise ValueError(f"ldexp takes an integer exponent; got {t.str_short(True)}.")
    (x,) = promote_inexact(x1)
    dtype = type_of(x).dtype
    x, n = broadcast(_wide(cast(x, dtype)), cast(x2, INT32))
    # Four steps, each by a normal power; more would overflow or underflow anyway.
    width = finfo(type_of(x).dtype).nexp
    limit = constant((1 << (width + 1)) - 16, n)
    n = ew.clamp(ew.neg(limit), n, limit)
    quarter = ew.div(n, constant(4, n))
    rest = ew.sub(n, ew.mul(constant(3, n), quarter))
    for step in (rest, quarter, quarter, quarter):
        x = ew.mul(x, _power_of_two(step, type_of(x).dtype))
    return cast(x, dtype)


def _power_of_two(n: Any, dtype: Any) -> Any:
    """2**n exactly, by writing the exponent bits; n must be an exponent of a normal number."""
    info = finfo(dtype)
    integer = np.dtype(f"int{dtype.itemsize * 8}")
    biased = ew.add(cast(n, integer), np.asarray(info.maxexp - 1, integer)[()])
    shifted = ew.shift_left(biased, np.asarray(info.nmant, integer)[()])
    return bitcast_convert_type(shifted, dtype=dtype)


@fused(arrays=1)
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Mantissa in ±[0.5, 1) and int32 exponent, with x = mantissa · 2**exponent."""
    (x,) = promote_inexact(x)
    dtype = type_of(x).dtype
    if is_complex(dtype):
        raise TypeError(f"frexp takes real numbers; got {type_of(x).str_short(True)}.")
    x = _wide(cast(x, dtype))
    info = finfo(type_of(x).dtype)
    tiny = ew.lt(ew.abs(x), constant(float(info.tiny), x))
    up = constant(2.0**info.nmant, x)
    normal = ew.where(tiny, ew.mul(x, up), x)
    bits, width, mantissa_width = _bits(normal)
    shift, bias = constant(mantissa_width, bits), info.maxexp - 2
    mask = constant(((1 << width) - 1) << mantissa_width, bits)
    exponent = ew.shift_right_logical(ew.bitwise_and(bits, mask), shift)
    most = constant(2 * bias + 1, bits)  # for the bits of 2**-exponent, the derivative
    field = ew.where(ew.gt(exponent, most), constant(0, bits), ew.sub(most, exponent))
    slope = bitcast_convert_type(ew.shift_left(field, shift), dtype=type_of(x).dtype)
    exponent = ew.sub(exponent, constant(bias, exponent))
    exponent = ew.where(tiny, ew.sub(exponent, constant(info.nmant, exponent)), exponent)
    half = constant(bias << mantissa_width, bits)
    rest = ew.bitwise_or(ew.bitwise_and(bits, ew.bitwise_not(mask)), half)
    mantissa = bitcast_convert_type(rest, dtype=type_of(x).dtype)
    moving = ew.mul(normal, slope)
    mantissa = ew.add(mantissa, ew.sub(moving, ew.stop_gradient(moving)))
    plain = ew.bitwise_or(ew.eq(x, constant(0, x)), ew.bitwise_not(ew.is_finite(x)))
    exponent = cast(ew.where(plain, constant(0, exponent), exponent), INT32)
    return cast(ew.where(plain, x, mantissa), dtype), exponent


def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """Fractional and integral parts, both with the sign of x."""
    reject_out("modf", out)
    return _modf(x)


@fused(arrays=1)
def _modf(x: Any) -> tuple[Any, Any]:
    (x,) = promote_inexact(x)
    whole, zero = toward_zero(x), constant(0, x)
    x, negative = ew.where(ew.eq(ew.abs(x), constant(np.inf, x)), zero, x), _negative(x)
    fraction, fixed = ew.sub(x, toward_zero(x)), ew.stop_gradient(x)
    # 0 with the sign of x, and with the derivative 1, as the fraction has.
    none = ew.where(negative, ew.neg(ew.sub(fixed, x)), ew.sub(x, fixed))
    return ew.where(ew.eq(fraction, zero), none, fraction), whole


def isscalar(element: Any) -> bool:
    """Whether it is a number, or an array of rank 0."""
    element = as_arraylike(element)
    if hasattr(element, "ndim") and not isinstance(element, np.generic):
        return element.ndim == 0
    return np.isscalar(element)
