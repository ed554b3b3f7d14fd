"""Eigenvalues of Hermitian matrices, and Schur and Hessenberg forms, under SciPy's names."""

from __future__ import annotations

import operator
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import eigh_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import forms, spectral
from shardwise._src.ops.linalg import qr as orthogonal
from shardwise._src.ops.linalg.factor import cholesky as cholesky_op
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, eye, hermitian_part, rows_of
from shardwise._src.ops.linalg.triangular import (
    adjoint,
    check_matrices,
    product,
    rows_and_columns,
    solve_triangle,
    triangle,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.shape import concatenate, pad, slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import complex_dtype
from shardwise._src.values.convert import broadcast_to, common_shape, promote_inexact


@fused(arrays=2)
def _general_eigh(a: Any, b: Any, lower: bool, vectors: bool, kind: int) -> Any:
    """With b = l lᴴ, eigenvalues of l⁻¹ a l⁻ᴴ (kind 1) or lᴴ a l, and back-transformed vectors."""
    a, b = promote_inexact(a, b)
    for x in (a, b):
        check_matrices("eigh", type_of(x))
    shape = common_shape([type_of(a).shape, type_of(b).shape])
    a, b = [spectral.hermitian(broadcast_to(x, shape), lower) for x in (a, b)]
    factor = cholesky_op(b)
    if kind == 1:
        inner = solve_triangle(factor, adjoint(solve_triangle(factor, a, True)), True)
    else:
        inner = product(adjoint(factor), product(a, factor))
    *found, w = spectral.eigh(hermitian_part(inner), lower=True, vectors=vectors)
    if not vectors:
        return [w]
    v = product(factor, found[0]) if kind == 3 else solve_triangle(factor, found[0], True, "C")
    return [v, w]


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Args:
      a: (…, n, n); (a + aᴴ) / 2 is used if b is None.
      b: positive definite. Types are 1: a v = w b v; 2: a b v = w v; 3: b a v = w v.
      lower: which triangle of a and b is read if b is given.
      eigvals_only: whether to omit the eigenvectors.
      eigvals: must be None; all are computed.

    Returns:
      (w, v), or w; eigenvalues are in ascending order.
    """
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type must be 1, 2 or 3; got {type}.")
    if eigvals is not None:
        raise NotImplementedError(
            "eigh: a range of eigenvalues is not implemented; leave out `eigvals`."
        )
    if b is None:
        found = eigh_of(a, lower, True, not eigvals_only)
        return found if eigvals_only else (found[1], found[0])
    found = _general_eigh(a, b, lower, not eigvals_only, type)
    return found[0] if eigvals_only else (found[1], found[0])


@fused(arrays=2)
def _eigh_tridiagonal(d: Any, e: Any, vectors: bool, part: tuple[int, int] | None) -> Any:
    d, e = promote_inexact(d, e)
    t, s = type_of(d), type_of(e)
    if not t.ndim or s.shape != (*t.shape[:-1], t.shape[-1] - 1 if t.shape[-1] != 0 else 0):
        raise ValueError(
            "eigh_tridiagonal takes diagonals (…, n) and off-diagonals (…, n - 1); got "
            f"{t.str_short(True)} and {s.str_short(True)}."
        )
    n = t.shape[-1]
    e = d if n == 0 else pad(e, lit(0, e), padding_config=(*[(0, 0, 0)] * (t.ndim - 1), (0, 1, 0)))
    own, below = [rows_of(x, n) for x in (d, e)]
    row, column = rows_and_columns(type_of(own).shape)
    below = where(ew.eq(row, ew.add(column, lit(1, column))), below, lit(0, below))
    found = spectral.eigh(where(ew.eq(row, column), own, below), lower=True, vectors=vectors)
    if part is not None:
        found = [slice_in_dim(x, *part, axis=type_of(x).ndim - 1) for x in found]
    return found


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and eigenvectors of Hermitian tridiagonal matrices, computed as full matrices.

    Args:
      d, e: the real diagonal, (…, n), and the subdiagonal, (…, n - 1).
      select: "a": all; "i": indices from select_range[0] to select_range[1], both included. A
        range of values ("v") is not supported: its size is unknown when a program is traced.
      tol, key: have no effect: values are as accurate as those of `eigh`, and nothing is random.

    Returns:
      (w, v), or w; eigenvalues are in ascending order.
    """
    n = type_of(d).shape[-1] if type_of(d).ndim else 0
    part = None
    if select == "i":
        start, end = [operator.index(i) for i in select_range or (-1, -1)]  # pyright: ignore[reportArgumentType] (numbers, not values)
        if not 0 <= start <= end < n:
            raise ValueError(
                f"eigh_tridiagonal: select_range must be within 0 to {n - 1}; got {select_range}."
            )
        part = start, end + 1
    elif select == "v":
        raise NotImplementedError(
            "eigh_tridiagonal: select='v' is not implemented: the number of eigenvalues in a range "
            "is unknown at trace time. Compute all of them, and select from these."
        )
    elif select != "a":
        raise ValueError(f"eigh_tridiagonal: select must be 'a' or 'i'; got {select!r}.")
    found = _eigh_tridiagonal(d, e, not eigvals_only, part)
    return found[0] if eigvals_only else (found[1], found[0])


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """(t, z) with a = z t zᴴ and triangular t; not differentiable.

    Args:
      a: (…, n, n).
      output: "real": for a real matrix t is real, with 2×2 blocks for pairs of complex
        eigenvalues; "complex": t is complex and triangular.
    """
    if output not in ("real", "complex"):
        raise ValueError(f"schur: output must be 'real' or 'complex'; got {output!r}.")
    (a,) = promote_inexact(a)
    own = type_of(a).dtype
    t, z = forms.schur(
        as_dtype(a, complex_dtype(own) if output == "complex" else own), vectors=True
    )
    return t, z


@fused(arrays=1)
def _hessenberg(a: Any, calc_q: bool) -> Any:
    (a,) = promote_inexact(a)
    t = type_of(a)
    n, rows = t.shape[-1], t.ndim - 2
    found, taus = forms.hessenberg(a)
    h = _from_first_subdiagonal(found)
    if not calc_q:
        return [h]
    if n < 2:
        return [h, eye(t.shape, t.dtype)]
    inner = slice_in_dim(slice_in_dim(found, 1, n, rows), 0, n - 1, rows + 1)
    q = orthogonal.householder_product(inner, taus)
    q = pad(q, lit(0, q), padding_config=(*[(0, 0, 0)] * rows, (1, 0, 0), (1, 0, 0)))
    corner = pad(
        eye((*t.shape[:-2], 1, 1), t.dtype),
        lit(0, q),
        padding_config=(*[(0, 0, 0)] * rows, (0, n - 1, 0), (0, n - 1, 0)),
    )
    return [h, ew.add(q, corner)]


def _from_first_subdiagonal(x: Any) -> Any:
    """Zeros below the first subdiagonal: the upper triangle of the matrix shifted by a row."""
    t = type_of(x)
    rows = t.ndim - 2
    if t.shape[-1] < 2:
        return x
    first = slice_in_dim(x, 0, 1, rows)
    rest = triangle(slice_in_dim(x, 1, t.shape[-1], rows), False)
    return concatenate(first, rest, dimension=rows)


def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """h, or (h, q) with a = q h qᴴ, where h has zeros below its first subdiagonal.

    Args:
      a: (…, n, n).
      calc_q: whether to return q. Not differentiable.
    """
    found = _hessenberg(a, calc_q)
    return (found[0], found[1]) if calc_q else found[0]
