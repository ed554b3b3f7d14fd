"""Special functions: CHLO's, one line each, and the modified Bessel function i0e.

The incomplete gamma and beta functions, which need loops, are in `incomplete`.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import (
    abs,
    add,
    complex,
    cos,
    div,
    eq,
    exp,
    gt,
    imag,
    le,
    log1p,
    max,
    mul,
    ne,
    neg,
    real,
    rem,
    rsqrt,
    sign,
    sin,
    square,
    sub,
    where,
)
from shardwise._src.ops.families import FLOATING, INEXACT, binary, lit, lowered_by, unary
from shardwise._src.types.dtypes import is_complex

FLOAT32 = np.dtype("float32")


def no_derivative(name: str, operand: str) -> Any:
    """A jvp rule for an operand whose derivative is not implemented."""

    def rule(*args: Any, **params: Any) -> NoReturn:
        raise NotImplementedError(
            f"[{name}] has no derivative with respect to {operand}. Use stop_gradient on it if it "
            "is a constant."
        )

    return rule


def at_least_float32(fun: Any) -> Any:
    """`fun` over ops for every float: low-precision operands are computed in float32."""

    def wide(*args: Any) -> Any:
        dtype = type_of(args[0]).dtype
        if dtype.itemsize >= 4:
            return fun(*args)
        out = fun(*[convert_element_type(a, dtype=FLOAT32) for a in args])
        return convert_element_type(out, dtype=dtype)

    wide.__name__ = fun.__name__
    return wide


# -- error functions --

erf = unary("erf", FLOATING, hlo="chlo.erf", jvp=lambda t, x, out: mul(t, _bell(x)))
erfc = unary("erfc", FLOATING, hlo="chlo.erfc", jvp=lambda t, x, out: neg(mul(t, _bell(x))))
erf_inv = unary(
    "erf_inv",
    FLOATING,
    hlo="chlo.erf_inv",
    jvp=lambda t, x, out: mul(t, mul(lit(math.sqrt(math.pi) / 2, x), exp(square(out)))),
)


def _bell(x: Any) -> Any:
    """The derivative of erf."""
    return mul(lit(2 / math.sqrt(math.pi), x), exp(neg(square(x))))


# -- gamma and zeta functions --

lgamma = unary("lgamma", FLOATING, hlo="chlo.lgamma", jvp=lambda t, x, out: mul(t, digamma(x)))
digamma = unary(
    "digamma", FLOATING, hlo="chlo.digamma", jvp=lambda t, x, out: mul(t, polygamma(lit(1, x), x))
)
polygamma = binary(
    "polygamma",
    FLOATING,
    hlo="chlo.polygamma",
    jvp=(
        no_derivative("polygamma", "its order"),
        lambda t, m, x, out: mul(t, polygamma(add(m, lit(1, m)), x)),
    ),
)
zeta = binary(
    "zeta",
    FLOATING,
    hlo="chlo.zeta",
    jvp=(
        no_derivative("zeta", "its exponent"),
        lambda t, x, q, out: mul(t, neg(mul(x, zeta(add(x, lit(1, x)), q)))),
    ),
)

# -- logaddexp: log(exp x + exp y) without overflow --


def _logaddexp(x: Any, y: Any) -> Any:
    top, delta = max(x, y), sub(x, y)
    if is_complex(type_of(x).dtype):
        return _principal(add(top, log1p(exp(where(eq(top, x), neg(delta), delta)))))
    # If both are the same infinity, delta is NaN and the sum is right.
    return where(ne(delta, delta), add(x, y), add(top, log1p(exp(neg(abs(delta))))))


def _principal(z: Any) -> Any:
    """The imaginary part wrapped to (-π, π]."""
    turn, half = lit(2 * math.pi, real(z)), lit(math.pi, real(z))
    wrapped = sub(half, rem(sub(half, imag(z)), turn))
    return complex(real(z), where(gt(wrapped, half), sub(wrapped, turn), wrapped))


def _share_of_sum(t: Any, x: Any, out: Any) -> Any:
    """exp(x - out), and one half each if both operands are infinite."""
    share = exp(sub(x, out))
    return mul(t, where(ne(share, share), where(eq(x, x), lit(0.5, x), x), share))


logaddexp = binary(
    "logaddexp",
    INEXACT,
    lower=lowered_by(_logaddexp),
    jvp=(
        lambda t, x, y, out: _share_of_sum(t, x, out),
        lambda t, x, y, out: _share_of_sum(t, y, out),
    ),
)

# -- sinc_derivative: the derivative of the given order of sin(x) / x --


def _sinc(x: Any, *, order: int) -> Any:
    """Differentiating x f = sin x gives x fₙ + n fₙ₋₁ = sin⁽ⁿ⁾ x."""
    flat = eq(x, lit(0, x))
    safe = where(flat, lit(1, x), x)
    s, c = sin(safe), cos(safe)
    value = div(s, safe)
    for n in range(1, order + 1):
        turned = (s, c, neg(s), neg(c))[n % 4]
        value = div(sub(turned, mul(lit(n, x), value)), safe)
    at_zero = 0.0 if order % 2 else (-1) ** (order // 2) / (order + 1)
    return where(flat, lit(at_zero, x), value)


sinc_derivative = unary(
    "sinc_derivative",
    INEXACT,
    lower=lowered_by(_sinc),
    jvp=lambda t, x, out, *, order: mul(t, sinc_derivative(x, order=order + 1)),
)

# -- modified Bessel functions of the first kind, scaled by exp(-|x|) --

# Chebyshev coefficients of i0e on [0, 8], in x / 4 - 1, and of √x·i0e on [8, ∞), in 16 / x - 1,
# interpolated from 40-digit values.
_I0E_NEAR = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.7268262914415555e-11,
    2.955052663129625e-12,
    -4.856446783110493e-13,
    7.67618549846838e-14,
    -1.1685332865345506e-14,
    1.7153911715225191e-15,
    -2.4312698460190526e-16,
    3.329942063880425e-17,
    -4.3447706395547665e-18,
)
_I0E_FAR = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383665e-13,
    3.852778382742146e-13,
    1.5400862175214194e-14,
    -4.1505693472873724e-14,
    -9.554846698826346e-15,
    3.811680669355557e-15,
    1.772560133044269e-15,
    -3.425485619612872e-16,
    -2.8276239801126035e-16,
    3.4612228592379905e-17,
    4.465621415504806e-17,
    -4.830504064929991e-18,
    -7.233180856778778e-18,
)


def _chebyshev(coefficients: tuple[float, ...], x: Any) -> Any:
    """The sum of c_k T_k(x), by Clenshaw's recurrence; terms below the precision are omitted."""
    least = np.finfo(type_of(x).dtype).eps / 64
    used = [c for c in coefficients if math.fabs(c) > least]
    two, ahead, behind = mul(x, lit(2, x)), mul(x, lit(0, x)), lit(0, x)
    for c in reversed(used[1:]):
        ahead, behind = add(sub(mul(two, ahead), behind), lit(c, x)), ahead
    return add(sub(mul(x, ahead), behind), lit(used[0], x))


@at_least_float32
def _i0e(x: Any) -> Any:
    x = abs(x)
    near = _chebyshev(_I0E_NEAR, sub(mul(x, lit(0.25, x)), lit(1, x)))
    beyond = where(le(x, lit(8, x)), lit(8, x), x)
    far = mul(_chebyshev(_I0E_FAR, sub(div(lit(16, x), beyond), lit(1, x))), rsqrt(beyond))
    return where(le(x, lit(8, x)), near, far)


def _i1e_tangent(t: Any, x: Any, out: Any) -> Any:
    """i0e - out · (sign x + 1 / x), which tends to 1/2 at 0."""
    flat = eq(x, lit(0, x))
    safe = where(flat, lit(1, x), x)
    slope = sub(bessel_i0e(x), mul(out, add(sign(x), div(lit(1, x), safe))))
    return mul(t, where(flat, lit(0.5, x), slope))


bessel_i0e = unary(
    "bessel_i0e",
    FLOATING,
    lower=lowered_by(_i0e),
    jvp=lambda t, x, out: mul(t, sub(bessel_i1e(x), mul(sign(x), out))),
)
bessel_i1e = unary("bessel_i1e", FLOATING, hlo="chlo.bessel_i1e", jvp=_i1e_tangent)
