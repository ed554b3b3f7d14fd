"""Gamma and Poisson samples without loops, as functions of normal samples: method="approximate".

Sources: Goldstein, "Algorithm 451: Chi-square quantiles", CACM 16, 1973, in the form of Johnson,
Kotz and Balakrishnan, "Continuous Univariate Distributions", 18.37; Stuart, "Gamma-distributed
products of independent random variables", Biometrika 49, 1962; Peizer and Pratt, "A normal
approximation for binomial, F, beta, and other common, related tail probabilities", JASA 63, 1968.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import (
    abs,
    add,
    ceil,
    div,
    exp,
    ge,
    log,
    lt,
    max,
    mul,
    neg,
    rsqrt,
    sqrt,
    square,
    sub,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.special.special_functions import erfc
from shardwise._src.random.continuous import exponential_sample, normal_sample
from shardwise._src.random.draws import keys_of
from shardwise._src.types.dtypes import finfo

# Coefficients of tᵏ, with t = x / √ν for a normal sample x: a polynomial in 1 / ν. The first is
# exactly 1, as the limit ν → ∞ requires, where the source has 1.0000886.
_QUANTILE = (
    (1.0, -0.2237368, -0.01513904),
    (0.4713941, 0.02607083, -0.008986007),
    (0.0001348028, 0.01128186, 0.02277679),
    (-0.008553069, -0.01153761, -0.01323293),
    (0.00312558, 0.005169654, -0.006950356),
    (-0.0008426812, 0.00253001, 0.001060438),
    (0.00009780499, -0.001450117, 0.001565326),
)
_BOOSTS = 4  # the series is accurate from 8 degrees of freedom on
_SPLIT = 7.0  # smaller Poisson means are drawn by summing probabilities
_TERMS = 20


def check_method(name: str, method: str) -> bool:
    """Whether the method is "exact"."""
    if method not in ("exact", "approximate"):
        raise ValueError(f"{name}: method must be 'exact' or 'approximate'; got {method!r}.")
    return method == "exact"


def _horner(x: Any, coefficients: Any) -> Any:
    *rest, out = coefficients
    for c in reversed(rest):
        out = add(mul(out, x), c)
    return out


def approximate_loggamma(key: Any, a: Any, shape: tuple[int, ...]) -> Any:
    """Logarithms of gamma samples: a sample for a + 4 times powers of four uniform samples.

    a: has the shape `shape`.
    """
    key_base, key_boost = keys_of(key, 2)
    t, wide = type_of(a), (_BOOSTS, *shape)
    base = _by_quantiles(key_base, add(a, lit(_BOOSTS, a)))
    k = np.arange(_BOOSTS).astype(t.dtype)
    up = broadcast_in_dim(a, shape=wide, dims=tuple(range(1, len(wide))))
    below = add(up, broadcast_in_dim(k, shape=wide, dims=(0,)))
    logs = neg(exponential_sample(key_boost, wide, t.dtype))
    return add(base, reduce_sum(div(logs, below), axes=(0,)))


def _by_quantiles(key: Any, a: Any) -> Any:
    """log(a p³), where p is the series for the cube root of a chi-square sample over its mean."""
    t = type_of(a)
    degrees = mul(lit(2, a), a)
    x = normal_sample(key, t.shape, t.dtype)
    inverse = div(lit(1, a), degrees)
    rows = [_horner(inverse, [lit(c, a) for c in row]) for row in _QUANTILE]
    root = _horner(mul(x, rsqrt(degrees)), rows)
    root = max(root, lit(finfo(t.dtype).tiny, a))
    return add(log(a), mul(lit(3, a), log(root)))


def approximate_poisson(key: Any, lam: Any, shape: tuple[int, ...]) -> Any:
    """Poisson samples as floats: where the CDF reaches that of a normal sample.

    lam: has the shape `shape`.
    """
    z = normal_sample(key, shape, type_of(lam).dtype)
    below = mul(lit(0.5, z), erfc(mul(z, lit(-np.sqrt(0.5), z))))
    return where(lt(lam, lit(_SPLIT, lam)), _by_terms(below, lam), _by_normal(z, lam))


def _by_terms(u: Any, lam: Any) -> Any:
    term = exp(neg(lam))
    total, count = term, _as_float(lt(term, u), u)
    for k in range(1, _TERMS - 1):
        term = mul(term, div(lam, lit(k, lam)))
        total = add(total, term)
        count = add(count, _as_float(lt(total, u), u))
    return count


def _as_float(flags: Any, like: Any) -> Any:
    return convert_element_type(flags, dtype=type_of(like).dtype)


def _by_normal(z: Any, lam: Any) -> Any:
    """The smallest integer whose z is not less. A guess is off by one at most."""
    root, one = sqrt(lam), lit(1, z)
    guess = sub(add(lam, mul(root, z)), lit(2 / 3, z))
    guess = add(guess, div(square(z), lit(6, z)))
    guess = add(guess, div(mul(z, sub(one, square(z))), mul(lit(72, z), root)))
    c = ceil(add(guess, lit(0.6, z)))

    def reached(c: Any) -> Any:
        least = where(lt(c, lit(0, c)), lit(-np.inf, c), _normal_of(max(c, lit(0, c)), lam))
        return _as_float(ge(least, z), z)

    out = sub(sub(add(c, one), reached(c)), reached(sub(c, one)))
    return max(out, lit(0, out))


def _normal_of(x: Any, lam: Any) -> Any:
    """z(x), whose normal CDF is close to the Poisson CDF at x."""
    t = _curve(div(add(x, lit(0.5, x)), lam))
    middle = add(sub(x, lam), lit(2 / 3, x))
    middle = add(middle, div(lit(0.02, x), add(x, lit(1, x))))
    return mul(middle, sqrt(div(add(lit(1, t), t), lam)))


def _curve(y: Any) -> Any:
    """(1 - y² + 2 y log y) / (1 - y)², by its series near 1."""
    one = lit(1, y)
    d = sub(y, one)
    near = lt(abs(d), lit(0.25, d))
    series = full(0, type_of(d).shape, type_of(d).dtype)
    for k in reversed(range(1, 10)):
        series = mul(d, add(lit(2 * (-1) ** k / ((k + 1) * (k + 2)), d), series))
    far = where(near, lit(2, y), y)
    value = add(sub(one, square(far)), mul(mul(lit(2, y), far), log(far)))
    return where(near, series, div(value, square(where(near, one, d))))
