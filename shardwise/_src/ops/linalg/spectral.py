"""Eigenvalues and singular values, by LAPACK's kernels on CPU.

    eigh(x, lower=True, vectors=True)                  # f32[*, n, n] → [v, w], w ascending
    svd(x, full_matrices=False, vectors=True)          # f32[*, m, n] → [s, u, vᴴ], s descending
    eig(x, left=False, right=True, differentiable=False)   # f32[*, n, n] → [w, vl, vr], complex

Derivatives assume that all eigenvalues, or singular values, are distinct; if two are equal,
derivatives of vectors are infinite or NaN, but derivatives of the sum of such values are still
right. Vectors have a free sign, or a free complex factor of size 1, which derivatives keep fixed.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
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
    on_cpu,
    prefix,
    real,
    rows_of,
    scaled,
)
from shardwise._src.ops.linalg.lu import solve
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    conjugate,
    product,
    triangle,
    turned,
)
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.reduce import argmax
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import complex_dtype, is_complex, real_dtype

# -- eigh: of symmetric and Hermitian matrices, of which one triangle is read --


def _eigh_results(x: ArrayType, *, lower: bool, vectors: bool) -> list:
    values = (x.shape[:1], real_dtype(x.dtype))
    return [(x.shape, x.dtype), values] if vectors else [values]


def _eigh_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool, vectors: bool
) -> list[str]:
    t, name = ins[0], prefix(ins[0].dtype, "syevd", "heevd")
    config = {"mode": "V" if vectors else "N", "uplo": "L" if lower else "U"}
    how = {"config": config, "aliases": {0: 0}, "finite": _lower if lower else _upper}
    found = checked(op, e, name, [x], ins, (t, outs[-1]), **how)
    return found if vectors else found[1:]


def _lower(x: Any) -> Any:
    return triangle(x, True)


def _upper(x: Any) -> Any:
    return triangle(x, False)


def hermitian(x: Any, lower: bool) -> Any:
    """The Hermitian matrix with the given triangle; the diagonal is taken as real."""
    return hermitian_part(ew.add(triangle(x, lower), triangle(x, lower, strict=True)))


def _eigh_jvp(
    op: Op, primals: Any, tangents: Any, *, lower: bool, vectors: bool
) -> tuple[Any, Any]:
    """Perturbation theory; source: Giles, "An extended collection of matrix derivative results for
    forward and reverse mode automatic differentiation" (2008), section 3.1.
    """
    v, w = op(primals[0], lower=lower, vectors=True)
    change = product(adjoint(v), product(hermitian(tangents[0], lower), v))
    dw = real(diagonal(change))
    if not vectors:
        return [w], [dw]
    gaps = as_dtype(inverse_gaps(w), type_of(v).dtype)
    return [v, w], [product(v, ew.mul(gaps, change)), dw]


eigh = matrix_op(
    "eigh",
    (2,),
    results=_eigh_results,
    lower=_eigh_lower,
    square=True,
    jvp=_eigh_jvp,
    sharding_rule=lambda x, vectors, **_: "ab -> ab, -" if vectors else "ab -> -",
)

# -- svd --


def _svd_results(
    x: ArrayType, *, full_matrices: bool, vectors: bool, algorithm: str = "gesdd"
) -> list:
    (m, n), k = x.shape, min(x.shape)
    s = ((k,), real_dtype(x.dtype))
    if not vectors:
        return [s]
    left, right = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    return [s, (left, x.dtype), (right, x.dtype)]


def _svd_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, algorithm: str = "gesdd", **p: Any
) -> list[str]:
    on_cpu(op, e)
    (t,) = ins
    (m, n), full_matrices, vectors = t.shape[-2:], p["full_matrices"], p["vectors"]
    if full_matrices and vectors and 0 in (m, n):
        return [
            e.constant(0, outs[0]),
            *[e.via(eye, (), shape=out.shape, dtype=out.dtype)[0] for out in outs[1:]],
        ]
    k, leading = min(m, n), t.shape[:-2]
    s, *rest = outs
    if not vectors:
        rest = [array_type((*leading, *own), t.dtype) for own in ((m, k), (k, n))]
    mode = "N" if not vectors else "A" if full_matrices else "S"
    how = {"config": {"mode": mode}, "aliases": {0: 0}, "finite": identity}
    found = checked(op, e, algorithm, [x], ins, (t, s, *rest), **how)
    return found[1 : len(outs) + 1]


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


svd = matrix_op("svd", (2,), results=_svd_results, lower=_svd_lower, jvp=_svd_jvp)

# -- eig: of general square matrices --


def _eig_results(x: ArrayType, *, left: bool, right: bool, differentiable: bool) -> list:
    dtype = complex_dtype(x.dtype)
    return [(x.shape[:1], dtype), *[(x.shape, dtype)] * (left + right)]


def _eig_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, left: bool, right: bool, differentiable: bool
) -> list[str]:
    (t,) = ins
    w = array_type(t.shape[:-1], t.dtype)
    vectors = array_type(t.shape, outs[0].dtype)
    values = (w,) if is_complex(t.dtype) else (w, w)
    config = {"compute_left": "V" if left else "N", "compute_right": "V" if right else "N"}
    results = (*values, vectors, vectors)
    *parts, vl, vr = checked(op, e, "geev", [x], ins, results, config=config, finite=identity)
    if len(parts) == 2:
        parts = e.via(ew.complex, values, *parts)
    return [parts[0], *([vl] if left else []), *([vr] if right else [])]


def _eig_jvp(
    op: Op, primals: Any, tangents: Any, *, left: bool, right: bool, differentiable: bool
) -> tuple[Any, Any]:
    (x,), (dx,) = primals, tangents
    if (left or right) and not differentiable:
        raise NotImplementedError(
            "[eig] eigenvectors are differentiable only if all eigenvalues are distinct, and only "
            "as LAPACK normalizes them: to length 1, with the component of largest magnitude real. "
            "If this is intended, call `shardwise.lax.linalg.eig(x, enable_eigvec_derivs=True)`; "
            "eigenvalues alone (`shardwise.numpy.linalg.eigvals`) are differentiable without it."
        )
    outs = op(x, left=left, right=True, differentiable=True)
    w, v = outs[0], outs[-1]
    dx = as_dtype(dx, type_of(v).dtype)
    if not (left or right):
        return [w], [reduce_sum(ew.mul(solve(v, dx), turned(v)), axes=(type_of(v).ndim - 1,))]
    dw, dv = _eig_change(w, v, dx)
    changes = [dw]
    if left:
        changes.append(_eig_change(conjugate(w), outs[1], adjoint(dx))[1])
    if right:
        return outs, [*changes, dv]
    return outs[:-1], changes


def _eig_change(w: Any, v: Any, dx: Any) -> tuple[Any, Any]:
    """Changes of eigenvalues and of unit eigenvectors whose largest component is real.

    v⁻¹ dx v has the changes of w on its diagonal; off the diagonal it mixes the vectors. Adding a
    multiple of each vector itself preserves its length, and keeps its largest component real.
    """
    change = product(solve(v, dx), v)
    turn = product(v, ew.mul(inverse_gaps(w), change))
    t = type_of(v)
    rows = t.ndim - 2
    along = ew.real(reduce_sum(ew.mul(conjugate(v), turn), axes=(rows,)))
    place = argmax(ew.abs(v), axes=(rows,), index_dtype=INT32)
    largest = ew.eq(iota(dtype=INT32, shape=t.shape, dimension=rows), rows_of(place, t.shape[-2]))
    at = [reduce_sum(select_n(largest, lit(0, x), x), axes=(rows,)) for x in (turn, v)]
    phase = ew.div(ew.imag(at[0]), ew.real(at[1]))
    own = ew.complex(ew.neg(along), ew.neg(phase))
    return diagonal(change), ew.add(turn, scaled(v, own))


eig = matrix_op("eig", (2,), results=_eig_results, lower=_eig_lower, square=True, jvp=_eig_jvp)
