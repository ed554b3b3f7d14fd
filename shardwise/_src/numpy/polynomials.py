"""Polynomials as vectors of coefficients, the highest power first.

    polyval([1, 0, 2], x)       # of asarray: x² + 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused, one_program
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.binary import add, divide, multiply, subtract
from shardwise._src.numpy.convert import promote, promote_inexact, whole
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.shapes import atleast_1d
from shardwise._src.numpy.signal import convolve
from shardwise._src.ops.create import full
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike


def _vector(x: Any, name: str) -> Any:
    x = atleast_1d(x)
    if type_of(x).ndim != 1:
        raise ValueError(f"{name}: takes vectors; got {type_of(x).str_short(True)}.")
    return x


def _lengthened(x: Any, size: int) -> Any:
    """With zeros in front, for the higher powers."""
    t = type_of(x)
    zeros = full(0, (size - t.shape[0],), t.dtype)
    return concatenate([zeros, x]) if size > t.shape[0] else x


@fused(arrays=2)
def _combined(a1: Any, a2: Any, name: str) -> Any:
    a1, a2 = promote(_vector(a1, name), _vector(a2, name))
    size = max(type_of(a1).shape[0], type_of(a2).shape[0])
    op = add if name == "polyadd" else subtract
    return op(_lengthened(a1, size), _lengthened(a2, size))


@one_program(arrays=2)
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials."""
    return _combined(as_operand(a1), as_operand(a2), "polyadd")


@one_program(arrays=2)
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials."""
    return _combined(as_operand(a1), as_operand(a2), "polysub")


@one_program(arrays=2)
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    trim_leading_zeros: whether zeros in front are left out first; the values must be known then.
    """
    if trim_leading_zeros:
        a1, a2 = [asarray(np.trim_zeros(np.atleast_1d(np.asarray(a)), "f")) for a in (a1, a2)]
    return convolve(atleast_1d(as_operand(a1)), atleast_1d(as_operand(a2)))


@fused(arrays=2)
def _polyval(p: Any, x: Any) -> Any:
    p = _vector(p, "polyval")
    p, x = promote(p, x)
    t = type_of(x)
    y = full(0, t.shape, t.dtype)
    for i in range(type_of(p).shape[0]):
        y = add(multiply(y, x), p[i])
    return y


@one_program(arrays=2)
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The values of the polynomial `p` at `x`, by Horner's rule; `unroll` has no effect."""
    return _polyval(as_operand(p), as_operand(x))


@fused(arrays=1)
def _polyder(p: Any, m: int) -> Any:
    (p,) = promote_inexact(_vector(p, "polyder"))
    for _ in range(m):
        size = max(type_of(p).shape[0], 1)
        powers = np.arange(size - 1, 0, -1).astype(type_of(p).dtype)
        p = multiply(slice_in_dim(p, 0, size - 1, 0), powers)
    return p


@one_program
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial."""
    times = whole(m, "polyder: m")
    if times < 0:
        raise ValueError(f"polyder: m must be at least 0; got {times}.")
    return _polyder(as_operand(p), times)


@fused(arrays=2)
def _polyint(p: Any, k: Any, m: int) -> Any:
    p, k = promote_inexact(_vector(p, "polyint"), _vector(k, "polyint"))
    if type_of(k).shape[0] not in (1, m):
        raise ValueError(f"polyint: k must be a scalar or have {m} elements; "
                         f"got {type_of(k).str_short(True)}.")
    for i in range(m):
        powers = np.arange(type_of(p).shape[0], 0, -1).astype(type_of(p).dtype)
        j = i if type_of(k).shape[0] > 1 else 0
        p = concatenate([divide(p, powers), slice_in_dim(k, j, j + 1, 0)])
    return p


@one_program
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | Sequence[ArrayLike] | None = None) -> Array:
    """The m-th antiderivative of a polynomial. k: constants of integration, zero by default."""
    times = whole(m, "polyint: m")
    if times < 0:
        raise ValueError(f"polyint: m must be at least 0; got {times}.")
    return _polyint(as_operand(p), 0 if k is None else as_operand(k), times)


@fused(arrays=1)
def _poly(roots: Any) -> Any:
    (roots,) = promote_inexact(_vector(roots, "poly"))
    t = type_of(roots)
    p = full(1, (1,), t.dtype)
    zero = full(0, (1,), t.dtype)
    for i in range(t.shape[0]):
        lower = multiply(concatenate([zero, p]), roots[i])
        p = subtract(concatenate([p, zero]), lower)
    return p


@one_program
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with the given roots, and leading coefficient 1."""
    return _poly(as_operand(seq_of_zeros))
