"""Exponential, sine and cosine integrals, and Spence's function.

Power series for small arguments; otherwise quadrature, continued fractions and asymptotic series,
all of fixed length (NIST Handbook of Mathematical Functions, chapters 6, 8 and 25).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.core.fused import fused
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import special_functions
from shardwise._src.special.gamma_functions import gamma_of
from shardwise._src.special.pointwise import (
    EULER,
    bernoulli_numbers,
    by_dtype,
    horner,
    nested,
    over_nodes,
    wide,
    with_derivatives,
)
from shardwise._src.types.annotations import Array, ArrayLike


def _ein(x: Any, count: int) -> Any:
    """The sum of x^k / (k k!) over k > 0."""
    return x * nested([k / (k + 1) ** 2 for k in range(1, count)], x)


def _rule(h: float, least: float) -> tuple[Any, Any]:
    """Nodes and weights for integrals of exp(-t) f(t) over t > 0, weights above `least`.

    The trapezoidal rule after t = exp(u - exp(-u)): double exponential (Takahasi and Mori 1974).
    """
    u = np.arange(-4.0, 4.2, h)
    t = np.exp(u - np.exp(-u))
    weights = h * t * (1 + np.exp(-u)) * np.exp(-t)
    return t[weights > least], weights[weights > least]


def _fraction(n: Any, x: Any, depth: int) -> Any:
    """exp(x) E_n(x): 1 / (x + n - 1 n / (x + n + 2 - 2 (n + 1) / …)) (DLMF 8.19.17)."""
    value = x + n + 2.0 * depth
    for k in range(depth, 0, -1):
        value = x + n + (2.0 * k - 2.0) - k * (n + (k - 1.0)) / value
    return 1.0 / value


def _positive_expn(n: Any, x: Any) -> Any:
    """E_n(x) for n > 0, x > 0; for x ≤ 1.5 by DLMF 8.19.8."""
    small = x <= 1.5
    u = where(small, x, 1.0)
    total, term = x * 0, x * 0 + 1.0
    for m in range(by_dtype(x, 16, 27)):
        gap = n - (1.0 + m)
        total = total + where(gap == 0.0, 0.0, term / where(gap == 0.0, 1.0, gap))
        term = term * (-u / (m + 1.0))
    power = where(u < 1e-300, 0.0, u) ** (n - 1.0) / gamma_of(n)
    even = n * 0.5 == ew.floor(n * 0.5)
    series = where(even, -power, power) * (special_functions.digamma(n) - ew.log(u)) + total
    z = where(small, 1.5, x)
    return where(small, series, ew.exp(-z) * _fraction(n, z, by_dtype(x, 22, 64)))


def _expn_derivative(out: Any, n: Any, x: Any) -> Any:
    """-E_(n-1); orders 0 and -1 are elementary."""
    order = ew.floor(n)
    flat = where(order == 1.0, ew.exp(-x) / x, ew.exp(-x) * (1.0 + x) / (x * x))
    return -where(order > 1.0, _expn(where(order > 1.0, order - 1.0, 1.0), x), flat)


@with_derivatives("n", _expn_derivative)
def _expn(n: Any, x: Any) -> Any:
    n = ew.floor(n)
    inside = (n > 0.0) & (n < math.inf) & (x > 0.0) & (x < math.inf)
    value = _positive_expn(where(inside, n, 1.0), where(inside, x, 1.0))
    value = where(n == 0.0, ew.exp(-x) / x, value)
    value = where(x == 0.0, where(n > 1.0, 1.0 / (n - 1.0), math.inf), value)
    value = where(x == math.inf, 0.0, value)
    return where((x < 0.0) | (n < 0.0) | (x != x) | (n != n) | (n == math.inf), math.nan, value)


@fused(arrays=2)
def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Exponential integral of order n, the integral of exp(-x t) / t^n over t from 1.

    Orders are rounded down; NaN for n < 0 or x < 0. Not differentiable in n.
    """
    return wide(_expn, n, x)


@with_derivatives(lambda out, x: -ew.exp(-x) / x)
def _exp1(x: Any) -> Any:
    value = where(x > 0.0, _positive_exp1(where(x > 0.0, x, 1.0)), math.nan)
    return where(x == 0.0, math.inf, value)


def _positive_exp1(x: Any) -> Any:
    """For x ≤ 1 by DLMF 6.6.2, otherwise exp(-x) times the integral of exp(-t) / (x + t)."""
    small = x <= 1.0
    u, z = where(small, x, 1.0), where(small, 1.0, x)
    series = -EULER - ew.log(u) - _ein(-u, by_dtype(x, 14, 22))
    rule = by_dtype(x, _rule(0.4, 1e-10), _rule(0.2, 1e-19))
    far = ew.exp(-z) * over_nodes(rule, lambda t, z: 1.0 / (z + t), z)
    return where(small, series, far)


@fused(arrays=1)
def exp1(x: ArrayLike) -> Array:
    """Exponential integral E₁, the integral of exp(-t) / t from x; NaN for x < 0."""
    return wide(_exp1, x)


# Ei near its zero at _HIGH + _LOW, where _HIGH has few bits: Σ c_k t^(k+1), from the coefficients
# g_k = (k + 1) c_k of exp(x) / x, which satisfy zero · g_k + g_(k-1) = exp(zero) / k!.
_HIGH, _LOW = 6103 / 16384, 9.8521876166344664e-06


@cached(128)
def _near_zero() -> list[float]:
    zero, slopes = _HIGH + _LOW, [0.0]
    for k in range(24):
        slopes.append((math.exp(zero) / math.factorial(k) - slopes[-1]) / zero)
    return [slope / (k + 1) for k, slope in enumerate(slopes[1:])]


@with_derivatives(lambda out, x: ew.exp(x) / x)
def _expi(x: Any) -> Any:
    bound = by_dtype(x, 18.0, 40.0)
    u = where((x > 0.0) & (x < bound), x, 1.0)
    near = EULER + ew.log(u) + _ein(u, by_dtype(x, 60, 130))
    z = where(x < bound, bound, x)
    far = nested([float(k) for k in range(1, by_dtype(x, 18, 40))], 1.0 / z)
    far = where(z == math.inf, z, ew.exp(z * 0.5) * (far / z) * ew.exp(z * 0.5))
    value = where(x < bound, near, far)
    value = where(x < 0.0, -_positive_exp1(where(x < 0.0, -x, 1.0)), value)
    t = (x * 2.0**14 - _HIGH * 2**14) * 2.0**-14 - _LOW  # XLA would fold the two constants
    value = where(ew.abs(t) < 0.05, t * horner(_near_zero(), t, 0.05), value)
    return where(x == 0.0, -math.inf, where(x != x, x, value))


@fused(arrays=1)
def expi(x: ArrayLike) -> Array:
    """Exponential integral Ei, the principal value of the integral of exp(t) / t up to x."""
    return wide(_expi, x)


@with_derivatives(lambda out, x: (where(x == 0.0, 1.0, ew.sin(x) / x), ew.cos(x) / x))
def _sici(x: Any) -> tuple[Any, Any]:
    """Power series (DLMF 6.6.5, 6.6.6) for |x| < 3, otherwise auxiliary functions (DLMF 6.7.13)."""
    y = ew.abs(x)
    small = y < 3.0
    q = where(small, y * y, 0.0)
    steps = range(1, by_dtype(x, 10, 16))
    si = y * nested([-(2 * k - 1) / ((2 * k + 1) ** 2 * 2 * k) for k in steps], q)
    ratios = [-2 * k / ((2 * k + 2) ** 2 * (2 * k + 1)) for k in steps]
    ci = EULER + ew.log(y) - 0.25 * q * nested(ratios, q)
    z = where(small, 3.0, where(y == math.inf, 3.0, y))
    rule = by_dtype(x, _rule(0.25, 1e-10), _rule(0.2, 1e-19))
    f = over_nodes(rule, lambda t, z: 1.0 / (z + t * t / z), z)
    g = over_nodes(rule, lambda t, z: t / z / (z + t * t / z), z)
    sin, cos = ew.sin(z), ew.cos(z)
    far_si, far_ci = math.pi / 2 - (f * cos + g * sin), f * sin - g * cos
    si, ci = where(small, si, far_si), where(small, ci, far_ci)
    si, ci = where(y == math.inf, math.pi / 2, si), where(y == math.inf, 0.0, ci)
    si = where(x < 0.0, -si, where(x == 0.0, x, si))
    return si, where(x == -math.inf, math.nan, ci)


@fused(arrays=1)
def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Sine integral, of sin(t) / t from 0 to x, and cosine integral, of |x| for negative x."""
    return wide(_sici, x)


@with_derivatives(lambda out, x: where(x == 1.0, -1.0, ew.log(x) / (1.0 - where(x == 1.0, 0.0, x))))
def _spence(x: Any) -> Any:
    """The sum of B_k u^(k+1) / (k+1)!, u = -log x, for ½ ≤ x ≤ 1; otherwise DLMF 25.12.4, .6."""
    large = x > 1.0
    y = where(large, 1.0 / x, x)
    small = y < 0.5
    log = ew.log(where(x > 0.0, x, 1.0))
    u = where(small, -ew.log1p(-y), where(large, log, -log))
    numbers = bernoulli_numbers(10)
    series = horner([b / math.factorial(2 * k + 1) for k, b in enumerate(numbers, 1)], u * u, 0.5)
    value = u * (1.0 - 0.25 * u + u * u * series)
    log_y = where(large, -log, log)
    value = where(small, math.pi**2 / 6 + log_y * u - value, value)
    value = where(large, -0.5 * log * log - value, where(x >= 0.0, value, math.nan))
    return where(x == 1.0, 0.0, value)


@fused(arrays=1)
def spence(x: ArrayLike) -> Array:
    """Spence's function, the integral of log(t) / (1 - t) from 1 to x; NaN for x < 0."""
    return wide(_spence, x)
