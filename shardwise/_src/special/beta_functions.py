"""The beta function and ratios of gamma functions, under SciPy's names: beta, comb, poch."""

from __future__ import annotations

import math
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.ops.special import incomplete
from shardwise._src.ops.special import special_functions as special
from shardwise._src.special.gamma_functions import (
    HALF_LOG_TAU,
    correction,
    raised_to,
    sign_of_gamma,
)
from shardwise._src.special.pointwise import by_dtype, eps, signed_pi, wide, with_derivatives
from shardwise._src.types.annotations import Array, ArrayLike


def _beta_parts(a: Any, b: Any) -> tuple[Any, Any]:
    """(l, f) with B(a, b) = exp(l) f for a, b > 0.

    Both arguments are shifted up to where Stirling's series holds (DiDonato and Morris 1992,
    Algorithm 708); the factors of these steps are divided by the shifted arguments, which turns the
    shifted arguments in the powers back into a and b.
    For tiny a and b it is 1 / a + 1 / b, times 1 - ζ(2) ab.
    """
    least = by_dtype(a, 4, 8)
    a, b = where(a < b, a, b), where(a < b, b, a)
    p, q = raised_to(a)[0], raised_to(b)[0]
    s = p + q
    log = (0.5 - a) * ew.log1p(q / p) - b * ew.log1p(p / q) - 0.5 * ew.log(q) + HALF_LOG_TAU
    factor = _climb(a + b, s, 2 * least) / _climb(a, p, least) / _climb(b, q, least)
    log = log + correction(p) + correction(q) - correction(s)
    tiny = b < by_dtype(a, 1e-4, 1e-8)
    return where(tiny, 0.0, log), where(tiny, 1.0 / a + 1.0 / b, factor)


def _climb(z: Any, end: Any, most: int) -> Any:
    """The product of (z + i) / end over the steps up to `end`; at most `most` steps."""
    product = where(z == z, 1.0, z)
    for _ in range(most):
        low = z < end - 0.5
        product = where(low, product * (z / end), product)
        z = where(low, z + 1.0, z)
    return product


def _any_beta(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """(l, f, n) with B(a, b) = exp(l) f / n for all finite a and b, each of them within range.

    For x = -a, -b, or -(a + b) ≥ 0, the reflection formula gives Γ(-x) = -π / (sin πx Γ(1 + x))
    (DLMF 5.5.3), which leaves B or 1 / B of positive arguments. B is infinite if a or b is a pole,
    unless a + b is also one: for integers a in 1 … -b it is the limit (-1)^a B(a, 1 - a - b).
    """
    high, low = where(a < b, b, a), where(a < b, a, b)
    plain, both, inner = low > 0.0, high <= 0.0, (low <= 0.0) & (high <= -low)
    left, right = ew.abs(high), ew.abs(low)
    inverse = ~plain & (both | ~inner)
    p = where(both, left + 1.0, where(plain | inner, high, high - right))
    q = where(plain, low, where(both | ~inner, right + 1.0, right - high + 1.0))
    log, factor = _beta_parts(p, q)
    # for 1 / (n B), with n = a, or 1 - a - b
    n = where(both, left + right + 1.0, high)
    u, v = [x - 2.0 * ew.round(x * 0.5, rounding_method=1) for x in (left, right)]
    sine, other = signed_pi(ew.sin, v), signed_pi(ew.sin, u)
    mixed = signed_pi(ew.sin, where(both, u + v, v - u))
    turned = (mixed / sine) * where(both, 1.0 / other, 1.0)  # the product of the divisors may be 0
    ratio = where(inner & ~both, turned, -math.pi * where(both, turned, 1.0 / sine))
    whole_low, whole_high = low == ew.floor(low), high == ew.floor(high)
    limit = inner & ~both & whole_low & whole_high
    ratio = where(limit, where(u == 0.0, 1.0, -1.0), ratio)
    pole = ~plain & (whole_low | (both & whole_high)) & ~limit
    factor = where(inverse, 1.0 / factor, factor) * where(plain, 1.0, ratio)
    log = where(pole, math.inf, where(factor == 0.0, 0.0, where(inverse, -log, log)))
    return log, where(pole, math.inf, factor), where(inverse & ~pole, n, 1.0)


def _beta_derivatives(scaled: bool) -> tuple[Any, Any]:
    def slope(out: Any, x: Any, other: Any) -> Any:
        change = special.digamma(x) - special.digamma(x + other)
        return out * change if scaled else change

    return slope, lambda out, a, b: slope(out, b, a)


def _finite_parts(a: Any, b: Any) -> tuple[Any, Any, Any]:
    usual = ew.is_finite(a) & ew.is_finite(b)
    return _any_beta(where(usual, a, 1.0), where(usual, b, 1.0))


@with_derivatives(*_beta_derivatives(True))
def _beta(a: Any, b: Any) -> Any:
    log, factor, n = _finite_parts(a, b)
    root = ew.exp(log * 0.5)  # its square may overflow where B does not
    return _at_infinity(a, b, (root * (root / n)) * factor, False)


@with_derivatives(*_beta_derivatives(False))
def betaln_of(a: Any, b: Any) -> Any:
    log, factor, n = _finite_parts(a, b)
    return _at_infinity(a, b, log + (ew.log(ew.abs(factor)) - ew.log(n)), True)


def _at_infinity(a: Any, b: Any, inside: Any, logs: bool) -> Any:
    """The limit Γ(b) a^-b for infinite a, or vice versa; propagates NaN."""
    low, high = where(a < b, a, b), where(a < b, b, a)
    pole = (low <= 0.0) & (low == ew.floor(low))
    sign = where(pole, 1.0, sign_of_gamma(low))
    limit = where(low > 0.0, -math.inf if logs else 0.0, math.inf if logs else sign * math.inf)
    out = where(high == math.inf, where(low == -math.inf, math.nan, limit), inside)
    out = where((low == -math.inf) & (high < math.inf), math.nan, out)
    return where((a != a) | (b != b), math.nan, out)


@fused(arrays=2)
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Γ(a) Γ(b) / Γ(a + b)."""
    return wide(_beta, a, b)


@fused(arrays=2)
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of |beta(a, b)|."""
    return wide(betaln_of, a, b)


@fused(arrays=3)
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Regularized incomplete beta function I_x(a, b). Not differentiable in a and b."""
    return wide(incomplete.regularized_incomplete_beta, a, b, x)


@with_derivatives(
    lambda out, n, k: out * (special.digamma(n + 1.0) - special.digamma(n - k + 1.0)),
    lambda out, n, k: out * (special.digamma(n - k + 1.0) - special.digamma(k + 1.0)),
)
def _choices(n: Any, k: Any) -> Any:
    """1 / ((n + 1) B(n - k + 1, k + 1)) for 0 <= k <= n, even if B underflows."""
    log, factor = _beta_parts(n - k + 1.0, k + 1.0)
    root = ew.exp(log * -0.5)
    return root / (n + 1.0) * (root / factor)


@fused(arrays=2)
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """The number of combinations of N things taken k at a time, as a float: 1 / ((N + 1)
    B(N - k + 1, k + 1)).

    repetition: whether a thing can be chosen again. 0 if k or N is negative or k > N.
    """

    def chosen(n: Any, k: Any) -> Any:
        empty = (k == 0.0) & (n >= 0.0)
        if repetition:
            n = n + k - 1.0
        there = (k <= n) & (n >= 0.0) & (k >= 0.0)
        n, j = where(there, n, 1.0), where(there, k, 0.0)
        found = _choices(n, j)
        finite = ew.is_finite(found)
        about = where(finite, found, 0.0)
        few = ew.min(j, n - j) <= 20.0
        integers = (n == ew.floor(n)) & (j == ew.floor(j)) & (finite | few)
        exact = where(integers, _whole_choices(n, j, about), found)
        found = about + stop_gradient(exact - about)
        found = where(there, found, 0.0)
        return where(empty, 1.0, found) if repetition else found

    return wide(chosen, N, k)


def _whole_choices(n: Any, k: Any, about: Any) -> Any:
    """For integers n and small k, the product of (n - k + i) / i, with integer partial products."""
    few, product = ew.min(k, n - k), about * 0 + 1.0
    for i in range(1, 21):
        factor = n - few + float(i)
        larger = product * factor
        larger = where(ew.is_finite(larger), larger / float(i), product * (factor / float(i)))
        product = where(few >= float(i), larger, product)
    return ew.round(where(few <= 20.0, product, about), rounding_method=1)


@with_derivatives(
    lambda out, z, m: out * (special.digamma(z + m) - special.digamma(z)),
    lambda out, z, m: out * special.digamma(z + m),
)
def poch_of(z: Any, m: Any) -> Any:
    """A product for small integers m; DLMF 5.5.3 where z and z + m are negative."""
    end, whole_m = z + m, m == ew.floor(m)
    mirrored = (z <= 0.0) & (end <= 0.0)
    x, y = where(mirrored, 1.0 - end, z), where(mirrored, 1.0 - z, end)
    usual = (x > 0.0) & (y > 0.0) & ew.is_finite(x) & ew.is_finite(y)
    x, y, least = where(usual, x, 1.0), where(usual, y, 1.0), float(by_dtype(z, 4, 8))
    (p, up), (q, uq) = raised_to(x), raised_to(y)
    d = where((x >= least) & (y >= least), m, q - p)
    raised = where(ew.abs(d) < p * eps(p), d, (p - 0.5) * ew.log1p(d / p))  # d / p may round to 0
    log = raised + d * (ew.log(q) - 1.0) + correction(q) - correction(p)
    value = ew.exp(log) * (up / uq)
    turn = where(m * 0.5 == ew.floor(m * 0.5), 1.0, -1.0)
    u, v = [w - 2.0 * ew.round(w * 0.5, rounding_method=1) for w in (z, m)]
    turn = where(whole_m, turn, signed_pi(ew.sin, u) / signed_pi(ew.sin, u + v))
    value = where(mirrored, turn * value, value)
    sign = sign_of_gamma(end) * sign_of_gamma(z)
    value = where(usual, value, sign * ew.exp(special.lgamma(end) - special.lgamma(z)))
    value = where((z > 0.0) & (end == math.inf), math.inf, value)
    # z + m may be rounded to an integer: its sine is computed from both terms
    below, sine = (z > 0.0) & (end <= 0.0), signed_pi(ew.sin, u + v)
    small = ew.exp(-special.lgamma(1.0 - end) - special.lgamma(z))
    value = where(below, math.pi / where(sine == 0.0, 1.0, sine) * small, value)
    z_pole = (z <= 0.0) & (z == ew.floor(z))
    end_pole = (end <= 0.0) & (u + v == ew.floor(u + v))
    value = where(z_pole & ~(mirrored & whole_m), 0.0, value)
    value = where(end_pole & ~z_pole, math.inf, value)
    value = where(whole_m & (ew.abs(m) <= 20.0), _few_factors(z, m), value)
    return where((z != z) | (m != m), math.nan, value)


def _few_factors(z: Any, m: Any) -> Any:
    """z (z + 1) … (z + m - 1), and 1 / ((z - 1) … (z + m)) for negative m."""
    product = z * 0 + 1.0
    for i in range(20):
        factor = where(m > 0.0, z + float(i), z - float(i + 1))
        product = where(ew.abs(m) > float(i), product * factor, product)
    return where(m >= 0.0, product, where(product == 0.0, math.inf, 1.0 / product))


@fused(arrays=2)
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Rising factorial Γ(z + m) / Γ(z)."""
    return wide(poch_of, z, m)
