"""Special functions of each element."""

from __future__ import annotations

from typing import Any

from shardwise._src.ops import incomplete, special


def erf(x: Any) -> Any:
    """Error function."""
    return special.erf(x)


def erfc(x: Any) -> Any:
    """1 - erf(x), exact where it is small."""
    return special.erfc(x)


def erf_inv(x: Any) -> Any:
    """Inverse of erf."""
    return special.erf_inv(x)


def lgamma(x: Any) -> Any:
    """Logarithm of the absolute value of the gamma function."""
    return special.lgamma(x)


def digamma(x: Any) -> Any:
    """Derivative of the logarithm of the gamma function."""
    return special.digamma(x)


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma."""
    return special.polygamma(m, x)


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz zeta function: the sum of 1 / (n + q)^x over n from 0."""
    return special.zeta(x, q)


def bessel_i0e(x: Any) -> Any:
    """Modified Bessel function of the first kind and order 0, times exp(-|x|)."""
    return special.bessel_i0e(x)


def bessel_i1e(x: Any) -> Any:
    """Modified Bessel function of the first kind and order 1, times exp(-|x|)."""
    return special.bessel_i1e(x)


def igamma(a: Any, x: Any) -> Any:
    """Regularized lower incomplete gamma function P(a, x)."""
    return incomplete.igamma(a, x)


def igammac(a: Any, x: Any) -> Any:
    """Regularized upper incomplete gamma function Q(a, x)."""
    return incomplete.igammac(a, x)


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Derivative of `igamma` with respect to a."""
    return incomplete.igamma_grad_a(a, x)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Regularized incomplete beta function I_x(a, b)."""
    return incomplete.regularized_incomplete_beta(a, b, x)
