"""Matrix decompositions under NumPy's names: `linalg.cholesky`, `eigh`, `svd`, `qr` and others.

The last two dimensions are matrices; the others are batch dimensions, which are sharded without any
communication. Integers become floats. Where LAPACK fails, results are NaN, where NumPy raises an
error. Multiple results are a named tuple, as in NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import spectral
from shardwise._src.ops.linalg.factor import cholesky as cholesky_op
from shardwise._src.ops.linalg.lapack_kernels import hermitian_part, rows_of, scaled
from shardwise._src.ops.linalg.qr import geqrf
from shardwise._src.ops.linalg.qr import qr as qr_op
from shardwise._src.ops.linalg.singular_values import svd as svd_op
from shardwise._src.ops.linalg.triangular import INT32, adjoint, check_matrices, turned
from shardwise._src.ops.logical import where
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.sort import sort, take_along
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.convert import promote_inexact


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    Q: Any
    R: Any


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


@fused(arrays=1)
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with l lᴴ = a, or the upper triangular u with uᴴ u = a.

    Args:
      a: (…, n, n), Hermitian and positive definite; otherwise, the result is NaN.
      upper: whether to return u.
      symmetrize_input: whether to use (a + aᴴ) / 2; else the lower triangle of a.
    """
    (a,) = promote_inexact(a)
    check_matrices("cholesky", type_of(a))
    found = cholesky_op(hermitian_part(a) if symmetrize_input else a)
    return adjoint(found) if upper else found


# -- eigenvalues --


def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; always complex, unlike in NumPy.

    Args:
      a: (…, n, n).

    Returns:
      (eigenvalues, eigenvectors): (…, n) unordered, and (…, n, n) with unit eigenvectors as
      columns. Eigenvectors are differentiable only in `shardwise.lax.linalg.eig`.
    """
    (a,) = promote_inexact(a)
    return EigResult(*spectral.eig(a, left=False, right=True, differentiable=False))


@fused(arrays=1)
def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues of square matrices, (…, n, n): (…, n), complex and unordered."""
    (a,) = promote_inexact(a)
    return spectral.eig(a, left=False, right=False, differentiable=False)[0]


@fused(arrays=1)
def eigh_of(a: Any, lower: bool, symmetrize: bool, vectors: bool) -> Any:
    (a,) = promote_inexact(a)
    check_matrices("eigh", type_of(a))
    a = hermitian_part(a) if symmetrize else a
    found = spectral.eigh(a, lower=lower, vectors=vectors)
    return found if vectors else found[0]


def _is_lower(name: str, which: str | None) -> bool:
    if which not in (None, "L", "U"):
        raise ValueError(f"{name}: UPLO must be 'L', 'U' or None; got {which!r}.")
    return which != "U"


def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Args:
      a: (…, n, n).
      UPLO: which triangle is read, "L" or "U", if the input is not symmetrized.
      symmetrize_input: whether to use (a + aᴴ) / 2.

    Returns:
      (eigenvalues, eigenvectors): (…, n), ascending and real, and (…, n, n) with eigenvectors as
      columns. Derivatives of eigenvectors are infinite or NaN where two eigenvalues are equal.
    """
    return EighResult(*reversed(eigh_of(a, _is_lower("eigh", UPLO), symmetrize_input, True)))


@eager_jit
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Eigenvalues of Hermitian matrices, (…, n, n), in ascending order; arguments as for `eigh`."""
    return eigh_of(a, _is_lower("eigvalsh", UPLO), symmetrize_input, False)


# -- singular values --


@fused(arrays=1)
def _svd(a: Any, full: bool, vectors: bool, part: Any) -> Any:
    (a,) = promote_inexact(a)
    s, *rest = svd_op(a, full_matrices=full, vectors=vectors)
    return chosen(s, rest, part)


def chosen(s: Any, rest: Any, part: Any) -> Any:
    """(u, s, vᴴ), or s, in this range."""
    if part is not None:
        s = slice_in_dim(s, *part, axis=type_of(s).ndim - 1)
        rest = [
            slice_in_dim(y, *part, axis=type_of(y).ndim - at)
            for y, at in zip(rest, (1, 2), strict=False)
        ]
    return [rest[0], s, rest[1]] if rest else s


@fused(arrays=1)
def _hermitian_svd(a: Any, vectors: bool, part: Any) -> Any:
    """Uses eigenvalues: absolute values in descending order; the signs go to the right vectors."""
    (a,) = promote_inexact(a)
    check_matrices("svd", type_of(a))
    if not vectors:
        (w,) = spectral.eigh(hermitian_part(a), lower=True, vectors=False)
        axis = type_of(w).ndim - 1
        (s,) = sort(ew.neg(ew.abs(w)), dimension=axis)
        return chosen(ew.neg(s), [], part)
    v, w = spectral.eigh(hermitian_part(a), lower=True, vectors=True)
    t = type_of(w)
    places = iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1)
    s, places = sort(ew.neg(ew.abs(w)), places, dimension=t.ndim - 1)
    w = take_along(w, places, t.ndim - 1)
    u = take_along(v, rows_of(places, t.shape[-1]), t.ndim)
    signs = where(ew.lt(w, lit(0, w)), lit(-1, w), lit(1, w))
    return chosen(ew.neg(s), [u, adjoint(scaled(u, signs))], part)


def checked_range(name: str, part: Any, count: int) -> tuple[int, int] | None:
    """The index range that is requested; None for all."""
    if part is None:
        return None
    start, end = part
    if not 0 <= start < end <= count:
        raise ValueError(
            f"{name}: subset_by_index must be a range between 0 and {count}; got {part}."
        )
    return None if (start, end) == (0, count) else (start, end)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array | SVDResult:
    """Singular values and vectors of matrices: a = U S Vh.

    Args:
      a: (…, m, n).
      full_matrices: whether U and Vh are square; else they have min(m, n) columns and rows.
      compute_uv: whether to compute the singular vectors.
      hermitian: whether a is Hermitian, so that eigenvalues are used.
      subset_by_index: (start, end): returns only these singular values; all are computed.

    Returns:
      (U, S, Vh), or only S, which is real and descending.

    Raises:
      NotImplementedError: for derivatives of the vectors of full non-square matrices.
    """
    part = checked_range("svd", subset_by_index, min(type_of(a).shape[-2:], default=0))
    if part is not None and full_matrices and compute_uv:
        raise ValueError("svd: subset_by_index requires full_matrices=False.")
    found = (
        _hermitian_svd(a, compute_uv, part)
        if hermitian
        else _svd(a, full_matrices, compute_uv, part)
    )
    return SVDResult(*found) if compute_uv else found


def singular_values(x: Any, hermitian: bool = False) -> Any:
    """Singular values in descending order, for callers that are fused themselves."""
    return _hermitian_svd(x, False, None) if hermitian else _svd(x, False, False, None)


@eager_jit
def svdvals(x: ArrayLike, /) -> Array:
    """Singular values of matrices, (…, m, n), in descending order: (…, min(m, n))."""
    return _svd(x, False, False, None)


# -- qr --


@fused(arrays=1)
def _raw_qr(a: Any) -> Any:
    (a,) = promote_inexact(a)
    found, taus = geqrf(a)
    return [turned(found), taus]


def qr(a: ArrayLike, mode: str = "reduced") -> Array | QRResult:
    """Orthogonal and triangular factors of matrices: a = Q R.

    Args:
      a: (…, m, n).
      mode: "reduced" (or "full", as in NumPy): Q with min(m, n) columns; "complete": Q is square;
        "r": only R; "raw": LAPACK's Householder reflectors, transposed, and their scales, which are
        not differentiable.

    Returns:
      (Q, R), or R.
    """
    if mode == "raw":
        return QRResult(*_raw_qr(a))
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"qr: mode must be 'reduced', 'complete', 'r' or 'raw'; got {mode!r}.")
    (a,) = promote_inexact(a)
    q, r = qr_op(a, full_matrices=mode == "complete", pivoting=False)
    return r if mode == "r" else QRResult(q, r)
