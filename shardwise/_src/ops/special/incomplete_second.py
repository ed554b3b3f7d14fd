"""The second derivative of the regularized incomplete gamma function in its first argument.

With W = x^a exp(-x) / Γ(a), L = log x - ψ(a), and t = x exp(z) in the integral for the derivative
of the first derivative, it is W times

    ∫ exp(a z - x (exp(z) - 1)) ((L + z)² - ψ'(a)) dz

over z < 0; if x is large, the negated integral over z > 0 is shorter. It is summed by the
trapezoidal rule in τ for |z| = s exp(τ - exp(-τ)), where s is the width of the integrand (Takahasi
and Mori, "Double exponential formulas for numerical integration", 1974). Below a = 1, where terms
cancel, a + 1 is used: P(a, x) is P(a + 1, x) + W / a.

Unlike the first derivative, this uses differentiable ops, so that higher derivatives exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.core.infer import type_of
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import (
    abs,
    add,
    bitwise_or,
    div,
    exp,
    expm1,
    le,
    log,
    lt,
    max,
    min,
    mul,
    neg,
    sqrt,
    sub,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.special import uniform_asymptotics
from shardwise._src.ops.special.special_functions import digamma, polygamma

FLOAT32 = np.dtype(np.float32)
POINTS = {4: 48, 8: 96}  # by bytes of a float
RANGE = -3.6, 4.2  # of τ: the tails are below the rounding error
SERIES = 7  # terms of exp(z) - 1 - z
SMALL = 0.1  # |z| below which the series is used


def second_over_power(a: Any, x: Any) -> Any:
    """∂²P/∂a² over x^a exp(-x) / Γ(a), for positive and finite a and x."""
    t = type_of(a)
    if t.dtype.itemsize < 4:
        a, x = [convert_element_type(v, dtype=FLOAT32) for v in (a, x)]
        return convert_element_type(second_over_power(a, x), dtype=t.dtype)
    one = lit(1, a)
    below = lt(a, one)
    b = where(below, add(a, one), a)
    rest, trigamma = log_less_digamma(b, x), polygamma(one, b)
    found = _integral(b, x, rest, trigamma)
    shifted = div(add(mul(x, found), sub(mul(rest, rest), trigamma)), a)
    return where(below, shifted, found)


def log_less_digamma(a: Any, x: Any) -> Any:
    """log x - ψ(a)."""
    far = add(log(div(x, a)), uniform_asymptotics.log_less_digamma(a))
    return where(uniform_asymptotics.is_large(a), far, sub(log(x), digamma(a)))


def _integral(a: Any, x: Any, rest: Any, trigamma: Any) -> Any:
    shape = type_of(a).shape
    places, weights = _rule(type_of(a).dtype)
    full = (*shape, places.size)

    def along(v: Any) -> Any:
        return broadcast_in_dim(v, shape=full, dims=tuple(range(len(shape))))

    lower = bitwise_or(le(x, lit(1, x)), le(x, a))
    sign = where(lower, lit(-1, x), lit(1, x))
    width = div(sign, max(abs(sub(x, a)), sqrt(max(x, a))))
    z = mul(along(width), broadcast_in_dim(places, shape=full, dims=(len(shape),)))
    exponent = sub(mul(along(sub(a, x)), z), mul(along(x), _expm1_less(z)))
    moved = add(along(rest), z)
    values = mul(exp(exponent), sub(mul(moved, moved), along(trigamma)))
    values = mul(values, broadcast_in_dim(weights, shape=full, dims=(len(shape),)))
    return neg(mul(width, reduce_sum(values, axes=(len(shape),))))


@cached(8)  # dtypes
def _rule(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes |z| / s and their weights."""
    t, step = np.linspace(*RANGE, POINTS[dtype.itemsize], retstep=True)
    places = np.exp(t - np.exp(-t))
    return places.astype(dtype), (places * (1 + np.exp(-t)) * step).astype(dtype)


def _expm1_less(z: Any) -> Any:
    """exp(z) - 1 - z."""
    small = min(max(z, lit(-SMALL, z)), lit(SMALL, z))
    total = lit(1, z)
    for k in range(SERIES, 1, -1):  # 1 + z/3 (1 + z/4 (…)), times z²/2
        total = add(lit(1, z), mul(mul(small, lit(1 / (k + 1), z)), total))
    series = mul(mul(mul(small, small), lit(0.5, z)), total)
    # In the tails the integrand is 0, and its derivatives must not be 0 times infinity.
    far = min(z, lit(80, z))
    return where(le(abs(z), lit(SMALL, z)), series, sub(expm1(far), far))
