"""Matrix decompositions and solvers, as strict functions with JAX's names.

    l = cholesky(x)                       # f32[*, n, n]
    u, s, vh = svd(x, full_matrices=False)

The last two dimensions are matrices; the others are batch dimensions, sharded without any
communication. Operands are float32, float64, complex64 or complex128. If an algorithm fails, the
result is NaN. LAPACK computes them on CPU, cuSOLVER on CUDA, XLA's expansions on TPU.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

from shardwise._src.base.lazy import public
from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import checked_range, chosen
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import move_axis, reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import factor, forms, spectral, triangular
from shardwise._src.ops.linalg import lu as elimination
from shardwise._src.ops.linalg import qr as orthogonal
from shardwise._src.ops.linalg import singular_values as singular
from shardwise._src.ops.linalg.lapack_kernels import columns_of, hermitian_part
from shardwise._src.ops.linalg.triangular import INT32
from shardwise._src.ops.logical import where
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_complex

E = TypeVar("E", bound=enum.Enum)


@public("shardwise.lax.linalg")
class EigImplementation(enum.Enum):
    """Algorithms for eigenvalues of general matrices; here those of the platform."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


@public("shardwise.lax.linalg")
class EighImplementation(enum.Enum):
    """Algorithms for eigenvalues of Hermitian matrices; here those of the platform."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


@public("shardwise.lax.linalg")
class SvdAlgorithm(enum.Enum):
    """Algorithms for singular values; here the platform's default or, for QR, `gesvd`."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _choice(name: str, argument: str, value: Any, kind: type[E], built: tuple[E, ...]) -> Any:
    """A member of an enum, or of another library's enum with the same names."""
    if value is None:
        return None
    found = kind.__members__.get(getattr(value, "name", ""))
    if found is None:
        raise TypeError(
            f"{name}: {argument} must be one of {kind.__name__}, or None; got {value!r}."
        )
    if found not in built:
        known = " and ".join(str(x) for x in built)
        raise NotImplementedError(
            f"{name}: {argument} {found} is not implemented; the options are {known}, or None."
        )
    return found


# -- Cholesky factors --


@fused(arrays=1)
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with l lᴴ = x, or NaN if x is not positive definite.

    Args:
      x: (…, n, n), Hermitian.
      symmetrize_input: whether to use (x + xᴴ) / 2; otherwise the lower triangle of x.
    """
    triangular.check_matrices("cholesky", type_of(x))
    return factor.cholesky(hermitian_part(x) if symmetrize_input else x)


@fused(arrays=2)
def _cholesky_update(r: Any, w: Any) -> Any:
    t, v = type_of(r), type_of(w)
    triangular.check_matrices("cholesky_update", t)
    if v.shape != t.shape[:-1] or v.dtype != t.dtype:
        raise ValueError(
            "cholesky_update takes square matrices and vectors of their size and dtype; got "
            f"{t.str_short(True)} and {v.str_short(True)}."
        )
    rows = move_axis(r, t.ndim - 2, 0)

    def step(w: Any, given: Any) -> Any:
        k, row = given  # rotates w[k] into row[k]
        at = ew.eq(iota(dtype=INT32, shape=v.shape, dimension=v.ndim - 1), k)
        x, y = [reduce_sum(where(at, z, lit(0, z)), axes=(v.ndim - 1,)) for z in (row, w)]
        still = ew.eq(y, lit(0, y))
        scale = ew.max(ew.abs(x), ew.abs(y))
        scale = where(still, lit(1, scale), scale)
        a, b = ew.div(x, scale), ew.div(y, scale)
        length = ew.sqrt(where(still, lit(1, a), ew.add(ew.mul(a, a), ew.mul(b, b))))
        c = columns_of(where(still, lit(1, a), ew.div(a, length)), v.shape[-1])
        s = columns_of(where(still, lit(0, b), ew.div(b, length)), v.shape[-1])
        turned_row = ew.add(ew.mul(c, row), ew.mul(s, w))
        return ew.sub(ew.mul(c, w), ew.mul(s, row)), turned_row

    steps = iota(dtype=INT32, shape=(t.shape[-1],), dimension=0)
    _, found = scan(step, w, (steps, rows))
    return move_axis(found, 0, t.ndim - 2)


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular factor of rᵀ r + w wᵀ, by n rotations.

    Args:
      r_matrix: (…, n, n), upper triangular and real.
      w_vector: (…, n).
    """
    if any(is_complex(type_of(x).dtype) for x in (r_matrix, w_vector)):
        raise TypeError("cholesky_update takes real operands; got complex ones.")
    return _cholesky_update(r_matrix, w_vector)


# -- eigenvalues and singular values --


@fused(arrays=1)
def _eigh(x: Any, lower: bool, symmetrize: bool, part: Any) -> Any:
    triangular.check_matrices("eigh", type_of(x))
    v, w = spectral.eigh(hermitian_part(x) if symmetrize else x, lower=lower, vectors=True)
    if part is not None:
        v = slice_in_dim(v, *part, axis=type_of(v).ndim - 1)
        w = slice_in_dim(w, *part, axis=type_of(w).ndim - 1)
    return [v, w]


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of Hermitian matrices.

    Args:
      x: (…, n, n).
      lower: which triangle to read, if the input is not symmetrized.
      symmetrize_input: whether to use (x + xᴴ) / 2.
      sort_eigenvalues: no effect; they are always in ascending order.
      subset_by_index: (start, end), to return only these; all are computed.
      implementation: `EighImplementation.QR`, or None for the same.

    Returns:
      (v, w): eigenvectors as columns, (…, n, n), and eigenvalues, (…, n), real. Derivatives of
      eigenvectors are NaN or infinite if two eigenvalues are equal.
    """
    _choice("eigh", "implementation", implementation, EighImplementation, (EighImplementation.QR,))
    part = checked_range("eigh", subset_by_index, type_of(x).shape[-1] if type_of(x).ndim else 0)
    v, w = _eigh(x, lower, symmetrize_input, part)
    return v, w


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues and eigenvectors of square matrices.

    Args:
      x: (…, n, n).
      enable_eigvec_derivs: required for derivatives of eigenvectors. They are valid if all
        eigenvalues are distinct, for LAPACK's scaling: length 1, the largest component real.
      implementation: `EigImplementation.LAPACK`, or None for the same.
      use_magma: must not be True; MAGMA is not supported.

    Returns:
      [w, left vectors, right vectors], without the vectors that are not requested; complex.
      xᴴ vl = vl w̄ and x vr = vr w.
    """
    _no_magma("eig", use_magma)
    _choice("eig", "implementation", implementation, EigImplementation, (EigImplementation.LAPACK,))
    sides = {"left": compute_left_eigenvectors, "right": compute_right_eigenvectors}
    return list(spectral.eig(x, **sides, differentiable=enable_eigvec_derivs))


def _no_magma(name: str, use_magma: bool | None) -> None:
    if use_magma:
        raise NotImplementedError(f"{name}: MAGMA is not available; leave out `use_magma`.")


@fused(arrays=1)
def _svd(x: Any, full: bool, vectors: bool, part: Any, algorithm: str) -> Any:
    s, *rest = singular.svd(x, full_matrices=full, vectors=vectors, algorithm=algorithm)
    return chosen(s, rest, part)


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Array | tuple[Array, Array, Array]:
    """Singular value decomposition of matrices: x = u s vᴴ.

    Args:
      x: (…, m, n).
      full_matrices: whether u and vᴴ are square; otherwise they have min(m, n) columns and rows.
      compute_uv: whether to return the vectors.
      subset_by_index: (start, end), to return only these; all are computed.
      algorithm: DEFAULT and DIVIDE_AND_CONQUER use LAPACK's `gesdd`, on CUDA Jacobi rotations
        (above 1,024 rows or columns QR iterations); QR uses `gesvd`. TPU has one algorithm.

    Returns:
      (u, s, vᴴ), or s, which is real and descending.

    Raises:
      NotImplementedError: for derivatives of the vectors of full matrices that are not square, and
        for algorithms that are not implemented.
    """
    kinds = SvdAlgorithm.DEFAULT, SvdAlgorithm.QR, SvdAlgorithm.DIVIDE_AND_CONQUER
    chosen = _choice("svd", "algorithm", algorithm, SvdAlgorithm, kinds)
    t = type_of(x)
    part = checked_range("svd", subset_by_index, min(t.shape[-2:]) if t.ndim > 1 else 0)
    if part is not None and full_matrices and compute_uv:
        raise ValueError("svd: subset_by_index requires full_matrices=False.")
    name = "gesvd" if chosen is SvdAlgorithm.QR else "gesdd"
    found = _svd(x, full_matrices, compute_uv, part, name)
    return tuple(found) if compute_uv else found  # pyright: ignore[reportReturnType] (three arrays)


# -- elimination --


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """LU decomposition of matrices with row pivoting: x[permutation] = l u.

    Args:
      x: (…, m, n).

    Returns:
      (lu, pivots, permutation): u, and below its diagonal l, whose diagonal is all ones; the rows
      that were exchanged with rows 0, 1, …; and the resulting row order.
    """
    found, pivots, order = elimination.lu(x)
    return found, pivots, order


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The order of rows after exchanges of row i with row pivots[i], for i = 0, 1, ….

    Args:
      pivots: integers, (…, k).
      permutation_size: size of the permutation, at least k.
    """
    return elimination.lu_pivots_to_permutation(pivots, size=permutation_size)


# -- orthogonal factors --


def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """QR decomposition of matrices: x = q r, or x[:, p] = q r.

    Args:
      x: (…, m, n).
      pivoting: whether to exchange columns, so that r's diagonal descends.
      full_matrices: whether q is square; otherwise it has min(m, n) columns.
      use_magma: must not be True; MAGMA is not supported.

    Returns:
      (q, r), or (q, r, p).
    """
    _no_magma("qr", use_magma)
    found = orthogonal.qr(x, full_matrices=full_matrices, pivoting=pivoting)
    return tuple(found)  # pyright: ignore[reportReturnType] (two or three arrays)


@eager_jit(arrays=2)
def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first n columns of the product of reflections I - tau v vᴴ; not differentiable.

    Args:
      a: (…, m, n), m ≥ n: the vectors are below its diagonal, with an implicit leading one.
      taus: (…, k), k ≤ n.
    """
    return orthogonal.householder_product(a, taus)


@eager_jit(arrays=3)
def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> Array:
    """The product of reflections, as in `householder_product`, times c; not differentiable.

    Args:
      a: (…, m, n), m ≥ n.
      taus: (…, k), k ≤ n.
      c: (…, m, p), or (…, p, m) if the product is on the right.
      left: whether the product is on the left.
      transpose: whether to use its adjoint.
    """
    return orthogonal.ormqr(a, taus, c, left=left, adjoint=transpose)


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Array, ...]:
    """Schur decomposition of square matrices: x = z t zᴴ; not differentiable.

    Args:
      x: (…, n, n).
      compute_schur_vectors: whether to also return z.
      sort_eig_vals, select_callable: must be omitted; eigenvalues are in LAPACK's order.

    Returns:
      (t, z), or (t,). t is triangular; for real matrices it has 2×2 blocks on its diagonal for
      pairs of complex eigenvalues.
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError(
            "schur: eigenvalues cannot be sorted; leave out sort_eig_vals and select_callable."
        )
    return tuple(forms.schur(x, vectors=compute_schur_vectors))


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Reduction of square matrices to Hessenberg form by reflections; not differentiable.

    Args:
      a: (…, n, n).

    Returns:
      (a, taus): the form, with the reflections below its first subdiagonal, and their scales,
      (…, n - 1).
    """
    found, taus = forms.hessenberg(a)
    return found, taus


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Reduction of Hermitian matrices to tridiagonal form by reflections; not differentiable.

    Args:
      a: (…, n, n).
      lower: which triangle to read, and to store the reflections in.

    Returns:
      (a, d, e, taus): the form with reflections, its diagonal, its off-diagonal, their scales.
    """
    found, d, e, taus = forms.tridiagonal(a, lower=lower)
    return found, d, e, taus
