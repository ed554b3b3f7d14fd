"""Special functions of each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.accuracy import Accuracy as Accuracy
from shardwise._src.lax.accuracy import check_accuracy
from shardwise._src.lax.broadcasting import alike
from shardwise._src.numpy.joining import stack
from shardwise._src.ops.special import incomplete, special_functions
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.array_type import in_row
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.symbolic import broadcast_shapes
from shardwise._src.values.binary import add, multiply
from shardwise._src.values.convert import as_integer, broadcast_to, cast, constant


def erf(x: ArrayLike) -> Array:
    """Error function."""
    return special_functions.erf(x)


def erfc(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """1 - erf(x), accurate where it is small."""
    if accuracy is not None:
        check_accuracy(accuracy, "erfc")
    return special_functions.erfc(x)


def erf_inv(x: ArrayLike) -> Array:
    """Inverse of erf."""
    return special_functions.erf_inv(x)


def lgamma(x: ArrayLike) -> Array:
    """Logarithm of the absolute value of the gamma function."""
    return special_functions.lgamma(x)


def digamma(x: ArrayLike) -> Array:
    """Derivative of the logarithm of the gamma function."""
    return special_functions.digamma(x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The m-th derivative of digamma."""
    return special_functions.polygamma(*alike(m, x))


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz zeta function: the sum of 1 / (n + q)^x over n from 0."""
    return special_functions.zeta(*alike(x, q))


def bessel_i0e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 0, times exp(-|x|)."""
    return special_functions.bessel_i0e(x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind and order 1, times exp(-|x|)."""
    return special_functions.bessel_i1e(x)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized lower incomplete gamma function P(a, x)."""
    return incomplete.igamma(*alike(a, x))


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized upper incomplete gamma function Q(a, x)."""
    return incomplete.igammac(*alike(a, x))


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Derivative of `igamma` with respect to a."""
    return incomplete.igamma_grad_a(*alike(a, x))


def random_gamma_grad(a: ArrayLike, x: ArrayLike, *, dtype: DTypeLike | None = None) -> Array:
    """Derivative with respect to a of samples x of the gamma distribution with shape a, scale 1.

    This is the derivative of the quantile that the sample represents: 0 for x = 0, and NaN if x or
    a is NaN, x is negative or a is not positive.

    dtype: the dtype of a and x; any other is rejected.
    """
    own = type_of(a).dtype
    if dtype is not None and canonicalize(dtype) != own:
        raise TypeError(
            f"random_gamma_grad: dtype must be that of a and x, which is {own}; got "
            f"{canonicalize(dtype)}. Convert them with `shardwise.lax.convert_element_type`."
        )
    return _random_gamma_grad(*alike(a, x))


@fused(arrays=2)
def _random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    return incomplete.random_gamma_grad(a, x)


def polynomial(x: ArrayLike, coeffs: Sequence[ArrayLike], *, unroll: int | None = None) -> Array:
    """coeffs[0] + coeffs[1] x + coeffs[2] x² + …, by Horner's rule.

    Args:
      x: numbers.
      coeffs: scalars, or arrays with the dimensions of `x`, each of the same size or 1; they are
        converted to the dtype of `x`. Without any, the result is 0.
      unroll: the maximum number of terms to unroll; more become a loop. By default 8.

    Returns:
      An array of the dtype of `x`, in the broadcast shape.

    Raises:
      TypeError: if the rank of an array differs from that of `x`.
    """
    t, rest = type_of(x), [type_of(c) for c in coeffs]
    ranks = {u.ndim for u in (t, *rest) if u.ndim}
    if len(ranks) > 1:
        raise TypeError(
            "polynomial: x and the coefficients must be scalars or have the same number of "
            f"dimensions; got {in_row((t, *rest))}. Reshape them, or use "
            "`shardwise.numpy.polyval`, which broadcasts."
        )
    limit = 8 if unroll is None else as_integer(unroll, "polynomial: unroll")
    return _polynomial(x, *coeffs, limit=limit)


@fused
def _polynomial(x: Any, *coeffs: Any, limit: int) -> Any:
    t = type_of(x)
    if not coeffs:
        return multiply(x, constant(0, x))
    shape = broadcast_shapes(t.shape, *[type_of(c).shape for c in coeffs])
    own = [cast(c, t.dtype, t.weak_type and type_of(c).weak_type) for c in coeffs]
    out = broadcast_to(own[-1], shape)
    if len(own) <= max(limit, 1):
        for c in reversed(own[:-1]):
            out = add(multiply(out, x), c)
        return out
    rows = [broadcast_to(c, shape) for c in reversed(own[:-1])]
    return scan(lambda out, c: (add(multiply(out, x), c), None), out, stack(rows))[0]


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Regularized incomplete beta function I_x(a, b)."""
    return incomplete.regularized_incomplete_beta(*alike(a, b, x))
