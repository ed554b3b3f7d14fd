"""Hypergeometric functions 1F1 and 2F1 of real numbers, by series summed until they converge.

Choice of the series and transformation: Pearson, Olver and Porter 2014, "Numerical methods for
the computation of the confluent and Gauss hypergeometric functions".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shardwise._src.autodiff.grad import jvp
from shardwise._src.control.while_api import fori_loop, while_loop
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.statistics.reductions import any as any_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import full
from shardwise._src.special.beta_functions import poch_of
from shardwise._src.special.gamma_functions import gamma_of
from shardwise._src.special.pointwise import by_dtype, eps, wide, with_derivatives
from shardwise._src.types.annotations import Array, ArrayLike

_LARGE = 2.0**60


def _series(ratio: Callable[[Any, tuple], Any], args: tuple, active: Any, most: int) -> Any:
    """1 + r₀ + r₀ r₁ + … with r_k = ratio(k, args), until terms are well below the precision."""
    total, powers = _scaled_series(ratio, args, active, most)
    return total * ew.exp(powers * math.log(_LARGE))


def _scaled_series(
    ratio: Callable[[Any, tuple], Any], args: tuple, active: Any, most: int
) -> tuple[Any, Any]:
    """The sum as (s, n), meaning s · _LARGE^n; NaN if it needs more than `most` terms.

    active: the elements to compute.
    """
    one = args[-1] * 0 + 1.0
    least = eps(one) / 256

    def more(state: tuple) -> Any:
        return any_of(state[3]) & (state[0] < float(most))

    def step(state: tuple) -> tuple:
        k, term, total, active, powers, *args = state
        r = ratio(k, tuple(args))
        term = where(active & (term != 0.0), term * r, 0.0)
        total = total + term
        going = (ew.abs(term) > least * ew.abs(total)) & ew.is_finite(total)
        # While terms still grow, continue.
        going = going | ((ew.abs(r) > 0.99) & (term != 0.0) & ew.is_finite(total))
        high = ew.abs(total) > _LARGE
        term, total = [where(high, v / _LARGE, v) for v in (term, total)]
        return (k + 1.0, term, total, active & going, where(high, powers + 1.0, powers), *args)

    first = full(0.0, (), type_of(one).dtype)
    _, _, total, endless, powers, *_ = while_loop(
        more, step, (first, one, one, active, one * 0, *args)
    )
    return where(endless, math.nan, total), powers


def _over(x: Any, y: Any) -> Any:
    return where(x == 0.0, 0.0, x / where(x == 0.0, 1.0, y))


def _partial(fun: Callable, i: int) -> Callable:
    """The derivative of `fun` with respect to argument i, by forward mode."""

    def slope(out: Any, *args: Any) -> Any:
        def alone(x: Any) -> Any:
            return fun(*args[:i], x, *args[i + 1 :])

        return jvp(alone, (args[i],), (args[i] * 0 + 1.0,))[1]

    return slope


def _whole_below(x: Any) -> Any:
    """Whether x is 0, -1, -2, …"""
    return (x <= 0.0) & (x == ew.floor(x))


# -- 1F1 --


def _confluent(a: Any, b: Any, x: Any) -> Any:
    """By the power series, for x < 0 of exp(x) 1F1(b - a, b, -x); for large |x| by DLMF 13.7.2."""
    turned = (x < 0.0) & ~_whole_below(a)
    c, z = where(turned, b - a, a), where(turned, -x, x)
    size = (ew.abs(1.0 - c) + 1.0) * (ew.abs(b - c) + 1.0)
    far = (z > by_dtype(x, 20.0, 50.0)) & (z > 4.0 * size) & ~_whole_below(c)
    # If terms have both signs:
    waves = turned & ~far & (b > 0.0) & (a > b + 1.5) & ~_whole_below(c)
    ends = _whole_below(c) & (b > 0.0) & (z > 0.0) & ew.is_finite(z)
    total, powers = _scaled_series(
        lambda k, s: _over(s[0] + k, s[1] + k) * (s[2] / (k + 1.0)),
        (c, b, where(far | waves | ends, 0.0, z)),
        ew.is_finite(z),
        20000,
    )
    other, more = _laguerre(*[where(ends, v, o) for v, o in ((-c, 0.0), (b, 1.0), (z, 0.0))])
    total, powers = where(ends, other, total), where(ends, more, powers)
    half = ew.exp(0.5 * (powers * math.log(_LARGE) + where(turned, x, 0.0)))
    near = half * total * half
    w, p, q = where(far, z, 1e3), where(far, 1.0 - c, 0.0), where(far, b - c, 0.0)
    total = term = z * 0 + 1.0
    for k in range(by_dtype(x, 16, 40)):
        term = term * ((p + float(k)) * (q + float(k)) / ((k + 1.0) * w))
        total = total + term
    c = where(far, c, b)
    power = (c - b) * ew.log(w)
    scale = ew.exp(0.5 * where(turned, power, power + where(far, x, 0.0)))
    near = where(far, scale * total * poch_of(c, b - c) * scale, near)
    return where(
        waves, _downward(*[where(waves, v, o) for v, o in ((a, 3.0), (b, 1.0), (x, 0.0))]), near
    )


def _laguerre(n: Any, b: Any, z: Any) -> tuple[Any, Any]:
    """1F1(-n, b, z) by recurrence in n (DLMF 13.3.1), as (s, m), meaning s · _LARGE^m."""

    def step(state: tuple) -> tuple:
        k, before, now, powers = state
        new = ((2.0 * k + b - z) * now - k * before) / (b + k)
        high = ew.abs(new) > _LARGE
        old, new = [where(high, v / _LARGE, v) for v in (now, new)]
        on = k < n
        return (
            k + 1.0,
            where(on, old, before),
            where(on, new, now),
            where(on & high, powers + 1.0, powers),
        )

    one = z * 0 + 1.0
    first = full(0.0, (), type_of(one).dtype)
    k, _, total, powers = while_loop(
        lambda s: any_of(s[0] < n) & (s[0] < 20000.0), step, (first, one, one, one * 0)
    )
    return where(n > k, math.nan, total), powers


def _downward(a: Any, b: Any, x: Any) -> Any:
    """For a > b > 0, x ≤ 0, by Taylor series of the differential equation (DLMF 13.2.1).

    They start where the power series hardly alternates; each step is less than one oscillation.
    """

    def back(z: Any, t: Any, n: Any, before: Any, now: Any) -> Any:
        return ((n + a) * t * before - (n + 1.0) * (n + b - z) * now) * (t / z)

    def step(state: tuple) -> tuple:
        k, z, value, slope = state
        t = -ew.min(z - x, ew.min(-0.5 * z, ew.min(2.0 * ew.sqrt(-z / a), z * 0 + 2.0)))
        new, moved = _taylor(back, z, t, value, slope, by_dtype(x, 18, 36))
        done = t >= 0.0
        return k + 1.0, z + t, where(done, value, new), where(done, slope, moved)

    z = ew.max(x, -0.5 * b / a)
    z = where(z == 0.0, -1e-3 * b / a, z)
    value, slope = _plain(a, b, z), a / b * _plain(a + 1.0, b + 1.0, z)
    most = by_dtype(x, 1e4, 1e5)
    _, end, value, _ = while_loop(
        lambda s: any_of(s[1] > x) & (s[0] < most),
        step,
        (full(0.0, (), type_of(z).dtype), z, value, slope),
    )
    return where(end > x, math.nan, value)


def _taylor(back: Callable, z: Any, t: Any, value: Any, slope: Any, count: int) -> tuple[Any, Any]:
    """The value and derivative at z + t, from those at z, by w_n = u_n t^n of a Taylor series.

    back(z, t, n, w_n, w_(n+1)): (n + 1) (n + 2) w_(n+2), by the differential equation.
    """

    def term(n: Any, state: tuple) -> tuple:
        n, before, now, total, moved = state
        new = back(z, t, n, before, now) / ((n + 1.0) * (n + 2.0))
        return n + 1.0, now, new, total + new, moved + (n + 2.0) * new

    first = slope * t
    *_, total, moved = fori_loop(0, count, term, (z * 0, value, first, value + first, first))
    return total, moved / where(t == 0.0, 1.0, t)


def _plain(a: Any, b: Any, x: Any) -> Any:
    return _series(
        lambda k, s: (s[0] + k) / (s[1] + k) * (s[2] / (k + 1.0)), (a, b, x), ew.is_finite(x), 1000
    )


def _confluent_derivative(out: Any, a: Any, b: Any, x: Any) -> Any:
    return a / b * _hyp1f1(a + 1.0, b + 1.0, x)


@with_derivatives(_partial(_confluent, 0), _partial(_confluent, 1), _confluent_derivative)
def _hyp1f1(a: Any, b: Any, x: Any) -> Any:
    value = _confluent(a, b, where(ew.is_finite(x), x, 0.0))
    up = where(a * gamma_of(b) < 0.0, -math.inf, math.inf)
    value = where(x == math.inf, up, value)
    value = where(x == -math.inf, where(a > 0.0, 0.0, math.inf), value)
    value = where(_whole_below(b) & ~(_whole_below(a) & (a >= b)), math.inf, value)
    value = where((b == math.inf) & ew.is_finite(a) & ew.is_finite(x), 1.0, value)
    value = where((a == 0.0) | (x == 0.0), 1.0, where(a == b, ew.exp(x), value))
    return where((a != a) | (b != b) | (x != x), math.nan, value)


@fused(arrays=3)
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The confluent hypergeometric function, the sum of (a)_k / (b)_k · x^k / k!.

    Infinite if b is 0, -1, …; 1 for a = 0 (infinite in SciPy for a = b = 0), exp(x) for a = b.
    """
    return wide(_hyp1f1, a, b, x)


# -- 2F1 --


def _gauss(a: Any, b: Any, c: Any, x: Any) -> Any:
    """The power series, which terminates if a or b is a negative integer."""
    return _series(
        lambda k, s: _over((s[0] + k) * (s[1] + k), s[2] + k) * (s[3] / (k + 1.0)),
        (a, b, c, x),
        ew.is_finite(x),
        10000,
    )


def _onward(a: Any, b: Any, c: Any, x: Any) -> Any:
    """For 0.9 < x < 1 by Taylor series of the differential equation (DLMF 15.10.1).

    They start at 0.9; each step goes from z at most halfway to the singularity at 1.
    """

    def back(z: Any, t: Any, n: Any, before: Any, now: Any) -> Any:
        middle, linear = 1.0 - 2.0 * z, c - (a + b + 1.0) * z
        new = (n + a) * (n + b) * t * before - (n + 1.0) * (middle * n + linear) * now
        return new * (t / (z * (1.0 - z)))

    def step(state: tuple) -> tuple:
        z, value, slope = state
        t = ew.min(x - z, 0.5 * (1.0 - z))
        new, moved = _taylor(back, z, t, value, slope, by_dtype(x, 28, 56))
        done = t <= 0.0
        return z + t, where(done, value, new), where(done, slope, moved)

    z = x * 0 + 0.9
    value, slope = _gauss(a, b, c, z), a * b / c * _gauss(a + 1.0, b + 1.0, c + 1.0, z)
    return while_loop(lambda s: any_of(s[0] < x), step, (z, value, slope))[1]


def _inside(a: Any, b: Any, c: Any, x: Any) -> Any:
    """2F1 for x < 1, or if the series terminates."""
    ends = _whole_below(a) | _whole_below(b)
    turned = (x < 0.0) & ~ends
    # The Pfaff transformation maps negative x to (0, 1) (DLMF 15.8.1) …
    z = where(turned, x / (x - 1.0), x)
    outer = where(turned, (1.0 - where(turned, x, 0.0)) ** -a, 1.0)
    b = where(turned, c - b, b)
    # … and Euler's makes c - a - b positive if the function would grow at 1.
    d = c - a - b
    flipped = (d < 0.0) & ~(_whole_below(a) | _whole_below(b)) & (z > 0.5)
    rest = where(turned, 1.0 / (1.0 - where(turned, x, 0.0)), 1.0 - x)  # 1 - z
    outer = outer * where(flipped, where(flipped, rest, 1.0) ** d, 1.0)
    a, b = where(flipped, c - a, a), where(flipped, c - b, b)
    far = (z > 0.9) & (z < 1.0) & ~(_whole_below(a) | _whole_below(b))
    beyond = _onward(*[where(far, v, o) for v, o in ((a, 0.5), (b, 0.5), (c, 1.5), (z, 0.9))])
    return outer * where(far, beyond, _gauss(a, b, c, where(far, 0.0, z)))


def _at_one(a: Any, b: Any, c: Any) -> Any:
    """Gauss's sum Γ(c) Γ(c - a - b) / (Γ(c - a) Γ(c - b)) (DLMF 15.4.20)."""
    values = gamma_of(stack([c, c - a - b, c - a, c - b]))
    value = values[0] * values[1] / (values[2] * values[3])
    value = where(_whole_below(c - a) | _whole_below(c - b), 0.0, value)
    return where(c - a - b > 0.0, value, math.inf)


def _hyp2f1_value(a: Any, b: Any, c: Any, x: Any) -> Any:
    ends = _whole_below(a) | _whole_below(b)
    pole = _whole_below(c) & ~((_whole_below(a) & (a >= c)) | (_whole_below(b) & (b >= c)))
    usual = ew.is_finite(x) & ~pole & ((x < 1.0) | ends)
    value = _inside(*[where(usual, v, o) for v, o in ((a, 0.5), (b, 0.5), (c, 1.5), (x, 0.0))])
    one = where((x == 1.0) & ~ends, _at_one(a, b, c), math.inf)
    value = where(usual, value, one)
    value = where((x < 1.0) & (a == c), (1.0 - where(x < 1.0, x, 0.0)) ** -b, value)
    value = where((x < 1.0) & (b == c), (1.0 - where(x < 1.0, x, 0.0)) ** -a, value)
    value = where((x == -math.inf) & (a > 0.0) & (b > 0.0), 0.0, value)
    value = where((x == 0.0) | (a == 0.0) | (b == 0.0), 1.0, value)
    return where((a != a) | (b != b) | (c != c) | (x != x), math.nan, value)


def _gauss_derivative(out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    return a * b / c * _hyp2f1(a + 1.0, b + 1.0, c + 1.0, x)


@with_derivatives(*[_partial(_hyp2f1_value, i) for i in range(3)], _gauss_derivative)
def _hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    return _hyp2f1_value(a, b, c, x)


@fused(arrays=4)
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss's hypergeometric function, the sum of (a)_k (b)_k / (c)_k · x^k / k!, for x ≤ 1.

    Infinite for x > 1, unless a or b is 0, -1, …, and if c is 0, -1, …
    """
    return wide(_hyp2f1, a, b, c, x)
