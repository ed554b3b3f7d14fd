"""Arithmetic and elementary functions, one line each.

In the rules `t` is the tangent, `ct` the cotangent and `out` the result. The names are those of
`jax.lax`; some are also Python's (`abs`, `max`, `round`, …), which this module does not use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import (
    ANY,
    BOOL,
    COMPLEX,
    FLOATING,
    INEXACT,
    MOVABLE,
    NUMERIC,
    REAL,
    Domain,
    add,
    binary,
    common_shape,
    lit,
    operand,
    unary,
)
from shardwise._src.ops.logical import bitwise_and as bitwise_and
from shardwise._src.ops.logical import bitwise_not as bitwise_not
from shardwise._src.ops.logical import bitwise_or as bitwise_or
from shardwise._src.ops.logical import bitwise_xor as bitwise_xor
from shardwise._src.ops.logical import clamp as clamp
from shardwise._src.ops.logical import clz as clz
from shardwise._src.ops.logical import eq as eq
from shardwise._src.ops.logical import ge as ge
from shardwise._src.ops.logical import gt as gt
from shardwise._src.ops.logical import le as le
from shardwise._src.ops.logical import lt as lt
from shardwise._src.ops.logical import ne as ne
from shardwise._src.ops.logical import population_count as population_count
from shardwise._src.ops.logical import select_n as select_n
from shardwise._src.ops.logical import shift_left as shift_left
from shardwise._src.ops.logical import shift_right_arithmetic as shift_right_arithmetic
from shardwise._src.ops.logical import shift_right_logical as shift_right_logical
from shardwise._src.ops.logical import where as where
from shardwise._src.ops.rules import same_value
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dtypes import (
    complex_dtype,
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    is_unsigned,
    real_dtype,
)

ABSOLUTE: Domain = ("signed or complex", lambda d: not is_bool(d) and not is_unsigned(d))
REAL_PARTS: Domain = ("float32 or float64", lambda d: d in (np.float32, np.float64))
CONJUGATED: Domain = ("floating or complex", lambda d: is_complex(d) or REAL_PARTS[1](d))

# -- arithmetic --

neg = unary(
    "neg",
    NUMERIC,
    hlo="negate",
    jvp="linear",
    transpose=lambda ct, x: neg(ct),
    elements=Elements.CONVERTED,
)
sub = binary(
    "sub",
    NUMERIC,
    hlo="subtract",
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: neg(t)),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: neg(ct)),
)
mul = binary(
    "mul",
    ANY,
    hlo="multiply",
    jvp=(lambda t, x, y, out: mul(t, y), lambda t, x, y, out: mul(x, t)),
    transpose=(lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)),
    bilinear=True,
)
div = binary(
    "div",
    NUMERIC,
    hlo="divide",
    jvp=(lambda t, x, y, out: div(t, y), lambda t, x, y, out: mul(div(neg(out), y), t)),
    transpose=(lambda ct, x, y: div(ct, y), None),
    divisor=1,
)
rem = binary(  # the sign is that of x; x - y * trunc(x / y)
    "rem",
    REAL,
    hlo="remainder",
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: neg(mul(t, _truncated(div(x, y))))),
    divisor=1,
)
square = unary(
    "square",
    NUMERIC,
    lower=lambda op, e, ins, outs, x: e.apply("multiply", ins[0], x, x),
    jvp=lambda t, x, out: mul(t, mul(lit(2, x), x)),
)
one_minus_square = unary(
    "one_minus_square",
    NUMERIC,
    lower=lambda op, e, ins, outs, x: e.via(_one_minus_square, ins, x)[0],
    jvp=lambda t, x, out: mul(t, mul(lit(-2, x), x)),
)


def _one_minus_square(x: Any) -> Any:
    return mul(add(lit(1, x), x), sub(lit(1, x), x))


def _truncated(x: Any) -> Any:
    return mul(sign(x), floor(abs(x)))


# -- maximum and minimum; equal elements share the tangent --
# A NaN counts as both. Complex numbers are ordered lexicographically; of two NaNs the first wins.


def complex_extremum(e: Any, t: ArrayType, x: str, y: str, direction: str) -> str:
    """The names of two complex values of type `t` to that of the larger one; "LT": smaller."""
    part, flags = t.update(dtype=real_dtype(t.dtype)), t.update(dtype=BOOL)
    (rx, ry), (ix, iy) = [
        [e.let(f"stablehlo.{which} {z} : ({e.ty(t)}) -> {e.ty(part)}") for z in (x, y)]
        for which in ("real", "imag")
    ]
    tie = e.compare("EQ", rx, ry, part)
    by_imag, by_real = e.compare(direction, ix, iy, part), e.compare(direction, rx, ry, part)
    pred = e.select(tie, by_imag, by_real, flags)
    x_nan, y_nan = [
        e.apply("or", flags, e.compare("NE", re, re, part), e.compare("NE", im, im, part))
        for re, im in ((rx, ix), (ry, iy))
    ]
    pred = e.apply("and", flags, e.apply("not", flags, y_nan), pred)
    return e.select(e.apply("or", flags, x_nan, pred), x, y, t)


def _extremum(name: str, hlo: str, direction: str) -> Op:
    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> str:
        (out,) = outs
        x, y = operand(e, x, ins[0], out), operand(e, y, ins[1], out)
        if not is_complex(out.dtype):
            return e.apply(hlo, out, x, y)
        return complex_extremum(e, out, x, y, direction)

    return binary(
        name,
        ANY,
        lower=lower,
        jvp=(
            lambda t, x, y, out: mul(t, _share(x, y, out)),
            lambda t, x, y, out: mul(t, _share(y, x, out)),
        ),
    )


def _share(x: Any, y: Any, out: Any) -> Any:
    """1 where x was selected, 0 where y was, 0.5 where they are equal."""
    one, two = lit(1, out), lit(2, out)
    return div(where(eq(x, out), one, lit(0, out)), where(eq(y, out), two, one))


max = _extremum("max", "maximum", "GT")
min = _extremum("min", "minimum", "LT")

# -- sign, magnitude, neighbors --


def _sign_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    if is_unsigned(t.dtype):
        return e.apply("minimum", t, x, e.constant(1, t))
    return e.apply("sign", t, x)


def _sign_tangent(t: Any, x: Any, out: Any) -> Any:
    """Zero for real x. A complex sign x / |x| rotates with the component of t orthogonal to x."""
    if not is_complex(type_of(x).dtype):
        return None
    across = imag(mul(conj(out), t))
    return mul(out, complex(lit(0, across), div(across, abs(x))))


sign = unary("sign", NUMERIC, lower=_sign_lower, jvp=_sign_tangent)


def _abs_tangent(t: Any, x: Any, out: Any) -> Any:
    if not is_complex(type_of(x).dtype):
        return where(ge(x, lit(0, x)), t, neg(t))
    return real(mul(t, conj(sign(x))))


abs = unary("abs", ABSOLUTE, dtype=real_dtype, jvp=_abs_tangent, elements=Elements.CONVERTED)
nextafter = binary("nextafter", FLOATING, hlo="chlo.next_after", jvp=(lambda t, x, y, out: t, None))

# -- rounding --


def _round_type(op: Op, x: ArrayType, *, rounding_method: int = 0) -> ArrayType:
    if not FLOATING[1](x.dtype):
        raise TypeError(f"[round] takes floating operands; got {join_types((x,))}.")
    if rounding_method not in (0, 1):
        raise ValueError(
            "[round] rounding_method must be 0 (halves away from zero) or 1 (halves to even); got "
            f"{rounding_method!r}."
        )
    return x


def _round_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, rounding_method: int = 0) -> str:
    ending = "even" if rounding_method == 1 else "afz"
    return e.let(f"stablehlo.round_nearest_{ending} {x} : {e.ty(ins[0])}")


floor = unary("floor", FLOATING, jvp="zero")
ceil = unary("ceil", FLOATING, jvp="zero")
round = unary("round", FLOATING, jvp="zero", type_rule=_round_type, lower=_round_lower)
is_finite = unary("is_finite", FLOATING, dtype=lambda d: BOOL, jvp="zero")

# -- exponentials and logarithms --


def _exp2_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    return e.apply("exponential", t, e.apply("multiply", t, x, e.constant(math.log(2), t)))


def _logistic_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,), one = ins, e.constant(1, ins[0])
    power = e.apply("exponential", t, e.apply("negate", t, x))
    return e.apply("divide", t, one, e.apply("add", t, one, power))


exp = unary("exp", INEXACT, hlo="exponential", jvp=lambda t, x, out: mul(t, out))
exp2 = unary(
    "exp2",
    INEXACT,
    lower=_exp2_lower,
    jvp=lambda t, x, out: mul(t, mul(lit(math.log(2), out), out)),
)
expm1 = unary(
    "expm1",
    INEXACT,
    hlo="exponential_minus_one",
    jvp=lambda t, x, out: mul(t, add(out, lit(1, out))),
)
log = unary("log", INEXACT, jvp=lambda t, x, out: div(t, x))
log1p = unary(
    "log1p",
    INEXACT,
    lower=lambda op, e, ins, outs, x: e.log1p(x, ins[0]),
    jvp=lambda t, x, out: div(t, add(x, lit(1, x))),
)
logistic = unary(
    "logistic",
    INEXACT,
    lower=_logistic_lower,
    jvp=lambda t, x, out: mul(t, mul(out, sub(lit(1, out), out))),
)

# -- powers and roots --


def _pow_type(op: Op, x: ArrayType, y: ArrayType) -> ArrayType:
    fits = is_inexact(x.dtype) and (y.dtype == x.dtype or is_integer(y.dtype))
    if not fits:
        raise TypeError(
            "[pow] takes a floating or complex base, and an exponent of its dtype or integer; "
            f"got {join_types((x, y))}. For integer bases use integer_pow."
        )
    return array_type(common_shape("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)


def _pow_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> str:
    out, t = outs[0], ins[1]
    y, t = e.cast(y, t, out.dtype), t.update(dtype=out.dtype)
    return e.apply("power", out, operand(e, x, ins[0], out), operand(e, y, t, out))


def _pow_tangent_base(t: Any, x: Any, y: Any, out: Any) -> Any:
    """y · x^(y-1); if both are 0 the base does not matter, but must not produce NaN."""
    both = bitwise_and(eq(x, lit(0, x)), eq(y, lit(0, y)))
    base = where(both, lit(1, x), x)
    factor = convert_element_type(y, dtype=type_of(x).dtype)
    return mul(t, mul(factor, pow(base, sub(y, lit(1, y)))))


def _pow_tangent_exponent(t: Any, x: Any, y: Any, out: Any) -> Any:
    """out · log x, with 0 for x = 0."""
    return mul(t, mul(log(where(eq(x, lit(0, x)), lit(1, x), x)), out))


pow = binary(
    "pow",
    ANY,
    type_rule=_pow_type,
    lower=_pow_lower,
    jvp=(_pow_tangent_base, _pow_tangent_exponent),
)


def _integer_pow_type(op: Op, x: ArrayType, *, y: int) -> ArrayType:
    if is_bool(x.dtype) or (y < 0 and is_integer(x.dtype)):
        raise TypeError(
            f"[integer_pow] takes numbers, and integers to powers of at least 0; got "
            f"{join_types((x,))} to the power {y}."
        )
    return array_type(x.shape, x.dtype, x.weak_type)


def _integer_pow_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, y: int) -> str:
    """By repeated squaring."""
    (t,), result, left = ins, "", -y if y < 0 else y
    while left:
        if left & 1:
            result = e.apply("multiply", t, result, x) if result else x
        left >>= 1
        if left:
            x = e.apply("multiply", t, x, x)
    one = e.constant(1, t)
    return e.apply("divide", t, one, result) if y < 0 else result or one


integer_pow = unary(
    "integer_pow",
    NUMERIC,
    type_rule=_integer_pow_type,
    lower=_integer_pow_lower,
    jvp=lambda t, x, out, *, y: None if y == 0 else mul(t, mul(lit(y, x), integer_pow(x, y=y - 1))),
)
sqrt = unary("sqrt", INEXACT, jvp=lambda t, x, out: mul(t, div(lit(0.5, out), out)))
rsqrt = unary("rsqrt", INEXACT, jvp=lambda t, x, out: mul(t, mul(lit(-0.5, x), div(out, x))))
cbrt = unary("cbrt", FLOATING, jvp=lambda t, x, out: div(mul(t, lit(1 / 3, x)), mul(out, out)))

# -- trigonometry --


def _over_circle(x: Any) -> Any:
    """1 / √(1 - x²)."""
    return rsqrt(mul(sub(lit(1, x), x), add(lit(1, x), x)))


sin = unary("sin", INEXACT, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))
cos = unary("cos", INEXACT, hlo="cosine", jvp=lambda t, x, out: neg(mul(t, sin(x))))
tan = unary("tan", INEXACT, jvp=lambda t, x, out: mul(t, add(lit(1, out), mul(out, out))))
asin = unary("asin", INEXACT, hlo="chlo.asin", jvp=lambda t, x, out: mul(t, _over_circle(x)))
acos = unary("acos", INEXACT, hlo="chlo.acos", jvp=lambda t, x, out: neg(mul(t, _over_circle(x))))
atan = unary(
    "atan", INEXACT, hlo="chlo.atan", jvp=lambda t, x, out: div(t, add(lit(1, x), mul(x, x)))
)
atan2 = binary(
    "atan2",
    INEXACT,
    jvp=(
        lambda t, x, y, out: mul(t, div(y, add(mul(x, x), mul(y, y)))),
        lambda t, x, y, out: mul(t, div(neg(x), add(mul(x, x), mul(y, y)))),
    ),
)

# -- hyperbolic functions --

sinh = unary("sinh", INEXACT, hlo="chlo.sinh", jvp=lambda t, x, out: mul(t, cosh(x)))
cosh = unary("cosh", INEXACT, hlo="chlo.cosh", jvp=lambda t, x, out: mul(t, sinh(x)))
tanh = unary(
    "tanh", INEXACT, jvp=lambda t, x, out: mul(t, mul(add(lit(1, out), out), sub(lit(1, out), out)))
)
asinh = unary(
    "asinh",
    INEXACT,
    hlo="chlo.asinh",
    jvp=lambda t, x, out: mul(t, rsqrt(add(mul(x, x), lit(1, x)))),
)
acosh = unary(
    "acosh",
    INEXACT,
    hlo="chlo.acosh",
    jvp=lambda t, x, out: mul(t, mul(rsqrt(sub(x, lit(1, x))), rsqrt(add(x, lit(1, x))))),
)
atanh = unary(
    "atanh",
    INEXACT,
    hlo="chlo.atanh",
    jvp=lambda t, x, out: div(t, mul(sub(lit(1, x), x), add(lit(1, x), x))),
)

# -- complex numbers; cotangents pair with tangents without conjugation --


def _conj_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    t, out = e.ty(ins[0]), e.ty(outs[0])
    part_type = ins[0].update(dtype=real_dtype(ins[0].dtype))
    if not is_complex(ins[0].dtype):
        return e.let(f"stablehlo.complex {x}, {e.constant(0, part_type)} : {out}")
    part = e.ty(part_type)
    re = e.let(f"stablehlo.real {x} : ({t}) -> {part}")
    im = e.let(f"stablehlo.imag {x} : ({t}) -> {part}")
    return e.let(f"stablehlo.complex {re}, {e.let(f'stablehlo.negate {im} : {part}')} : {out}")


def _complex_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> str:
    wide = outs[0].update(dtype=ins[0].dtype)
    x, y = operand(e, x, ins[0], wide), operand(e, y, ins[1], wide)
    return e.let(f"stablehlo.complex {x}, {y} : {e.ty(outs[0])}")


real = unary(
    "real",
    COMPLEX,
    dtype=real_dtype,
    jvp="linear",
    elements=Elements.CONVERTED,
    transpose=lambda ct, x: complex(ct, lit(0, ct)),
)
imag = unary(
    "imag",
    COMPLEX,
    dtype=real_dtype,
    jvp="linear",
    elements=Elements.CONVERTED,
    transpose=lambda ct, x: complex(lit(0, ct), neg(ct)),
)
conj = unary(
    "conj",
    CONJUGATED,
    dtype=complex_dtype,
    lower=_conj_lower,
    jvp="linear",
    transpose=lambda ct, x: conj(ct) if is_complex(x.aval.dtype) else real(ct),
)
complex = binary(
    "complex",
    REAL_PARTS,
    dtype=complex_dtype,
    lower=_complex_lower,
    jvp=(lambda t, x, y, out: complex(t, lit(0, t)), lambda t, x, y, out: complex(lit(0, t), t)),
    transpose=(lambda ct, x, y: real(ct), lambda ct, x, y: neg(imag(ct))),
)

# -- identities --


stop_gradient = unary(
    "stop_gradient", MOVABLE, lower=same_value, jvp="zero", elements=Elements.MOVED
)
todense = unary(  # marks where `sparsify` must return a dense array
    "todense",
    ANY,
    lower=same_value,
    jvp="linear",
    transpose=lambda ct, x: ct,
    elements=Elements.MOVED,
)
copy = unary(
    "copy",
    MOVABLE,
    lower=same_value,
    jvp="linear",
    transpose=lambda ct, x: ct,
    elements=Elements.MOVED,
)
