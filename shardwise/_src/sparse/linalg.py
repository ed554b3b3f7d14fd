"""Sparse linear algebra: direct solvers, and the largest eigenvalues."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.control.while_api import while_loop
from shardwise._src.core.fused import fused
from shardwise._src.custom.implicit import custom_linear_solve
from shardwise._src.debug.host_callbacks import pure_callback
from shardwise._src.lax.contraction import dot
from shardwise._src.linalg.decompositions import eigh, qr
from shardwise._src.linalg.norms import norm
from shardwise._src.numpy.creation import asarray, zeros, zeros_like
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.sparse.bcsr import BCSR
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer


def spsolve(
    data: ArrayLike,
    indices: ArrayLike,
    indptr: ArrayLike,
    b: ArrayLike,
    tol: float = 1e-6,
    reorder: int = 1,
) -> Array:
    """The solution x of `A x = b` for a square CSR matrix A, by LU factorization on the host.

    Args:
      data, indices, indptr: of A, in CSR format: nse elements, their column indices, and the start
        of each of the n rows.
      b: a vector of n elements of the dtype of data (float32, float64, complex64 or complex128).
      tol, reorder: options of JAX's GPU solver; checked, but without effect.

    Returns:
      A vector like b; NaN for a singular A. Supports derivatives in data and b, and `vmap`.

    Raises:
      TypeError, ValueError: for invalid dtypes or shapes.

    Source: `scipy.sparse.linalg.spsolve` (SuperLU).
    """
    what = "shardwise.experimental.sparse.linalg.spsolve"
    data, indices, indptr, b = map(asarray, (data, indices, indptr, b))
    if data.dtype != b.dtype or np.dtype(data.dtype) not in _SOLVED:
        raise TypeError(
            f"{what}: data and b must have the same dtype, float32, float64, complex64 or "
            f"complex128; got {data.dtype} and {b.dtype}."
        )
    if not (is_integer(indices.dtype) and is_integer(indptr.dtype)):
        raise TypeError(
            f"{what}: indices and indptr must be integers; got {indices.dtype}, {indptr.dtype}."
        )
    shapes = data.shape, indices.shape, indptr.shape, b.shape
    if {len(s) for s in shapes} != {1} or shapes[0] != shapes[1] or len(indptr) != len(b) + 1:
        raise ValueError(
            f"{what} takes vectors, with one more element in indptr than in b, and as many in "
            f"indices as in data; got shapes {', '.join(map(str, shapes))}."
        )
    if reorder not in (0, 1, 2, 3):
        raise ValueError(f"{what}: reorder must be 0, 1, 2 or 3; got {reorder!r}.")
    float(tol)
    like = ShapeDtypeStruct(b.shape, b.dtype)
    matrix = BCSR((data, indices, indptr), shape=(len(b), len(b)))

    def solver(fun: Callable) -> Callable:
        args = data, indices, indptr
        return lambda _, y: pure_callback(fun, like, *args, y, vmap_method="sequential")

    return custom_linear_solve(lambda x: matrix @ x, b, solver(_on_host), solver(_turned))


_SOLVED = tuple(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


def _on_host(data: Any, indices: Any, indptr: Any, b: Any, transposed: bool = False) -> Any:
    with uninterrupted():
        import scipy.sparse
        import scipy.sparse.linalg

    kind = scipy.sparse.csc_matrix if transposed else scipy.sparse.csr_matrix
    n, rows = len(b), np.asarray(indptr)
    used = int(rows[-1])  # elements after the last row are ignored
    args = np.asarray(data)[:used], np.asarray(indices)[:used], rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about singular matrices, whose solution is NaN
        found = scipy.sparse.linalg.spsolve(kind(args, shape=(n, n)).tocsc(), np.asarray(b))
    return np.asarray(found, np.asarray(b).dtype)


def _turned(*args: Any) -> Any:
    return _on_host(*args, transposed=True)


def lobpcg_standard(
    A: Any, X: ArrayLike, m: int = 100, tol: float | Array | None = None
) -> tuple[Array, Array, Array]:
    """The k largest eigenvalues of a Hermitian matrix, and their eigenvectors, by LOBPCG.

    Args:
      A: of shape (n, n): a dense or sparse array, or a function that multiplies it by (n, j).
      X: the initial guess, of shape (n, k), linearly independent, with 5 k < n.
      m: the maximum number of steps.
      tol: an eigenvalue has converged when |A v - λ v| < tol · 10 n (λ + |A v|); by default the
        precision of the dtype.

    Returns:
      (λ in descending order, of shape (k,); vectors, of shape (n, k); the number of steps)

    Raises:
      ValueError: for invalid shapes or dtypes.

    Source: A. Knyazev, SIAM J. Sci. Comput. 23 (2001), with orthonormal bases of the spans of X,
    residuals and last steps (Duersch et al., arXiv:1704.07458).
    """
    what = "shardwise.experimental.sparse.linalg.lobpcg_standard"
    first: Any = asarray(X)
    (n, k), dtype = first.shape, first.dtype
    if not 0 < k * 5 < n:
        raise ValueError(f"{what}: X must have k columns with 0 < 5 k < n; got k={k}, n={n}.")
    times: Any = A if callable(A) else lambda x: A @ x
    out = times(zeros((n, 1), dtype))
    if out.dtype != dtype or out.shape != (n, 1):
        raise ValueError(
            f"{what}: A must be of shape ({n}, {n}) and of the dtype of X, {dtype}; its products "
            f"are {out.dtype} of shape {out.shape}."
        )
    limit = 10 * n * (float(np.finfo(dtype).eps) if tol is None else tol)

    def rayleigh_ritz(S: Any) -> tuple[Any, Any]:
        values, vectors = eigh(_mm(S.T.conj(), times(S)))
        return values[::-1], vectors[:, ::-1]

    def residual(X: Any, theta: Any) -> tuple[Any, Any]:
        AX = times(X)
        R = AX - theta * X
        found = norm(R, axis=0) < limit * (norm(AX, axis=0) + theta)
        return R, found.sum()

    def body(state: Any) -> Any:
        i, X, P, R, _, _ = state
        S = qr(concatenate([X, _beside(X, R), _beside(X, P)], 1))[0]
        theta, Y = rayleigh_ritz(S)
        theta, Y = theta[:k], Y[:, :k]
        P = _mm(S[:, k:], Y[k:])  # the step, without its component in X
        X = _mm(S, Y)
        R, found = residual(X, theta)
        return i + 1, X, P, R, found, theta

    first = qr(first)[0]
    theta, Y = rayleigh_ritz(first)
    first = _mm(first, Y)
    R, found = residual(first, theta)
    state = asarray(0), first, zeros_like(first), R, found * 0, theta
    i, vectors, _, _, _, theta = while_loop(lambda s: (s[0] < index(m)) & (s[4] < k), body, state)
    return theta, vectors, i


def _mm(a: Any, b: Any) -> Any:
    return dot(a, b, precision="highest")


@fused(arrays=2)
def _beside(X: Any, R: Any) -> Any:
    """The component of R orthogonal to X, with normalized columns."""
    for _ in range(2):
        R = R - _mm(X, _mm(X.T.conj(), R))
        size = norm(R, axis=0)
        R = R / where(size == 0, 1, size)
    return R
