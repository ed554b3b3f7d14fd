"""Polynomials as vectors of coefficients, with the highest power first.

For example:

    polyval([1, 0, 2], x)       # of asarray: x² + 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import eigvals
from shardwise._src.linalg.linear_systems import inv, lstsq
from shardwise._src.numpy.creation import as_operand, asarray, zeros
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.rearrange import known, roll
from shardwise._src.numpy.shapes import atleast_1d, reshape
from shardwise._src.numpy.statistics.reductions import all, argmin, sum
from shardwise._src.numpy.triangles import vander
from shardwise._src.numpy.unary import absolute, imag, negative, real, sqrt
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import complex as complex_op
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.sort import sort as sort_op
from shardwise._src.signal.correlate import convolve
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import complex_dtype, finfo, real_dtype
from shardwise._src.values.binary import add, divide, equal, less, multiply, subtract
from shardwise._src.values.convert import as_integer, cast, promote, promote_inexact


def _vector(x: Any, name: str) -> Any:
    x = atleast_1d(x)
    if type_of(x).ndim != 1:
        raise ValueError(f"{name} takes vectors; got {type_of(x).str_short(True)}.")
    return x


def _lengthened(x: Any, size: int) -> Any:
    """Prepends zeros, for the higher powers."""
    t = type_of(x)
    zeros = full(0, (size - t.shape[0],), t.dtype)
    return concatenate([zeros, x]) if size > t.shape[0] else x


@fused(arrays=2)
def _combined(a1: Any, a2: Any, name: str) -> Any:
    a1, a2 = promote(_vector(a1, name), _vector(a2, name))
    size = max(type_of(a1).shape[0], type_of(a2).shape[0])
    op = add if name == "polyadd" else subtract
    return op(_lengthened(a1, size), _lengthened(a2, size))


@eager_jit(arrays=2)
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials."""
    return _combined(as_operand(a1), as_operand(a2), "polyadd")


@eager_jit(arrays=2)
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials."""
    return _combined(as_operand(a1), as_operand(a2), "polysub")


@eager_jit(arrays=2)
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    trim_leading_zeros: whether to remove leading zeros first; the values must then be concrete.
    """
    if trim_leading_zeros:
        a1, a2 = [asarray(np.trim_zeros(np.atleast_1d(np.asarray(a)), "f")) for a in (a1, a2)]
    return convolve(_terms(a1), _terms(a2))


def _terms(p: ArrayLike) -> Any:
    """Coefficients as a vector; an empty polynomial is 0."""
    p = atleast_1d(as_operand(p))
    t = type_of(p)
    return p if t.size else full(0, (1,), t.dtype)


@fused(arrays=2)
def _polyval(p: Any, x: Any) -> Any:
    p, x = promote(atleast_1d(p), x)
    count, *shape = type_of(p).shape
    y = full(0, np.broadcast_shapes(tuple(shape), type_of(x).shape), type_of(x).dtype)
    for i in range(count):
        y = add(multiply(y, x), p[i])
    return y


@eager_jit(arrays=2)
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The values of the polynomial `p` at `x`, by Horner's rule; `unroll` has no effect.

    p: coefficients along the first dimension; its other dimensions broadcast with `x`.
    """
    return _polyval(as_operand(p), as_operand(x))


@fused(arrays=1)
def _polyder(p: Any, m: int) -> Any:
    (p,) = promote_inexact(_vector(p, "polyder"))
    for _ in range(m):
        size = max(type_of(p).shape[0], 1)
        powers = np.arange(size - 1, 0, -1).astype(type_of(p).dtype)
        p = multiply(slice_in_dim(p, 0, size - 1, 0), powers)
    return p


@eager_jit
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial."""
    times = as_integer(m, "polyder: m")
    if times < 0:
        raise ValueError(f"polyder: m must be at least 0; got {times}.")
    return _polyder(as_operand(p), times)


@fused(arrays=2)
def _polyint(p: Any, k: Any, m: int) -> Any:
    p, k = promote_inexact(_vector(p, "polyint"), _vector(k, "polyint"))
    if type_of(k).shape[0] not in (1, m):
        raise ValueError(
            f"polyint: k must be a scalar or have {m} elements; got {type_of(k).str_short(True)}."
        )
    for i in range(m):
        powers = np.arange(type_of(p).shape[0], 0, -1).astype(type_of(p).dtype)
        j = i if type_of(k).shape[0] > 1 else 0
        p = concatenate([divide(p, powers), slice_in_dim(k, j, j + 1, 0)])
    return p


@eager_jit
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | Sequence[ArrayLike] | None = None) -> Array:
    """The m-th antiderivative of a polynomial. k: constants of integration, zero by default."""
    times = as_integer(m, "polyint: m")
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


@eager_jit
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with the given roots, and leading coefficient 1.

    seq_of_zeros: (n,), or a square matrix, (n, n), whose eigenvalues are then the roots; the result
      is then complex, unlike in NumPy if they are real.
    """
    roots = as_operand(seq_of_zeros)
    shape = type_of(roots).shape
    if len(shape) == 2 and shape[0] == shape[1] > 0:
        roots = eigvals(roots)
    elif len(shape) > 1:
        raise ValueError(
            "poly takes a vector of roots or a nonempty square matrix; got "
            f"{type_of(roots).str_short(True)}."
        )
    out = _poly(roots)
    return reshape(out, ()) if shape == (0,) else out  # as in NumPy


@fused(arrays=2)
def _polydiv(u: Any, v: Any) -> tuple[Any, Any]:
    u, v = promote_inexact(_vector(u, "polydiv"), _vector(v, "polydiv"))
    m, n = type_of(u).shape[0], type_of(v).shape[0]
    if not n or not m:
        raise ValueError("polydiv: a polynomial must have at least one coefficient.")
    found = [full(0, (1,), type_of(u).dtype)]
    for k in range(m - n + 1):
        part = divide(slice_in_dim(u, k, k + 1, 0), slice_in_dim(v, 0, 1, 0))
        low, high = slice_in_dim(u, 0, k, 0), slice_in_dim(u, k + n, m, 0)
        middle = subtract(slice_in_dim(u, k, k + n, 0), multiply(part, v))
        u = concatenate([low, middle, high])
        found.append(part)
    return concatenate(found[1:] or found), u


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of polynomials, by long division.

    trim_leading_zeros: whether to remove leading zeros of the remainder, up to the square root of
      the machine epsilon, as NumPy does; the values must then be concrete.
    """
    quotient, rest = _polydiv(as_operand(u), as_operand(v))
    if trim_leading_zeros:
        values = known(rest, "polydiv: the remainder")
        large = np.flatnonzero(np.abs(values) > np.sqrt(finfo(values.dtype).eps))
        rest = rest[int(large[0]) if large.size else -1 :]
    return quotient, rest


@fused(arrays=1)
def _companions(p: Any) -> Any:
    """The roots of p, as the eigenvalues of its companion matrix."""
    n = type_of(p).shape[0]
    first = divide(negative(slice_in_dim(p, 1, n, 0)), slice_in_dim(p, 0, 1, 0))
    below = np.eye(n - 2, n - 1).astype(type_of(p).dtype)
    return eigvals(concatenate([reshape(first, (1, n - 1)), below]))


@fused(arrays=1)
def _roots_of_traced(p: Any) -> Any:
    """Returns NaN for each leading zero: these move to the end, where they are roots of 0."""
    n = type_of(p).shape[0]
    zero = equal(p, 0)
    count = where(all(zero), n, argmin(zero))
    found = _companions(where(equal(count, n), 1, roll(p, negative(count))))
    parts = sort_op(negative(absolute(found)), real(found), imag(found), dimension=0, num_keys=1)
    found = complex_op(*parts[1:])
    return where(less(np.arange(n - 1), subtract(n - 1, count)), found, complex(np.nan, np.nan))


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, complex and unordered: eigenvalues of its companion matrix.

    strip_zeros: whether to remove leading zeros, which requires concrete values. Otherwise each
      leading zero produces a NaN, and roots are in descending order of magnitude.
    """
    (x,) = promote_inexact(_vector(asarray(p), "roots"))
    (n,), kind = type_of(x).shape, complex_dtype(type_of(x).dtype)
    if n < 2:
        return zeros(0, kind)
    if not strip_zeros:
        return _roots_of_traced(x)
    places = np.flatnonzero(known(x, "roots: p, unless strip_zeros=False,"))
    if not places.size:
        return zeros(0, kind)
    first, last = int(places[0]), int(places[-1]) + 1
    found = _companions(x[first:last]) if last - first > 1 else zeros(0, kind)
    return concatenate([found, zeros(n - last, kind)]) if last < n else found


@fused
def _polyfit(*arrays: Any, deg: int, rcond: float | None, full: bool, cov: Any) -> Any:
    x, y, *weights = promote_inexact(*arrays)
    n = type_of(x).shape[0]
    left, right = vander(x, deg + 1), y
    if weights:
        left = multiply(left, weights[0][:, None])
        right = multiply(y, weights[0] if type_of(y).ndim == 1 else weights[0][:, None])
    bound = n * float(finfo(type_of(x).dtype).eps) if rcond is None else rcond
    scale = sqrt(sum(multiply(left, left), axis=0))
    left = divide(left, scale)
    found, residuals, rank, values = lstsq(left, right, bound)
    found = divide(found, scale if type_of(y).ndim == 1 else scale[:, None])
    if full:
        return found, residuals, rank, values, cast(bound, real_dtype(type_of(x).dtype))
    if not cov:
        return found
    spread = divide(inv(matmul(left.T, left)), multiply(scale[:, None], scale))
    if cov == "unscaled":
        return found, spread if type_of(y).ndim == 1 else spread[:, :, None]
    factor = divide(residuals, n - deg - 1)
    return found, multiply(spread, factor) if type_of(y).ndim == 1 else multiply(
        spread[:, :, None], factor
    )


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """The polynomial of degree `deg` that is the least-squares fit to the points (x, y).

    Args:
      x: (m,).
      y: (m,) or (m, k), for k polynomials.
      rcond: singular values up to rcond times the largest count as zero; by default m times the
        machine epsilon. Unlike NumPy, this does not warn about them.
      w: (m,), weights of the residuals.
      full, cov: what to return in addition.

    Returns:
      The coefficients, (deg + 1,) or (deg + 1, k); with `full` also the sums of squares, rank,
      singular values and rcond; else with `cov` the covariances of the coefficients, scaled by the
      mean squared residual unless `cov` is "unscaled".
    """
    degree = as_integer(deg, "polyfit: deg")
    if degree < 0:
        raise ValueError(f"polyfit: deg must be at least 0; got {degree}.")
    t, s = type_of(as_operand(x)), type_of(as_operand(y))
    if t.ndim != 1 or not t.size or s.ndim not in (1, 2) or s.shape[0] != t.shape[0]:
        raise TypeError(
            "polyfit takes a nonempty vector, and a vector or matrix with as many rows; got "
            f"{t.str_short(True)} and {s.str_short(True)}."
        )
    if w is not None and type_of(as_operand(w)).shape != t.shape:
        shown = type_of(as_operand(w)).str_short(True)
        raise TypeError(f"polyfit: w must have the shape of x, {t.shape}; got {shown}.")
    if cov and cov != "unscaled" and not full and t.shape[0] <= degree + 1:
        raise ValueError(
            f"polyfit: scaling the covariance requires more than {degree + 1} points; got "
            f"{t.shape[0]}."
        )
    given = [as_operand(v) for v in ((x, y) if w is None else (x, y, w))]
    made = _polyfit(*given, deg=degree, rcond=rcond, full=bool(full), cov=cov)
    return tuple(made) if isinstance(made, list) else made
