"""The regularized incomplete gamma functions for large parameters, where series would be long.

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
from shardwise._src.ops.special import erfc

LEAST = 20  # smaller parameters have short series
NEAR = 0.3  # of |μ|
TERMS = {4: (5, 8, 5), 8: (10, 16, 12)}  # by bytes: of 1 / a, of η, of log(1 + μ)
LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)  # of a⁻¹, a⁻³, …: Stirling's series


def is_large(a: Any) -> Any:
    return bitwise_and(gt(a, lit(LEAST, a)), lt(a, lit(np.inf, a)))


def is_near(a: Any, x: Any) -> Any:
    """Where `lower_and_upper` holds."""
    return bitwise_and(is_large(a), le(abs(sub(x, a)), mul(lit(NEAR, a), a)))


def log_power(a: Any, x: Any) -> Any:
    """The logarithm of x^a exp(-x) / Γ(a) for large a, without the differences of large numbers."""
    scale = log(div(a, lit(2 * math.pi, a)))
    inverse = div(lit(1, a), a)
    rest = mul(inverse, _polynomial(mul(inverse, inverse), LOG_GAMMA))
    return sub(sub(mul(lit(0.5, a), scale), mul(a, _gap(a, x))), rest)


def lower_and_upper(a: Any, x: Any) -> tuple[Any, Any]:
    half, gap = lit(0.5, a), _gap(a, x)
    sign = where(lt(x, a), lit(-1, a), lit(1, a))
    eta, z = [mul(sign, sqrt(mul(v, gap))) for v in (lit(2, a), a)]
    powers, terms, _ = TERMS[type_of(a).dtype.itemsize]
    columns = [_polynomial(eta, row) for row in coefficients(powers, terms)]
    inverse, total = div(lit(1, a), a), columns[-1]
    for column in columns[-2::-1]:
        total = add(mul(total, inverse), column)
    bell = div(exp(neg(mul(z, z))), sqrt(mul(lit(2 * math.pi, a), a)))
    rest = mul(bell, total)
    return sub(mul(half, erfc(neg(z))), rest), add(mul(half, erfc(z)), rest)


def _gap(a: Any, x: Any) -> Any:
    """μ - log(1 + μ), by the series of log((1 + s) / (1 - s)) where μ is small."""
    mu = div(sub(x, a), a)
    s = div(mu, add(lit(2, mu), mu))
    square = mul(s, s)
    count = TERMS[type_of(a).dtype.itemsize][2]
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
    """Of ηⁿ in cₖ, k < powers and n < terms."""
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
        rows.append([
            (-1) ** k * stirling * first[n] + (n + 2) * last[n + 2] for n in range(len(last) - 2)
        ])
    return [[float(c) for c in row[:terms]] for row in rows]
