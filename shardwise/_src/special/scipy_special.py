"""Simple functions of `scipy.special`: entropies, transforms, Bessel functions.

For float16 and bfloat16 they compute in float32. Complex numbers are rejected unless stated
otherwise. Derivatives are exact, even where the formula itself is not differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.nn import normalize
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.statistics.reductions import max as max_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import special_functions
from shardwise._src.special.pointwise import horner, wide, with_derivatives
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import as_integer

# -- logistic --


@fused(arrays=1)
def expit(x: ArrayLike) -> Array:
    """The logistic function 1 / (1 + exp(-x)), also for complex numbers."""
    return wide(ew.logistic, x, allow_complex=True)


@with_derivatives(lambda out, x: 1.0 / (x * (1.0 - x)))
def logit_of(x: Any) -> Any:
    near = (x > 0.3) & (x < 0.65)
    twice = where(near, 2.0 * x - 1.0, 0.0)
    return where(near, ew.log1p(twice) - ew.log1p(-twice), ew.log(x / (1.0 - x)))


@fused(arrays=1)
def logit(x: ArrayLike) -> Array:
    """The inverse of `expit`: log(x / (1 - x))."""
    return wide(logit_of, x)


def softmax(x: ArrayLike, /, *, axis: AnyAxis = None) -> Array:
    """exp(x) / sum(exp(x)) over `axis`, by default all axes."""
    return normalize.softmax(x, _axes(x, axis))


def log_softmax(x: ArrayLike, /, *, axis: AnyAxis = None) -> Array:
    """log(softmax(x)), accurate where softmax underflows."""
    return normalize.log_softmax(x, _axes(x, axis))


def _axes(x: Any, axis: Any) -> Any:
    return tuple(range(type_of(x).ndim)) if axis is None else axis


# -- x log y and related functions --


@with_derivatives(lambda out, x, y: ew.log(y), lambda out, x, y: x / y)
def xlogy_of(x: Any, y: Any) -> Any:
    return where((x == 0.0) & (y == y), 0.0, x * ew.log(y))


@with_derivatives(lambda out, x, y: ew.log1p(y), lambda out, x, y: x / (1.0 + y))
def xlog1py_of(x: Any, y: Any) -> Any:
    return where((x == 0.0) & (y == y), 0.0, x * ew.log1p(y))


@fused(arrays=2)
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(y), and 0 where x is 0; also for complex numbers."""
    return wide(xlogy_of, x, y, allow_complex=True)


@fused(arrays=2)
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(1 + y), and 0 where x is 0; also for complex numbers."""
    return wide(xlog1py_of, x, y, allow_complex=True)


@with_derivatives(lambda out, x: -ew.log(x) - 1.0)
def _entr(x: Any) -> Any:
    return where(x < 0.0, -math.inf, -xlogy_of(x, x))


@fused(arrays=1)
def entr(x: ArrayLike) -> Array:
    """-x log(x); -inf for x < 0."""
    return wide(_entr, x)


def _log_ratio(p: Any, q: Any) -> Any:
    """log(p / q), from p / q - 1 if they are close, and without overflow."""
    r = p / q
    close = (r > 0.5) & (r < 2.0)
    apart = where((r > 0.0) & (r < math.inf), ew.log(r), ew.log(p) - ew.log(q))
    return where(close, ew.log1p(where(close, (p - q) / q, 0.0)), apart)


def _where_positive(slope: Callable[[Any, Any], Any], otherwise: float) -> Callable:
    """A derivative where p and q are positive; at the boundary the constant, as in JAX."""

    def partial(out: Any, p: Any, q: Any) -> Any:
        inside = (p > 0.0) & (q > 0.0)
        return where(inside, slope(where(inside, p, 1.0), where(inside, q, 1.0)), otherwise)

    return partial


@with_derivatives(
    _where_positive(lambda p, q: _log_ratio(p, q) + 1.0, 0.0),
    _where_positive(lambda p, q: -p / q, 0.0),
)
def _rel_entr(p: Any, q: Any) -> Any:
    value = where((p == 0.0) & (q >= 0.0), 0.0, math.inf)
    value = where((p > 0.0) & (q > 0.0), p * _log_ratio(p, q), value)
    return where((p != p) | (q != q), math.nan, value)


@fused(arrays=2)
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """p log(p / q) for p, q > 0; 0 if p = 0 ≤ q; otherwise infinite."""
    return wide(_rel_entr, p, q)


@with_derivatives(_where_positive(_log_ratio, -1.0), _where_positive(lambda p, q: 1.0 - p / q, 1.0))
def _kl_div(p: Any, q: Any) -> Any:
    """q ((1 + r) log(1 + r) - r) with r = p / q - 1; for small r by its series."""
    entropy = _rel_entr(p, q)
    r = (p - q) / q
    close = (ew.abs(r) < 0.3) & (q > 0.0)
    r = where(close, r, 0.0)
    near = q * r * r * horner([(-1) ** k / ((k + 1) * (k + 2)) for k in range(28)], r, 0.3)
    return where(close, near, where(entropy == math.inf, math.inf, entropy - p + q))


@fused(arrays=2)
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """p log(p / q) - p + q: the nonnegative divergence of `rel_entr`."""
    return wide(_kl_div, p, q)


def _box_cox(log: Any, lmbda: Any) -> Any:
    """(exp(λ log) - 1) / λ; for small λ log by its series, for the derivatives at λ = 0."""
    power = lmbda * log
    small = ew.abs(power) < 1e-3
    p = where(small, power, 0.0)
    series = log * (1.0 + p * (0.5 + p * (1 / 6 + p * (1 / 24 + p * (1 / 120 + p / 720)))))
    flat = lmbda == 0.0
    series = where(flat & ~ew.is_finite(log), log, series)
    value = ew.expm1(where(small, 1.0, power)) / where(small, 1.0, lmbda)
    return where(small | flat, series, value)


@fused(arrays=2)
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """(x^lmbda - 1) / lmbda, and log(x) where lmbda is 0; NaN for x < 0."""
    return wide(lambda x, lmbda: _box_cox(ew.log(x), lmbda), x, lmbda)


@fused(arrays=2)
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """boxcox(1 + x, lmbda), accurate for small x."""
    return wide(lambda x, lmbda: _box_cox(ew.log1p(x), lmbda), x, lmbda)


# -- Bessel functions --


@fused(arrays=1)
def i0e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0, times exp(-|x|)."""
    return wide(special_functions.bessel_i0e, x)


@fused(arrays=1)
def i1e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 1, times exp(-|x|)."""
    return wide(special_functions.bessel_i1e, x)


def _i0_slope(out: Any, x: Any) -> Any:
    return _i1(x)


@with_derivatives(_i0_slope)
def _i0(x: Any) -> Any:
    return ew.exp(ew.abs(x)) * special_functions.bessel_i0e(x)


@with_derivatives(lambda out, x: _i0(x) - where(x == 0.0, 0.5, out / where(x == 0.0, 1.0, x)))
def _i1(x: Any) -> Any:
    return ew.exp(ew.abs(x)) * special_functions.bessel_i1e(x)


@fused(arrays=1)
def i0(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0."""
    return wide(_i0, x)


@fused(arrays=1)
def i1(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 1."""
    return wide(_i1, x)


AT_ONCE = 2  # steps of the recurrence per loop iteration: even orders have another weight


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind of orders 0, … v: an array of shape (v + 1, *z.shape).

    Ratios of neighbors by the continued fraction from order n_iter down (Miller's algorithm, DLMF
    3.6(iii)), normalized by J₀ + 2 J₂ + 2 J₄ + … = 1; n_iter must be well above |z| and v. For
    |z| ≥ 21 and orders up to |z|, by upward recurrence from the asymptotic series of J₀ and J₁
    (DLMF 10.17.3).
    """
    v, n_iter = as_integer(v, "bessel_jn: v"), as_integer(n_iter, "bessel_jn: n_iter")
    if not 0 <= v < n_iter:
        raise ValueError(
            f"bessel_jn: v must be at least 0 and below n_iter; got v={v}, n_iter={n_iter}."
        )
    return _bessel_jn(z, v, n_iter)


@fused(arrays=1)
def _bessel_jn(z: Any, v: int, n_iter: int) -> Any:
    def orders(z: Any) -> Any:
        return stack(_orders(v, n_iter)(z))

    return wide(orders, z, name="bessel_jn")


def _orders(v: int, n_iter: int) -> Any:
    """The function from z to J₀, … J_v, with J_n' = (J_(n-1) - J_(n+1)) / 2."""

    def slopes(out: Any, z: Any) -> Any:
        j = _orders(v + 1, n_iter + 1)(z)
        return (-j[1], *(0.5 * (j[n - 1] - j[n + 1]) for n in range(1, v + 1)))

    @with_derivatives(slopes)
    def bessel_jn(z: Any) -> Any:
        def down(k: Any, weight: float, r: Any, total: Any) -> tuple[Any, Any]:
            """From order k to k - 1: r = J_(k+1) / J_k, and the sum from J_k on divided by J_k;
            weight: of J_(k-1) in the sum."""
            below = 2.0 * k - z * r
            r = z / where(below == 0.0, 1e-30, below)
            return r, weight + r * total

        def some(_: Any, state: tuple) -> tuple:
            k, r, total = state
            for i in range(AT_ONCE):
                r, total = down(k - float(i), _weight(n_iter - i), r, total)
            return k - float(AT_ONCE), r, total

        loops = (n_iter - max(v, 1)) // AT_ONCE
        start = (z * 0 + float(n_iter), z * 0, z * 0 + _weight(n_iter + 1))
        _, r, total = fori_loop(0, loops, some, start)
        ratios = []
        for k in range(n_iter - loops * AT_ONCE, 0, -1):
            r, total = down(float(k), _weight(k) if k > 1 else 1.0, r, total)
            ratios.append(r)
        j = [1.0 / total]
        for r in ratios[: -v - 1 : -1]:
            j.append(j[-1] * r)
        large = ew.abs(z) > float(max(21, v))
        far = _upward(v, where(large, z, 21.0))
        return tuple(where(large, g, f) for f, g in zip(j, far, strict=True))

    return bessel_jn


def _weight(k: int) -> float:
    """The weight of J_(k-1), k > 1, in the normalization sum."""
    return 2.0 if k % 2 else 0.0


def _upward(v: int, z: Any) -> list[Any]:
    """J₀, … J_v for large |z|."""
    y = ew.abs(z)
    finite = ew.is_finite(y)
    y = where(finite, y, 21.0)
    cos, sin, square, orders = ew.cos(y), ew.sin(y), 1.0 / (y * y), []
    for n in (0, 1):
        a = [1.0]
        for k in range(1, 38):
            a.append(a[-1] * (4 * n * n - (2 * k - 1) ** 2) / (8 * k))
        p, q = [
            horner([(-1) ** k * c for k, c in enumerate(a[i::2])], square, 1 / 441) for i in (0, 1)
        ]
        q, plus, minus = q / y, sin + cos, sin - cos
        wave = p * minus + q * plus if n else p * plus - q * minus
        orders.append(wave / ew.sqrt(math.pi * y))
    for n in range(1, v):
        orders.append(2.0 * n / y * orders[n] - orders[n - 1])
    orders = [where(z < 0.0, -j, j) if n % 2 else j for n, j in enumerate(orders[: v + 1])]
    return [where(finite, j, where(z != z, z, 0.0)) for j in orders]


# -- spherical harmonics --


def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:
    """Spherical harmonics of degrees n ≥ 0 and orders m, |m| ≤ n, complex; 0 for |m| > n.

    theta: the polar angle, in [0, π]; phi: the azimuth. All four are broadcast together.
    n_max: an upper bound of n, for programs in which n is traced; larger n are clipped to n_max.
    diff_n: must be None: use transforms for derivatives.
    """
    if diff_n is not None:
        raise NotImplementedError(
            f"sph_harm_y: diff_n must be None; got {diff_n!r}. Use jvp or grad for derivatives."
        )
    for name, x in (("n", n), ("m", m)):
        if not is_integer(type_of(x).dtype):
            raise TypeError(
                f"sph_harm_y: {name} must be integers; got {type_of(x).str_short(True)}."
            )
    if n_max is None:
        n_max = max_of(n)  # pyright: ignore[reportAssignmentType] (an array, which `whole` reads)
    return _sph_harm_y(n, m, theta, phi, max(as_integer(n_max, "sph_harm_y: n_max"), 0))


@fused(arrays=4)
def _sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, n_max: int) -> Any:
    def harmonic(degree: Any, order: Any, theta: Any, phi: Any) -> Any:
        k = ew.abs(order)
        value = _legendre(ew.min(degree, degree * 0 + float(n_max)), k, theta, n_max)
        even = k * 0.5 == ew.floor(k * 0.5)
        value = where((order < 0.0) & ~even, -value, value)
        return ew.complex(value * ew.cos(order * phi), value * ew.sin(order * phi))

    return wide(harmonic, n, m, theta, phi, name="sph_harm_y")


def _legendre(n: Any, m: Any, theta: Any, n_max: int) -> Any:
    """P_n^m(cos θ), normalized: from the diagonal by sin θ, then upward in n (DLMF 14.10.3)."""
    cos, sin = ew.cos(theta), ew.sin(theta)
    sin = where(sin < 0.0, -sin, sin)  # √(1 - cos² θ)

    def step(_: Any, state: tuple) -> tuple:
        degree, before, now = state
        diagonal = degree <= m
        up = where(diagonal, 1.0, (4 * degree * degree - 1) / (degree * degree - m * m))
        back = ((degree - 1) ** 2 - m * m) / (4 * (degree - 1) ** 2 - 1)
        back = where(diagonal, 0.0, back)
        raised = ew.sqrt(up) * (cos * now - ew.sqrt(back) * before)
        lowered = -sin * ew.sqrt((2 * degree + 1) / (2 * degree)) * now
        new = where(diagonal, lowered, raised)
        old = where(diagonal, 0.0, now)
        there = degree <= n
        return degree + 1.0, where(there, old, before), where(there, new, now)

    start = (n * 0 + 1.0, n * 0 + theta * 0, n * 0 + theta * 0 + math.sqrt(0.25 / math.pi))
    found = fori_loop(0, n_max, step, start)[2]
    return where(m > n, 0.0, found)
