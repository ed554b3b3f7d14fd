"""Special functions of each element."""

from __future__ import annotations

from shardwise._src.ops import incomplete, special
from shardwise._src.types.annotations import Array, ArrayLike


def erf(x: ArrayLike) -> Array:
    """Error function."""
    return special.erf(x)


def erfc(x: ArrayLike) -> Array:
    """1 - erf(x), exact where it is small."""
    return special.erfc(x)


def erf_inv(x: ArrayLike) -> Array:
    """Inverse of erf."""
    return special.erf_inv(x)


def lgamma(x: ArrayLike) -> Array:
    """Logarithm of the absolute value of the gamma function."""
    return special.lgamma(x)


def digamma(x: ArrayLike) -> Array:
    """Derivative of the logarithm of the gamma function."""
    return special.digamma(x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The m-th derivative of digamma."""
    return special.polygamma(m, x)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz zeta function: the sum of 1 / (n + q)^x over n from 0."""
    return special.zeta(x, q)


def bessel_i0e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0, times exp(-|x|)."""
    return special.bessel_i0e(x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 1, times exp(-|x|)."""
    return special.bessel_i1e(x)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized lower incomplete gamma function P(a, x)."""
    return incomplete.igamma(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized upper incomplete gamma function Q(a, x)."""
    return incomplete.igammac(a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Derivative of `igamma` with respect to a."""
    return incomplete.igamma_grad_a(a, x)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Regularized incomplete beta function I_x(a, b)."""
    return incomplete.regularized_incomplete_beta(a, b, x)
