"""Singular values.

    svd(x, full_matrices=False, vectors=True)          # f32[*, m, n] → [s, u, vᴴ], s descending

Derivatives assume that all singular values are distinct; if two are equal, derivatives of vectors
are infinite or NaN, but derivatives of the sum of such values are still right. Vectors have a free
sign, or a free complex factor of size 1, which derivatives keep fixed.

Where no library has it, a polar factor gives the singular values as eigenvalues. Source:
Nakatsukasa, Higham, "Stable and efficient spectral divide and conquer algorithms for the symmetric
eigenvalue decomposition and the SVD" (2013).
"""

from __future__ import annotations

import functools
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import check_fixed
from shardwise._src.ops.linalg.halley import bound, over, polar_unitary
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    checked,
    columns_of,
    diagonal,
    eye,
    hermitian_part,
    identity,
    inverse_gaps,
    matrix_op,
    nan_unless_finite,
    real,
    rows_of,
    scaled,
)
from shardwise._src.ops.linalg.qr import qr
from shardwise._src.ops.linalg.spectral import eigh
from shardwise._src.ops.linalg.triangular import adjoint, product
from shardwise._src.ops.logical import select_n, where
from shardwise._src.ops.shape import concatenate, rev, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_complex, real_dtype

MOST_BY_JACOBI = 1024  # rows and columns; cuSOLVER is faster by QR iterations above
BATCHED = 32  # rows and columns of matrices that cuSOLVER handles as a batch


def _svd_results(
    x: ArrayType, *, full_matrices: bool, vectors: bool, algorithm: str = "gesdd"
) -> list:
    (m, n), k = x.shape, min(x.shape)
    s = ((k,), real_dtype(x.dtype))
    if not vectors:
        return [s]
    left, right = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    return [s, (left, x.dtype), (right, x.dtype)]


def _by_lapack(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, algorithm: str = "gesdd", **p: Any
) -> list[str]:
    (t,) = ins
    (m, n), full_matrices, vectors = t.shape[-2:], p["full_matrices"], p["vectors"]
    if full_matrices and vectors and 0 in (m, n):
        return _of_empty(e, outs)
    k, leading = min(m, n), t.shape[:-2]
    s, *rest = outs
    if not vectors:
        rest = [array_type((*leading, *own), t.dtype) for own in ((m, k), (k, n))]
    mode = "N" if not vectors else "A" if full_matrices else "S"
    how = {"config": {"mode": mode}, "aliases": {0: 0}, "finite": identity}
    found = checked(op, e, algorithm, [x], ins, (t, s, *rest), **how)
    return found[1 : len(outs) + 1]


def _of_empty(e: Any, outs: Any) -> list[str]:
    """The results for matrices without rows or columns."""
    return [
        e.constant(0, outs[0]),
        *[e.via(eye, (), shape=out.shape, dtype=out.dtype)[0] for out in outs[1:]],
    ]


def _by_cusolver(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, algorithm: str = "gesdd", **p: Any
) -> list[str]:
    m, n = ins[0].shape[-2:]
    if 0 in (m, n):
        return _of_empty(e, outs)
    check_fixed(op, e, ins[0])
    if algorithm == "gesdd" and max(m, n) <= MOST_BY_JACOBI:
        return _by_gesvdj(op, e, ins, outs, x, **p)
    return _by_gesvd(op, e, ins, outs, x, **p)


def _by_gesvdj(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, full_matrices: bool, vectors: bool
) -> list[str]:
    """By Jacobi rotations. Small matrices are handled as a batch, which has full results only."""
    (t,) = ins
    (m, n), leading = t.shape[-2:], t.shape[:-2]
    thin = not full_matrices and m > BATCHED and n > BATCHED
    count = (min(m, n), min(m, n)) if thin else (m, n)
    u, v = [array_type((*leading, a, b), t.dtype) for a, b in zip((m, n), count, strict=True)]
    config = {"full_matrices": not thin, "compute_uv": vectors}
    how = {"call": e.cusolver, "config": config, "aliases": {0: 0}, "finite": identity}
    _, s, *found = checked(op, e, "cusolver_gesvdj_ffi", [x], ins, (t, outs[0], u, v), **how)
    if not vectors:
        return [s]
    return [
        s,
        *e.via(_chosen_vectors, (u, v), *found, count=(outs[1].shape[-1], outs[2].shape[-2])),
    ]


def _chosen_vectors(u: Any, v: Any, count: tuple[int, int]) -> list[Any]:
    """The first vectors on each side, those on the right as rows."""
    u, v = [slice_in_dim(x, 0, n, type_of(x).ndim - 1) for x, n in zip((u, v), count, strict=True)]
    return [u, adjoint(v)]


def _by_gesvd(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, full_matrices: bool, vectors: bool
) -> list[str]:
    """By QR iterations, for matrices that are not wide: others are read as their transposes."""
    (t,) = ins
    wide = t.shape[-2] < t.shape[-1]
    call = functools.partial(e.cusolver, by_rows=wide)
    none = array_type(t.shape[:-2], t.dtype)  # not written
    s, *rest = outs if vectors else (outs[0], none, none)
    config = {"full_matrices": full_matrices, "compute_uv": vectors, "transposed": wide}
    types = (t, s, *(reversed(rest) if wide else rest))
    how = {"call": call, "config": config, "aliases": {0: 0}, "finite": identity}
    _, s, *found = checked(op, e, "cusolver_gesvd_ffi", [x], ins, types, **how)
    return [s, *(reversed(found) if wide else found)][: len(outs)]


def _by_polar_factor(op: Op, e: Any, ins: Any, outs: Any, x: str, **p: Any) -> list[str]:
    check_fixed(op, e, ins[0])
    if 0 in ins[0].shape[-2:]:
        return _of_empty(e, outs)
    p.pop("algorithm", None)
    return e.via(singular_values_or_nan, ins, x, **p)


def singular_values_or_nan(x: Any, full_matrices: bool, vectors: bool) -> list[Any]:
    """[s] or [s, u, vᴴ], by ops; NaN for matrices that are not finite."""
    return nan_unless_finite(x, lambda x: _singular_values(x, full_matrices, vectors))


# With a polar factor, x = u h; the eigenvalues of h are the singular values.


def _singular_values(x: Any, full_matrices: bool, vectors: bool) -> list[Any]:
    t = type_of(x)
    (m, n), columns = t.shape[-2:], t.ndim - 1
    if m < n:
        s, *rest = _singular_values(adjoint(x), full_matrices, vectors)
        return [s, *[adjoint(y) for y in reversed(rest)]]
    if m == n:
        return _of_square(x, vectors)
    q, r = qr(x, full_matrices=full_matrices and vectors, pivoting=False)
    s, *rest = _of_square(slice_in_dim(r, 0, n, t.ndim - 2), vectors)
    if not vectors:
        return [s]
    u = product(slice_in_dim(q, 0, n, columns), rest[0])
    if full_matrices:
        u = concatenate(u, slice_in_dim(q, n, m, columns), dimension=columns)
    return [s, u, rest[1]]


def _of_square(x: Any, vectors: bool) -> list[Any]:
    t = type_of(x)
    size = bound(x)
    x = over(x, size)
    unitary = polar_unitary(x)
    h = hermitian_part(product(adjoint(unitary), x))
    *v, w = eigh(h, lower=True, vectors=vectors)
    s = rev(ew.max(w, lit(0, w)), dimensions=(t.ndim - 2,))
    s = ew.mul(s, columns_of(size, t.shape[-1]))
    if not vectors:
        return [s]
    v = rev(v[0], dimensions=(t.ndim - 1,))
    return [s, _orthonormal(product(unitary, v)), adjoint(v)]


def _orthonormal(x: Any) -> Any:
    """Nearly orthonormal columns made orthonormal: those of a singular value of 0 are arbitrary."""
    q, r = qr(x, full_matrices=False, pivoting=False)
    own = diagonal(r)
    size = ew.abs(own)
    none = ew.eq(size, lit(0, size))
    phase = ew.div(own, as_dtype(where(none, lit(1, size), size), type_of(own).dtype))
    return scaled(q, where(none, lit(1, phase), phase))


def _svd_jvp(
    op: Op, primals: Any, tangents: Any, *, full_matrices: bool, vectors: bool, **p: Any
) -> tuple[Any, Any]:
    """Source: Giles (2008), section 3.2; with complex numbers: Townsend, "Differentiating the
    singular value decomposition" (2016), with the imaginary diagonal assigned to u.
    """
    (x,), (dx,) = primals, tangents
    m, n = type_of(x).shape[-2:]
    if vectors and full_matrices and m != n:
        raise NotImplementedError(
            "[svd] the full matrices of singular vectors have no derivative if rows and columns "
            f"differ in number, as in {type_of(x).str_short(True)}: the vectors without a singular "
            "value are an arbitrary basis of their space. Pass `full_matrices=False`."
        )
    s, u, vh = op(x, full_matrices=False, vectors=True, **p)
    uh, v = adjoint(u), adjoint(vh)
    change = product(product(uh, dx), v)
    ds = real(diagonal(change))
    if not vectors:
        return [s], [ds]
    k = min(m, n)
    row, column = [as_dtype(f(s, k), type_of(x).dtype) for f in (rows_of, columns_of)]
    gaps = as_dtype(inverse_gaps(ew.mul(s, s)), type_of(x).dtype)
    right, left = ew.mul(change, row), ew.mul(column, change)
    turn = ew.mul(gaps, ew.add(right, adjoint(right)))
    if is_complex(type_of(x).dtype):
        skew = ew.mul(lit(0.5, x), ew.sub(change, adjoint(change)))
        turn = ew.add(
            turn,
            ew.mul(eye(type_of(skew).shape, type_of(x).dtype), ew.mul(skew, _inverse_or_zero(row))),
        )
    du = product(u, turn)
    dv = product(v, ew.mul(gaps, ew.add(left, adjoint(left))))
    if m > n:
        du = ew.add(du, _outside(u, product(dx, v), s))
    if n > m:
        dv = ew.add(dv, _outside(v, product(adjoint(dx), u), s))
    return [s, u, vh], [ds, du, adjoint(dv)]


def _inverse_or_zero(x: Any) -> Any:
    zero = ew.eq(x, lit(0, x))
    return select_n(zero, ew.div(lit(1, x), select_n(zero, x, lit(1, x))), lit(0, x))


def _outside(u: Any, x: Any, s: Any) -> Any:
    """The component outside the column space of u, over the singular values."""
    x = ew.sub(x, product(u, product(adjoint(u), x)))
    t = type_of(x)
    return ew.div(x, rows_of(as_dtype(s, t.dtype), t.shape[-2]))


svd = matrix_op(
    "svd",
    (2,),
    results=_svd_results,
    lower={"lapack": _by_lapack, "cusolver": _by_cusolver, "xla": _by_polar_factor},
    jvp=_svd_jvp,
)
