"""Real and complex error functions, the normal distribution, Fresnel integrals, Owen's T.

Most use w(z) = exp(-z²) erfc(-iz) by the trapezoidal and midpoint rules with the residue of the
nearby pole (Al Azah and Chandler-Wilde 2021, "Computation of the complex error function using
modified trapezoidal rules"): with 12 nodes the error is below 1e-15, with 6 below 1e-8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import special_functions
from shardwise._src.special.pointwise import (
    as_complex,
    by_dtype,
    exp_of_square,
    nested,
    over_nodes,
    signed_pi,
    wide,
    with_derivatives,
)
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_complex

_ROOT_PI, _ROOT_2 = math.sqrt(math.pi), math.sqrt(2)


def _rule(x: Any) -> tuple[float, Any, Any]:
    """The step h; the nodes and weights of the midpoint and the trapezoidal rule for exp(-t²)."""
    count = by_dtype(x, 6, 12)
    h = math.sqrt(math.pi / count)
    halves, wholes = (np.arange(count) + 0.5) * h, np.arange(1, count) * h
    return h, (halves, np.exp(-halves * halves)), (wholes, np.exp(-wholes * wholes))


def _near_nodes(x: Any, h: float) -> Any:
    """Whether midpoints are nearer to x than multiples of h: then the trapezoidal rule is used."""
    place = x / h - ew.floor(x / h)
    return (place >= 0.25) & (place <= 0.75)


# -- w(z) --


@with_derivatives(lambda out, z: 2j / _ROOT_PI - 2.0 * z * out)
def _wofz(z: Any) -> Any:
    x, y = ew.abs(ew.real(z)), ew.abs(ew.imag(z))
    far = x + y > by_dtype(z, 100.0, 1e4)
    u = ew.complex(where(far, 1.0, x), where(far, 1.0, y))
    near = _first_quadrant(u, ew.real(u), ew.imag(u))
    v = 1.0 / ew.complex(where(far, x, 1.0), where(far, y, 1.0))
    value = where(far, v * (1.0 + 0.5 * v * v) * (1j / _ROOT_PI), near)
    value = where((x == math.inf) | (y == math.inf), 0j, value)
    value = where(y == 0.0, ew.complex(ew.exp(-x * x), ew.imag(value)), value)
    lower = ew.complex(x, -y)
    value = where(ew.imag(z) < 0.0, 2.0 * ew.exp(-lower * lower) - ew.conj(value), value)
    return where(ew.real(z) < 0.0, ew.conj(value), value)


def _first_quadrant(z: Any, x: Any, y: Any) -> Any:
    h, halves, wholes = _rule(z)
    square = z * z
    middle, whole = [
        over_nodes(rule, lambda t, u: 1.0 / (u - t * t), square) * z * (2j * h / math.pi)
        for rule in (halves, wholes)
    ]
    whole = whole + 1j * h / math.pi / where(z == 0j, 1.0, z)
    turned = ew.exp(z * (2j * math.pi / h))
    residue = 2.0 * ew.exp(-square) * turned
    plain = (y >= x) & (y >= math.pi / h)
    second = (y < x) & _near_nodes(x, h)
    found = where(
        second,
        whole - residue / (1.0 - where(second, turned, 0.0)),
        middle + residue / (1.0 + where(second, 0.0, turned)),
    )
    return where(plain, middle, found)


@fused(arrays=1)
def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function exp(-z²) erfc(-iz), complex. Errors are relative to |w(z)|."""
    return wide(lambda z: _wofz(as_complex(z)), z, allow_complex=True)


# -- real functions --


def _erfcx_derivative(out: Any, x: Any) -> Any:
    """2 x w - 2 / √π, and the derivative of the sum for large x."""
    h, halves, _ = _rule(x)
    y = where(x > 7.0, x, 7.0)
    far = over_nodes(halves, lambda t, y: ((t / y) ** 2 - 1.0) / (y + t * t / y) ** 2, y)
    far = far * (2 * h / math.pi)
    return where(x > 7.0, far, 2.0 * x * out - 2 / _ROOT_PI)


@with_derivatives(_erfcx_derivative)
def _erfcx(x: Any) -> Any:
    h, halves, _ = _rule(x)
    y = ew.abs(x)
    total = over_nodes(halves, lambda t, y: 1.0 / (y + t * t / y), y) * (2 * h / math.pi)
    low = where(y < math.pi / h, y, 0.0)
    residue = 2.0 * ew.exp(low * low) / (1.0 + ew.exp(low * (2 * math.pi / h)))
    right = where(y < math.pi / h, total + residue, total)
    return where(x < 0.0, 2.0 * exp_of_square(y, 1.0) - right, right)


@fused(arrays=1)
def erfcx(x: ArrayLike) -> Array:
    """exp(x²) erfc(x), also for complex numbers."""

    def scaled(x: Any) -> Any:
        if is_complex(type_of(x).dtype):
            return _wofz(ew.complex(-ew.imag(x), ew.real(x)))
        return _erfcx(x)

    return wide(scaled, x, allow_complex=True)


def _dawsn_derivative(out: Any, x: Any) -> Any:
    h, halves, _ = _rule(x)
    y = where(ew.abs(x) > 7.0, x, 7.0)
    far = over_nodes(halves, lambda t, y: ((t / y) ** 2 + 1.0) / (y - t * t / y) ** 2, y)
    far = far * (-h / _ROOT_PI)
    return where(ew.abs(x) > 7.0, far, 1.0 - 2.0 * x * out)


@with_derivatives(_dawsn_derivative)
def _dawsn(x: Any) -> Any:
    """The power series of exp(-x²) ∫ exp(t²) (DLMF 7.6.1) for small x, otherwise √π/2 Im w(x)."""
    y = ew.abs(x)
    square = where(y < 1.5, y * y, 0.0)
    ratios = [(2 * k - 1) / (k * (2 * k + 1)) for k in range(1, by_dtype(x, 14, 24))]
    small = ew.exp(-square) * y * nested(ratios, square)
    h, halves, wholes = _rule(x)
    y = where(y < 1.5, 1.5, y)
    trapezoid = _near_nodes(y, h) & (y < 20.0)
    sums = [
        over_nodes(rule, lambda t, y: 1.0 / (y - t * t / y), y) * (2 * h / math.pi)
        for rule in (halves, wholes)
    ]
    slope = signed_pi(ew.tan, where(y < 20.0, y, 0.0) / h)
    bell = ew.exp(-y * y)
    middle = sums[0] + bell * where(trapezoid, 1.0, slope)
    whole = sums[1] + h / math.pi / y - bell / where(trapezoid, slope, 1.0)
    large = where(trapezoid, whole, middle) * (_ROOT_PI / 2)
    value = where(ew.abs(x) < 1.5, small, large)
    return where(x < 0.0, -value, where(x == 0.0, x, value))


@fused(arrays=1)
def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral exp(-x²) ∫₀ˣ exp(t²) dt."""
    return wide(_dawsn, x)


def _quarter_turns(x: Any) -> Any:
    """π x² / 2 reduced modulo 2π: x = n + f with even n, x² = n² + 2 n f + f²."""
    n = ew.round(x * 0.5, rounding_method=1)
    f = x - 2.0 * n
    turns = n * f
    return (turns - ew.round(turns, rounding_method=1)) * (2 * math.pi) + f * f * (math.pi / 2)


@with_derivatives(lambda out, x: (ew.sin(_quarter_turns(x)), ew.cos(_quarter_turns(x))))
def _fresnel(x: Any) -> tuple[Any, Any]:
    """Power series (DLMF 7.6.4, 7.6.6) for small x; otherwise w on the diagonal."""
    y = ew.abs(x)
    small = y < 1.5
    q = where(small, (math.pi / 2 * y * y) ** 2, 0.0)
    steps = range(1, by_dtype(x, 10, 17))
    c = y * nested([-(4 * k - 3) / ((4 * k + 1) * (2 * k - 1) * 2 * k) for k in steps], q)
    s = nested([-(4 * k - 1) / ((4 * k + 3) * (2 * k + 1) * 2 * k) for k in steps], q)
    s = s * y * y * y * (math.pi / 6)
    h, halves, _ = _rule(x)
    p = ew.min(where(small, 1.5, y), y * 0 + 1e17)
    v = p * p * (math.pi / 2)
    b = over_nodes(halves, lambda t, v: 1.0 / (v + t**4 / v), v)
    a = over_nodes(halves, lambda t, v: t * t / v / (v + t**4 / v), v)
    turns = _quarter_turns(p)
    sin, cos = ew.sin(turns), ew.cos(turns)
    scale = p * (h / _ROOT_PI)
    # (1 + i) F / (1 + F), for the pole
    size, angle = ew.exp(p * (-math.pi * _ROOT_PI / h)), p * (math.pi * _ROOT_PI / h)
    re, im = size * ew.cos(angle), size * ew.sin(angle)
    norm = (1.0 + re) * (1.0 + re) + im * im
    re, im = (re * (1.0 + re) + im * im) / norm, im / norm
    far_c = 0.5 - scale * (a * cos - b * sin) - (re - im)
    far_s = 0.5 - scale * (a * sin + b * cos) - (re + im)
    out = [where(small, near, far) for near, far in ((s, far_s), (c, far_c))]
    out = [where(y == math.inf, 0.5, o) for o in out]
    return tuple(where(x < 0.0, -o, where(x == 0.0, x, o)) for o in out)  # pyright: ignore


@fused(arrays=1)
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Fresnel integrals of sin(π t² / 2) and cos(π t² / 2) from 0 to x."""
    return wide(_fresnel, x)


# -- the normal distribution --


def normal_density(x: Any) -> Any:
    return exp_of_square(x, -0.5) * (1 / math.sqrt(2 * math.pi))


@with_derivatives(lambda out, x: normal_density(x))
def ndtr_of(x: Any) -> Any:
    low = where(x < -1.0, x, -1.0)
    tail = 0.5 * _erfcx(low * (-1 / _ROOT_2)) * exp_of_square(low, -0.5)
    return where(x < -1.0, tail, 0.5 * special_functions.erfc(x * (-1 / _ROOT_2)))


@fused(arrays=1)
def ndtr(x: ArrayLike) -> Array:
    """Cumulative distribution function of the standard normal distribution."""
    return wide(ndtr_of, x)


@with_derivatives(lambda out, x: math.sqrt(2 / math.pi) / _erfcx(x * (-1 / _ROOT_2)))
def log_ndtr_of(x: Any) -> Any:
    low, high = where(x < -1.0, x, -1.0), where(x < 1.0, 1.0, x)
    tail = ew.log(0.5 * _erfcx(low * (-1 / _ROOT_2))) - 0.5 * low * low
    tail = where(x == -math.inf, x, tail)
    middle = ew.log(0.5 * special_functions.erfc(x * (-1 / _ROOT_2)))
    inner = where(x < 1.0, middle, ew.log1p(-ndtr_of(-high)))
    return where(x < -1.0, tail, inner)


@fused(arrays=1)
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """log(ndtr(x)), accurate where ndtr underflows. series_order: no effect, no series is used."""
    if not isinstance(series_order, int) or not 0 <= series_order <= 30:
        raise ValueError(
            f"log_ndtr: series_order must be an integer from 0 to 30; got {series_order!r}."
        )
    return wide(log_ndtr_of, x)


def _quantile(p: Any) -> Any:
    """ndtri for 0 < p ≤ ½: the inverse of erf, or Halley steps for log(ndtr(x)) = log(p).

    The initial guess is Abramowitz and Stegun 26.2.23, whose error is below 4.5e-4.
    """
    log = ew.log(p)
    t = ew.sqrt(-2.0 * log)
    x = (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    ) - t
    for _ in range(by_dtype(p, 1, 2)):
        slope = math.sqrt(2 / math.pi) / _erfcx(x * (-1 / _ROOT_2))
        step = (log_ndtr_of(x) - log) / slope
        x = x - step / (1.0 + 0.5 * step * (x + slope))
    return where(p > 0.25, special_functions.erf_inv(2.0 * p - 1.0) * _ROOT_2, x)


@with_derivatives(lambda out, p: 1.0 / normal_density(out))
def ndtri_of(p: Any) -> Any:
    high = p > 0.5
    inside = (p > 0.0) & (p < 1.0)
    value = _quantile(where(inside, where(high, 1.0 - p, p), 0.5))
    value = where(inside, where(high, -value, value), math.nan)
    return where(p == 0.0, -math.inf, where(p == 1.0, math.inf, value))


@fused(arrays=1)
def ndtri(p: ArrayLike) -> Array:
    """Inverse of `ndtr`."""
    return wide(ndtri_of, p)


@fused(arrays=1)
def erf(x: ArrayLike) -> Array:
    """The error function."""
    return wide(special_functions.erf, x)


@fused(arrays=1)
def erfc(x: ArrayLike) -> Array:
    """1 - erf(x), accurate where it is small."""
    return wide(special_functions.erfc, x)


@fused(arrays=1)
def erfinv(x: ArrayLike) -> Array:
    """The inverse of erf."""
    return wide(special_functions.erf_inv, x)


@fused(arrays=1)
def erfcinv(y: ArrayLike) -> Array:
    """The inverse of erfc."""
    return wide(lambda y: ndtri_of(0.5 * y) * (-1 / _ROOT_2), y)


# -- Owen's T --


@with_derivatives(
    lambda out, h, a: normal_density(h) * special_functions.erf(a * h * (1 / _ROOT_2)) * -0.5,
    lambda out, h, a: ew.exp(-0.5 * h * h * (1.0 + a * a)) / (1.0 + a * a) * (0.5 / math.pi),
)
def _owens_t(h: Any, a: Any) -> Any:
    """Gauss-Legendre quadrature over [0, min(a, 9 / h)], where the integrand is not negligible.

    For |a| > 1: T(h, a) = ½ (q + r) - q r - T(ah, 1/a), with tails q at h, r at ah (Owen 1956).
    """
    points, weights = np.polynomial.legendre.leggauss(by_dtype(h, 16, 34))
    h, far = ew.abs(h), ew.abs(a)
    beyond = far > 1.0
    slope = where(beyond, 1.0 / where(beyond, far, 1.0), far)
    g = where(beyond, far * h, h)
    end = ew.min(slope, 9.0 / where(g > 9.0, g, 9.0))
    rule = (0.5 + 0.5 * points, weights)
    total = over_nodes(
        rule, lambda t, g, end: ew.exp(-0.5 * (g * end * t) ** 2) / (1.0 + (end * t) ** 2), g, end
    )
    inner = total * end * exp_of_square(g, -0.5) * (0.25 / math.pi)
    inner = where(g < math.inf, inner, 0.0)
    q, r = ndtr_of(-h), ndtr_of(where(beyond, far * -h, 0.0))
    value = where(beyond, 0.5 * (q + r) - q * r - inner, inner)
    value = where((far == math.inf) & (h == 0.0), 0.25, where((far == math.inf), 0.5 * q, value))
    value = where(h == math.inf, 0.0, value)
    return where((a != a) | (h != h), math.nan, where(a < 0.0, -value, value))


@fused(arrays=2)
def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's T: the integral of exp(-h² (1 + t²) / 2) / (1 + t²) / 2π over t from 0 to a."""
    return wide(_owens_t, h, a)
