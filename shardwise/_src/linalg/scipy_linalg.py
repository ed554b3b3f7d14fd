"""Linear algebra under SciPy's names. The last two dimensions are matrices, the others the batch.

Integers become floats. Where LAPACK fails the result is NaN, where SciPy raises an error.
`overwrite_…`, `check_finite`, `lwork`, `turbo` and `debug` have no effect: arrays are immutable,
and values are unknown when a program is traced.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg import linear_systems
from shardwise._src.linalg.linear_systems import with_columns, without_column
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.linalg import lu as elimination
from shardwise._src.ops.linalg import qr as orthogonal
from shardwise._src.ops.linalg import singular_values as singular
from shardwise._src.ops.linalg.factor import cholesky as cholesky_op
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, eye, rows_of
from shardwise._src.ops.linalg.triangular import (
    adjoint,
    check_matrices,
    conjugate,
    product,
    solve_triangle,
    triangle,
    triangular_solve,
    turned,
)
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import real_dtype
from shardwise._src.values.convert import broadcast_to, common_shape, promote_inexact

# -- functions of numpy.linalg, with SciPy's arguments --


@fused(arrays=1)
def _cholesky(a: Any, lower: bool) -> Any:
    """Like SciPy's functions of one triangle, it only reads that triangle."""
    (a,) = promote_inexact(a)
    check_matrices("cholesky", type_of(a))
    return cholesky_op(a) if lower else adjoint(cholesky_op(adjoint(a)))


@eager_jit
def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """The upper triangular u with uᴴ u = a, or the lower l with l lᴴ = a.

    Args:
      a: (…, n, n), of which this triangle is read.
    """
    return _cholesky(a, lower)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """The Cholesky factor for `cho_solve`, and whether it is the lower one."""
    return _cholesky(a, lower), lower


@eager_jit
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinants; see `shardwise.numpy.linalg.det`."""
    return linear_systems.det(a)


@eager_jit
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Inverses; see `shardwise.numpy.linalg.inv`."""
    return linear_systems.inv(a)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """(u, s, vᴴ), or s; see `shardwise.numpy.linalg.svd`.

    lapack_driver: "gesdd" or "gesvd".
    """
    if lapack_driver not in ("gesdd", "gesvd"):
        raise ValueError(f"svd: lapack_driver must be 'gesdd' or 'gesvd'; got {lapack_driver!r}.")
    found = singular.svd(
        *promote_inexact(a),
        full_matrices=full_matrices,
        vectors=compute_uv,
        algorithm=lapack_driver,
    )
    return (found[1], found[0], found[2]) if compute_uv else found[0]


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """Orthogonal and triangular factors: a = q r, or a[:, p] = q r.

    Args:
      a: (…, m, n).
      mode: "full": q is square; "economic": q has min(m, n) columns; "r": without q.
      pivoting: whether columns are permuted, so that r's diagonal descends; then p is last.

    Returns:
      (q, r), (q, r, p), (r,) or (r, p).
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"qr: mode must be 'full', 'r' or 'economic'; got {mode!r}.")
    (a,) = promote_inexact(a)
    found = orthogonal.qr(a, full_matrices=mode != "economic", pivoting=pivoting)
    return tuple(found[1:] if mode == "r" else found)


@fused(arrays=2)
def _qr_multiply(a: Any, c: Any, left: bool, pivoting: bool, conj: bool) -> Any:
    a, c = promote_inexact(a, c)
    q, r, *order = orthogonal.qr(a, full_matrices=False, pivoting=pivoting)
    q = conjugate(q) if conj else q
    t, s = type_of(q), type_of(c)
    if s.ndim == 1:
        c = reshape(c, shape=(s.shape[0], 1) if left else (1, s.shape[0]))
    if not s.ndim or type_of(c).shape[-2 if left else -1] != t.shape[-1 if left else -2]:
        raise ValueError(
            f"qr_multiply: c does not fit into the product {'Q @ c' if left else 'c @ Q'} with Q "
            f"of shape {t.shape}; got {s.str_short(True)}."
        )
    leading = common_shape([t.shape[:-2], type_of(c).shape[:-2]])
    q, c = [broadcast_to(x, (*leading, *type_of(x).shape[-2:])) for x in (q, c)]
    found = product(q, c) if left else product(c, q)
    if s.ndim == 1:
        found = reshape(found, shape=(type_of(found).size,))
    return [found, r, *order]


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """Products with the orthogonal factor of a, and the triangular factor.

    Args:
      a: (…, m, n), with k = min(m, n).
      c: (…, k, p) or (k,) for mode "left": q c; (…, p, m) or (m,) for "right": c q.
      pivoting: whether columns of a are permuted; then their order is last.
      conjugate: whether to use the conjugate of q.

    Returns:
      (product, r), or (product, r, p). For a vector, the product is a vector.
    """
    if mode not in ("left", "right"):
        raise ValueError(f"qr_multiply: mode must be 'left' or 'right'; got {mode!r}.")
    return tuple(_qr_multiply(a, c, mode == "left", pivoting, bool(conjugate)))


# -- LU decomposition --


@fused(arrays=1)
def _lu(a: Any, permute: bool) -> Any:
    (a,) = promote_inexact(a)
    factors, _, order = elimination.lu(a)
    t = type_of(factors)
    (m, n), axes = t.shape[-2:], (t.ndim - 2, t.ndim - 1)
    k = min(m, n)
    lower = triangle(slice_in_dim(factors, 0, k, axes[1]), True, strict=True)
    lower = ew.add(lower, eye(type_of(lower).shape, t.dtype))
    upper = slice_in_dim(triangle(factors, False), 0, k, axes[0])
    if permute:
        return [elimination.take_rows(lower, elimination.inverse(order)), upper]
    places = rows_of(order, m)
    own = turned(rows_of(_counted(order), m))
    return [as_dtype(ew.eq(places, own), real_dtype(t.dtype)), lower, upper]


def _counted(order: Any) -> Any:
    t = type_of(order)
    return iota(dtype=t.dtype, shape=t.shape, dimension=t.ndim - 1)


def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """LU decomposition with row permutations: a = p l u.

    Args:
      a: (…, m, n).
      permute_l: whether to return p l instead of both.

    Returns:
      (p, l, u), or (p l, u).
    """
    return tuple(_lu(a, permute_l))  # pyright: ignore[reportReturnType] (two or three)


def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """Both triangular factors in one matrix, and the row exchanges; for `lu_solve`."""
    factors, pivots, _ = elimination.lu(*promote_inexact(a))
    return factors, pivots


@fused(arrays=3)
def _lu_solve(factors: Any, pivots: Any, b: Any, trans: int) -> Any:
    factors, b = promote_inexact(factors, b)
    factors, b, vector = with_columns("lu_solve", factors, b)
    n = type_of(factors).shape[-1]
    order = elimination.lu_pivots_to_permutation(pivots, size=n)
    order = broadcast_to(order, (*type_of(factors).shape[:-2], n))
    return without_column(elimination.by_factors(factors, order, b, "NTC"[trans]), vector)


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution x of a x = b from the result of `lu_factor`.

    Args:
      b: (n,) or (…, n, k).
      trans: 0; 1 for the transpose of a, 2 for its adjoint.
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans must be 0, 1 or 2; got {trans!r}.")
    factors, pivots = lu_and_piv
    return _lu_solve(factors, pivots, b, trans)


@fused(arrays=2)
def _cho_solve(c: Any, b: Any, lower: bool) -> Any:
    c, b = promote_inexact(c, b)
    c, b, vector = with_columns("cho_solve", c, b)
    for form in "NC" if lower else "CN":
        b = solve_triangle(c, b, lower, form)
    return without_column(b, vector)


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution x of a x = b from the result of `cho_factor`; b: (n,) or (…, n, k)."""
    c, lower = c_and_lower
    return _cho_solve(c, b, bool(lower))


@fused(arrays=2)
def _solve_triangular(a: Any, b: Any, lower: bool, form: str, unit: bool) -> Any:
    a, b = promote_inexact(a, b)
    a, b, vector = with_columns("solve_triangular", a, b)
    x = triangular_solve(a, b, left_side=True, lower=lower, form=form, unit_diagonal=unit)
    return without_column(x, vector)


@eager_jit(arrays=2)
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """The solution x of a x = b with a triangular matrix a.

    Args:
      a: (…, n, n), of which one triangle is read.
      b: (n,) or (…, n, k).
      trans: 0 or "N"; 1 or "T" for the transpose of a, 2 or "C" for its adjoint.
      lower: whether it is the lower triangle.
      unit_diagonal: whether the diagonal consists of ones; then it is not read.
    """
    forms_of = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}
    if trans not in forms_of:
        raise ValueError(
            f"solve_triangular: trans must be 0, 1, 2, 'N', 'T' or 'C'; got {trans!r}."
        )
    return _solve_triangular(a, b, lower, forms_of[trans], unit_diagonal)


@fused(arrays=2)
def _solve_positive(a: Any, b: Any, lower: bool) -> Any:
    return _cho_solve(_cholesky(a, lower), b, lower)


@eager_jit(arrays=2)
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution x of a x = b.

    Args:
      a: (…, n, n).
      b: (n,) or (…, n, k).
      lower: which triangle of a is read, if it is positive definite.
      assume_a: "gen", "sym" and "her": by LU decomposition; "pos": by the Cholesky factor.
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f"solve: assume_a must be 'gen', 'sym', 'her' or 'pos'; got {assume_a!r}.")
    return _solve_positive(a, b, lower) if assume_a == "pos" else linear_systems.solve(a, b)
