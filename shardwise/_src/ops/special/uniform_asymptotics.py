"""The regularized incomplete gamma functions for large parameters, where series would be long, and
the power factors of incomplete beta functions.

With μ = (x - a) / a and η²/2 = μ - log(1 + μ), where η has the sign of μ,

    Q(a, x) = erfc(η √(a/2)) / 2 + exp(-a η²/2) / √(2πa) Σₖ cₖ(η) a⁻ᵏ,    P(a, x) = 1 - Q(a, x),

which holds uniformly in η. The coefficients of ηⁿ in cₖ follow from those in μ, exactly.
Sources: Temme, "The asymptotic expansion of the incomplete gamma functions" (1979); NIST Handbook
of Mathematical Functions, 8.12.7 to 8.12.14.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    div,
    eq,
    exp,
    gt,
    le,
    log,
    log1p,
    lt,
    mul,
    neg,
    sqrt,
    sub,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.special.special_functions import erfc, lgamma

LEAST = 20  # smaller parameters have short series
NEAR = 0.3  # of |μ|
TERMS = {4: (5, 8, 5), 8: (10, 16, 12)}  # by bytes: of 1 / a, of η, of log(1 + μ)
LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)  # of a⁻¹, a⁻³, …: Stirling's series


def is_large(a: Any) -> Any:
    return bitwise_and(gt(a, lit(LEAST, a)), lt(a, lit(np.inf, a)))


def is_near(a: Any, x: Any) -> Any:
    """Where `lower_and_upper` is valid."""
    return bitwise_and(is_large(a), le(abs(sub(x, a)), mul(lit(NEAR, a), a)))


def log_power(a: Any, x: Any) -> Any:
    """The logarithm of x^a exp(-x) / Γ(a) for large a, without cancellation."""
    scale = log(div(a, lit(2 * math.pi, a)))
    inverse = div(lit(1, a), a)
    return sub(sub(mul(lit(0.5, a), scale), mul(a, _gap(a, x))), _stirling(inverse))


def log_less_digamma(a: Any) -> Any:
    """log a - ψ(a) for large a."""
    inverse = div(lit(1, a), a)
    square = mul(inverse, inverse)
    series = _polynomial(square, [(2 * k + 1) * c for k, c in enumerate(LOG_GAMMA)])
    return add(mul(lit(0.5, a), inverse), mul(square, series))


def lower_and_upper(a: Any, x: Any) -> tuple[Any, Any]:
    half, (eta, z) = lit(0.5, a), _eta(a, x)
    powers, terms, _ = TERMS[type_of(a).dtype.itemsize]
    total = _total(a, [_polynomial(eta, row) for row in coefficients(powers, terms)])
    bell = div(exp(neg(mul(z, z))), sqrt(mul(lit(2 * math.pi, a), a)))
    rest = mul(bell, total)
    return sub(mul(half, erfc(neg(z))), rest), add(mul(half, erfc(z)), rest)


def derivative_over_power(a: Any, x: Any) -> Any:
    """∂P/∂a over x^a exp(-x) / Γ(a), which is √(a/2π) exp(-a η²/2) / Γ*(a).

    By ∂η/∂a = -μ / (aη) it is Γ*(a) / a times η/2 - μ/η + (1/2a + η²/2 - μ) Σₖ cₖ a⁻ᵏ +
    Σₖ (μ/η cₖ' + k cₖ) a⁻ᵏ⁻¹.
    """
    half, inverse = lit(0.5, a), div(lit(1, a), a)
    eta, _ = _eta(a, x)
    mu = div(sub(x, a), a)
    ratio = where(eq(eta, lit(0, a)), lit(1, a), div(mu, eta))
    powers, terms, _ = TERMS[type_of(a).dtype.itemsize]
    rows = coefficients(powers, terms)
    columns = [_polynomial(eta, row) for row in rows]
    slopes = [_polynomial(eta, [n * c for n, c in enumerate(row)][1:]) for row in rows]
    changes = [
        add(mul(ratio, slope), mul(lit(k, a), column))
        for k, (slope, column) in enumerate(zip(slopes, columns, strict=True))
    ]
    factor = add(mul(half, inverse), sub(mul(half, mul(eta, eta)), mu))
    found = add(sub(mul(half, eta), ratio), mul(factor, _total(a, columns)))
    found = add(found, mul(inverse, _total(a, changes)))
    return mul(mul(inverse, exp(_stirling(inverse))), found)


def beta_power(a: Any, b: Any, x: Any, y: Any) -> Any:
    """x^a y^b / B(a, b) for x + y = 1, without cancellation.

    With s = a + b and λ = ay - bx it is √(ab / 2πs) (1 - λ/a)^a (1 + λ/b)^b Γ*(s) / (Γ*(a) Γ*(b)).
    """
    s, change = add(a, b), sub(mul(a, y), mul(b, x))
    ways = [(a, x, neg(div(change, a))), (b, y, div(change, b))]
    near = [le(abs(u), lit(NEAR, u)) for _, _, u in ways]
    least = lit(math.sqrt(np.finfo(type_of(a).dtype).tiny) ** 1.5, a)
    balanced, apart = [], []
    for (c, part, u), small in zip(ways, near, strict=True):
        balanced.append(mul(c, _less_log(u)))
        log_ratio = where(small, log1p(u), log(mul(part, div(s, c))))
        apart.append(where(lt(c, least), lit(0, c), mul(c, log_ratio)))
    power = where(bitwise_and(*near), neg(add(*balanced)), add(*apart))
    power = add(power, sub(sub(_log_scaled(s), _log_scaled(a)), _log_scaled(b)))
    return mul(sqrt(mul(a, div(div(b, s), lit(2 * math.pi, s)))), exp(power))


def _log_scaled(a: Any) -> Any:
    """The logarithm of Γ*(a)."""
    plain = sub(lgamma(a), sub(mul(sub(a, lit(0.5, a)), log(a)), a))
    plain = sub(plain, lit(0.5 * math.log(2 * math.pi), a))
    return where(is_large(a), _stirling(div(lit(1, a), a)), plain)


def _stirling(inverse: Any) -> Any:
    """The logarithm of Γ*(a) = Γ(a) √(a/2π) (e/a)^a, from 1 / a."""
    return mul(inverse, _polynomial(mul(inverse, inverse), LOG_GAMMA))


def _eta(a: Any, x: Any) -> tuple[Any, Any]:
    """η, and η √(a/2)."""
    gap, sign = _gap(a, x), where(lt(x, a), lit(-1, a), lit(1, a))
    return mul(sign, sqrt(mul(lit(2, a), gap))), mul(sign, sqrt(mul(a, gap)))


def _total(a: Any, columns: Sequence[Any]) -> Any:
    """Σₖ columns[k] a⁻ᵏ."""
    inverse, total = div(lit(1, a), a), columns[-1]
    for column in columns[-2::-1]:
        total = add(mul(total, inverse), column)
    return total


def _gap(a: Any, x: Any) -> Any:
    return _less_log(div(sub(x, a), a))


def _less_log(mu: Any) -> Any:
    """μ - log(1 + μ), by the series of log((1 + s) / (1 - s)) if μ is small."""
    s = div(mu, add(lit(2, mu), mu))
    square = mul(s, s)
    count = TERMS[type_of(mu).dtype.itemsize][2]
    series = _polynomial(square, [2 / (2 * n + 3) for n in range(count)])
    near = sub(mul(mu, s), mul(mul(s, square), series))
    return where(le(abs(mu), lit(NEAR, mu)), near, sub(mu, log1p(mu)))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total = lit(coefficients[-1], x)
    for c in coefficients[-2::-1]:
        total = add(mul(total, x), lit(c, x))
    return total


@functools.cache
def coefficients(powers: int, terms: int) -> list[list[float]]:
    """The coefficients of ηⁿ in cₖ, k < powers and n < terms."""
    count = 2 * powers + terms + 1
    alpha = [Fraction(0), Fraction(1)]  # μ = Σ alpha[n] ηⁿ
    for n in range(2, count + 1):
        products = sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    first = [(n + 2) * alpha[n + 2] for n in range(count - 1)]
    first[0] -= 1
    rows = [first]
    for k in range(1, powers):
        stirling = math.prod(range(1, 2 * k + 2, 2)) * alpha[2 * k + 1]
        last = rows[-1]
        rows.append(
            [(-1) ** k * stirling * first[n] + (n + 2) * last[n + 2] for n in range(len(last) - 2)]
        )
    return [[float(c) for c in row[:terms]] for row in rows]
