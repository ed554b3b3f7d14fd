"""The gamma function and related functions, under SciPy's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.autodiff.grad import jvp
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import incomplete
from shardwise._src.ops.special import special_functions as special
from shardwise._src.special.pointwise import (
    bernoulli_numbers,
    by_dtype,
    horner,
    signed_pi,
    wide,
    with_derivatives,
)
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_complex, is_integer
from shardwise._src.values.convert import as_integer

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(bernoulli_numbers(9), 1)]
# (ζ(k) - 1) (-1)^k / k, for log Γ(2 + w) = (1 - γ) w + the sum of these times w^k (DLMF 5.7.3);
# ζ(k) - 1 is summed up to 199^-k, the rest by the Euler-Maclaurin formula.
_NEAR_TWO = [0.42278433509846714] + [
    (-1) ** k
    / k
    * math.fsum(
        [
            *(float(n) ** -k for n in range(2, 200)),
            200.0 ** (1 - k)
            * (1 / (k - 1) + 1 / 400 + k / 480000 - k * (k + 1) * (k + 2) / 1.152e12),
        ]
    )
    for k in range(2, 32)
]


def correction(z: Any) -> Any:
    """log Γ(z) - ((z - ½) log z - z + ½ log 2π), by Stirling's series (DLMF 5.11.1)."""
    r = 1.0 / z
    return r * horner(_STIRLING, r * r, by_dtype(z, 0.1, 1 / 64))


def raised_to(z: Any) -> tuple[Any, Any]:
    """z + n in the range of Stirling's series, and z (z + 1) … (z + n - 1), for z > 0."""
    least = by_dtype(z, 4, 8)
    return _climb(z, least, least, z * 0 + 1.0, lambda product, z: product * z)


def _climb(
    z: Any, least: float, most: int, total: Any, add: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """z + n with real part `least` or more, in n ≤ most steps; `total` with the steps added."""
    for _ in range(most):
        low = ew.real(z) < float(least) if is_complex(type_of(z).dtype) else z < float(least)
        total = where(low, add(total, z), total)
        z = where(low, z + 1.0, z)
    return z, total


def _positive_gamma(x: Any) -> Any:
    """Γ(x), x > 0: reduced to [1.5, 2.5] by factors up to 20, by Stirling's formula above."""
    w = where(x < 20.5, x, 2.0)
    product = one = x * 0 + 1.0
    for _ in range(18):
        high = w > 2.5
        w = where(high, w - 1.0, w)
        product = where(high, product * w, product)
    w, divisor = _climb(w, 1.5, 2, one, lambda divisor, w: divisor * w)
    near = ew.exp((w - 2.0) * horner(_NEAR_TWO, w - 2.0, 0.5)) * product / divisor
    z = where(x < 20.5, 20.5, x)
    half = z ** (z * 0.5 - 0.25)
    far = half * ew.exp(-z) * half * (ew.exp(correction(z)) * math.sqrt(2 * math.pi))
    return where(x < 20.5, near, where(x > by_dtype(x, 35.1, 171.7), math.inf, far))


@with_derivatives(lambda out, x: out * special.digamma(x))
def gamma_of(x: Any) -> Any:
    """For negative arguments by Γ(x) Γ(-x) = -π / (x sin πx) (from DLMF 5.5.3)."""
    low = x < 0.0
    y = ew.abs(x)
    value = _positive_gamma(where(y == 0.0, 1.0, y))
    mirrored = math.pi / (y * signed_pi(ew.sin, x) * value)
    pole = low & (x == ew.floor(x))
    value = where(low, where(pole, math.nan, mirrored), value)
    return where(y == 0.0, 1.0 / x, where(x != x, x, value))


@fused(arrays=1)
def gamma(x: ArrayLike) -> Array:
    """The gamma function; NaN at negative integers. Complex arguments: exp(loggamma)."""

    def of(x: Any) -> Any:
        return ew.exp(_complex_loggamma(x)) if is_complex(type_of(x).dtype) else gamma_of(x)

    return wide(of, x, allow_complex=True)


@fused(arrays=1)
def gammaln(x: ArrayLike) -> Array:
    """The logarithm of |Γ(x)|."""
    return wide(special.lgamma, x)


@fused(arrays=1)
def loggamma(x: ArrayLike) -> Array:
    """The principal branch of the logarithm of the gamma function; NaN for real x < 0.

    Complex arguments: Stirling's series (DLMF 5.11.1), after shifts to the right and a reflection.
    On the cut, the negative real axis, the sign of the (zero) imaginary part selects the side.
    """
    return wide(_loggamma, x, allow_complex=True)


def _loggamma(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        return _complex_loggamma(x)
    return where(x < 0.0, math.nan, special.lgamma(x))


@with_derivatives(lambda out, z: _complex_digamma(z))
def _complex_loggamma(z: Any) -> Any:
    re, im = ew.real(z), ew.imag(z)
    left = re < 0.5
    z = ew.complex(re, ew.abs(im))
    w = where(left, 1.0 - z, z)
    w = ew.complex(ew.real(w), where(left, -ew.imag(w), ew.imag(w)))  # conjugated on the left
    w, steps = _climb(w, 9.0, 9, w * 0.0, lambda steps, w: steps + ew.log(w))
    right = (w - 0.5) * ew.log(w) - w + HALF_LOG_TAU + correction(w) - steps
    # log sin πz, analytic in the upper half plane
    turned = ew.complex(re - ew.floor(re), ew.imag(z)) * (2j * math.pi)
    log_sine = (
        ew.complex(ew.imag(z), -re) * math.pi
        + ew.log(1.0 - ew.exp(turned))
        + complex(-math.log(2), math.pi / 2)
    )
    out = where(left, math.log(math.pi) - log_sine - ew.conj(right), right)
    pole = (im == 0.0) & (re <= 0.0) & (re == ew.floor(re))
    below = (im < 0.0) | ((im == 0.0) & (1.0 / im < 0.0))
    return where(pole, complex(math.nan, math.nan), where(below, ew.conj(out), out))


def _complex_digamma(z: Any) -> Any:
    """By shifts and the asymptotic series (DLMF 5.11.2); on the left ψ(1 - z) - π cot πz."""
    left = ew.real(z) < 0.5
    w = where(left, 1.0 - z, z)
    w, steps = _climb(w, 9.0, 9, w * 0.0, lambda steps, w: steps + 1.0 / w)
    r = 1.0 / (w * w)
    series = r * horner([b / (2 * k) for k, b in enumerate(bernoulli_numbers(9), 1)], r, 1 / 64)
    out = ew.log(w) - 0.5 / w - series - steps
    return where(left, out - math.pi / ew.tan(math.pi * where(left, z, 0.5 + 0j)), out)


@fused(arrays=1)
def gammasgn(x: ArrayLike) -> Array:
    """The sign of the gamma function; NaN at its poles, but the sign of x at zeros."""
    return wide(sign_of_gamma, x)


def sign_of_gamma(x: Any) -> Any:
    down = ew.floor(x)
    sign = where((x > 0.0) | (down * 0.5 == ew.floor(down * 0.5)), 1.0, -1.0)
    sign = where(x == 0.0, ew.sign(1.0 / x), sign)
    return where((x != x) | ((x < 0.0) & (down == x)), math.nan, sign)


@fused(arrays=1)
def digamma(x: ArrayLike) -> Array:
    """The derivative of the logarithm of the gamma function."""
    return wide(lambda x: where(x == 0.0, -1.0 / x, where(x == math.inf, x, special.digamma(x))), x)


@fused(arrays=2)
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The n-th derivative of `digamma`; n: integers."""
    if not is_integer(type_of(n).dtype):
        raise ValueError(
            f"polygamma: n must be of an integer dtype; got {type_of(n).str_short(True)}."
        )
    return wide(special.polygamma, n, x)


@fused(arrays=1)
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """n! = Γ(n + 1) as a float; 0 for n < 0.

    exact: must be false: there are no arbitrary-precision integers.
    """
    if exact:
        raise NotImplementedError(
            "factorial: exact=True needs integers of arbitrary size; leave it out."
        )
    return wide(lambda n: where(n < 0.0, 0.0, gamma_of(where(n < 0.0, 0.0, n) + 1.0)), n)


@fused(arrays=2)
def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function."""
    return wide(incomplete.igamma, a, x)


@fused(arrays=2)
def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function."""
    return wide(incomplete.igammac, a, x)


# -- the multivariate gamma function, and Bernoulli numbers --


def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """The logarithm of the multivariate gamma function of dimension d, an integer.

    The sum of log Γ(a - i / 2) over i < d, plus d (d - 1) / 4 · log π.
    """
    return _multigammaln(a, as_integer(d, "multigammaln: d"))


@fused(arrays=1)
def _multigammaln(a: Any, d: int) -> Any:
    def total(a: Any) -> Any:
        parts = [special.lgamma(a - 0.5 * i) for i in range(d)]
        return sum(parts[1:], parts[0]) + 0.25 * d * (d - 1) * math.log(math.pi)

    return wide(total, a)


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B₀, … B_n; those that overflow are infinite."""
    n = as_integer(n, "bernoulli: n")
    if n < 0:
        raise ValueError(f"bernoulli: n must be at least 0; got {n}.")
    numbers = np.zeros(n + 1)
    numbers[0] = 1
    numbers[1:2] = -0.5
    known = min(n // 2, 130)  # the remaining ones overflow
    numbers[2::2] = [
        *bernoulli_numbers(known),
        *(math.inf * (-1) ** (k - 1) for k in range(known + 1, n // 2 + 1)),
    ]
    with np.errstate(over="ignore"):
        return asarray(numbers.astype(np.dtype(canonicalize(float).name)))


# -- zeta --


def _euler_maclaurin(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function by the Euler-Maclaurin formula (DLMF 25.11.28)."""
    count = by_dtype(x, 6, 10)
    head = sum(((q + float(k)) ** -x for k in range(1, count)), q**-x)
    a = q + float(count)
    power, factor, tail = a**-x, x / a, a * 0
    for k, b in enumerate(bernoulli_numbers(12), 1):
        tail = tail + factor * (b / math.factorial(2 * k))
        factor = factor * ((x + (2 * k - 1.0)) / a) * ((x + 2.0 * k) / a)
    rest = power * (a / (x - 1.0) + 0.5 + tail)
    return head + where(power == 0.0, 0.0, rest)


def _zeta_derivative(out: Any, x: Any, q: Any) -> Any:
    return -x * _zeta(x + 1.0, q)


@with_derivatives(
    lambda out, x, q: jvp(lambda x: _euler_maclaurin(x, q), (x,), (x * 0 + 1.0,))[1],
    _zeta_derivative,
)
def _zeta(x: Any, q: Any) -> Any:
    """For q < 0 and integers x: the terms on both sides of zero are those of the fractions f and
    1 - f, without the terms beyond q."""
    mirrored = (q < 0.0) & (q != ew.floor(q)) & (x == ew.floor(x)) & (x > 1.0)
    f = where(mirrored, ew.floor(q) - q, 0.0) + where(mirrored, 1.0, 0.0)
    value = _right_zeta(x, where(mirrored, f, q))
    near, beyond = [_right_zeta(x, where(mirrored, v, 1.0)) for v in (1.0 - f, 1.0 - q)]
    sign = where(x * 0.5 == ew.floor(x * 0.5), 1.0, -1.0)
    return where(mirrored, (near + sign * value) - sign * beyond, value)


def _right_zeta(x: Any, q: Any) -> Any:
    """The first term for a large exponent; the Euler-Maclaurin formula for large q."""
    far = q ** (1.0 - x) * (1.0 / (x - 1.0) + (0.5 + x / (12.0 * q)) / q)
    value = where((x > 1000.0) & (q > 0.0), q**-x, special.zeta(x, where(q > 1e5, 1.0, q)))
    return where((q > 1e5) & (x > 1.0), far, value)


@with_derivatives(lambda out, x: jvp(_continued, (x,), (x * 0 + 1.0,))[1])
def _riemann(x: Any) -> Any:
    return _continued(x)


def _continued(x: Any) -> Any:
    """On the left by ζ(x) = 2 (2π)^(x-1) sin(πx/2) Γ(1 - x) ζ(1 - x) (DLMF 25.4.1)."""
    left = x < -0.1
    y = where(left, 1.0 - x, where(x == 1.0, 2.0, x))
    value = _euler_maclaurin(y, y * 0 + 1.0)
    far = left & (y > by_dtype(x, 35.0, 170.0))  # by Stirling's formula, combining the powers
    z, w = where(far, y, 30.0), where(left & ~far, y, 2.0)
    half = (z / (2 * math.pi * math.e)) ** (0.5 * z)
    stirling = half * (ew.exp(correction(z)) * ew.sqrt(2 * math.pi / z)) * half
    scaled = where(far, stirling, (2 * math.pi) ** -w * gamma_of(w))
    sine = signed_pi(ew.sin, x * 0.5)
    mirrored = where(sine == 0.0, sine, 2.0 * scaled * sine * value)
    return where(left, mirrored, where(x == 1.0, math.inf, where(x > 60.0, 1.0, value)))


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """The Hurwitz zeta function, the sum of (n + q)^-x over n from 0; Riemann's if q is None."""
    return _any_zeta(x) if q is None else _any_zeta(x, q)


@fused
def _any_zeta(x: Any, *q: Any) -> Any:
    return wide(_zeta if q else _riemann, x, *q)
