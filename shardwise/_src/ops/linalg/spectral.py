"""Eigenvalues.

    eigh(x, lower=True, vectors=True)                  # f32[*, n, n] → [v, w], w ascending
    eig(x, left=False, right=True, differentiable=False)   # f32[*, n, n] → [w, vl, vr], complex

Derivatives assume that all eigenvalues are distinct; if two are equal, derivatives of vectors are
infinite or NaN, but derivatives of the sum of such values are still right. Vectors have a free
sign, or a free complex factor of size 1, which derivatives keep fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import check_fixed
from shardwise._src.ops.linalg.jacobi_steps import eigh_by_rotations
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    checked,
    diagonal,
    hermitian_part,
    identity,
    inverse_gaps,
    matrix_op,
    prefix,
    real,
    rows_of,
    scaled,
)
from shardwise._src.ops.linalg.lu import solve
from shardwise._src.ops.linalg.scaling import scaled_to_one, times
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    conjugate,
    product,
    triangle,
    turned,
)
from shardwise._src.ops.logical import select_n, where
from shardwise._src.ops.reduce import argmax
from shardwise._src.ops.shape import pad
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import complex_dtype, is_complex, real_dtype

# -- eigh: of symmetric and Hermitian matrices, of which one triangle is read --


def _eigh_results(x: ArrayType, *, lower: bool, vectors: bool) -> list:
    values = (x.shape[:1], real_dtype(x.dtype))
    return [(x.shape, x.dtype), values] if vectors else [values]


def _eigh_by_lapack(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool, vectors: bool
) -> list[str]:
    t, name = ins[0], prefix(ins[0].dtype, "syevd", "heevd")
    config = {"mode": "V" if vectors else "N", "uplo": "L" if lower else "U"}
    how = {"config": config, "aliases": {0: 0}, "finite": _lower if lower else _upper}
    found = checked(op, e, name, [x], ins, (t, outs[-1]), **how)
    return found if vectors else found[1:]


def _eigh_by_cusolver(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool, vectors: bool
) -> list[str]:
    config = {"lower": lower, "algorithm": np.uint8(0)}
    how = {"config": config, "aliases": {0: 0}, "finite": _lower if lower else _upper}
    types = (ins[0], outs[-1])
    found = checked(op, e, "cusolver_syevd_ffi", [x], ins, types, call=e.cusolver, **how)
    return found if vectors else found[1:]


def _eigh_by_xla(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool, vectors: bool
) -> list[str]:
    """XLA's own Jacobi rotations end when the rest is below 1e-6 of the matrix. They ignore
    elements that are small for 32-bit numbers: matrices are scaled, and 64-bit ones get ours."""
    types = (ins[0], outs[-1])
    read = _lower if lower else _upper

    def call(name: str, xs: Any, ins: Any, outs: Any) -> list[str]:
        (t,), (vectors_type, w) = ins, outs
        if 0 in t.shape:
            return [e.constant(0, vectors_type), e.constant(0, w)]
        x, scale = e.via(scaled_to_one, ins, *xs, read=read)
        if w.dtype == np.float32:
            found = e.xla_expansion(name, [x], ins, outs, f"{int(lower)},1,100,1e-6")
        else:
            check_fixed(op, e, t)
            found = eigh_by_rotations(e, t, x, lower)
        types = (w, array_type(w.shape[:-1], w.dtype))
        return [found[0], e.via(times, types, found[1], scale)[0]]

    found = checked(op, e, "Eigh", [x], ins, types, finite=read, call=call, reports=False)
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
    lower={"lapack": _eigh_by_lapack, "cusolver": _eigh_by_cusolver, "xla": _eigh_by_xla},
    square=True,
    jvp=_eigh_jvp,
    sharding_rule=lambda x, vectors, **_: "ab -> ab, -" if vectors else "ab -> -",
)

# -- eig: of general square matrices --


def _eig_results(x: ArrayType, *, left: bool, right: bool, differentiable: bool) -> list:
    dtype = complex_dtype(x.dtype)
    return [(x.shape[:1], dtype), *[(x.shape, dtype)] * (left + right)]


def _eig_by_lapack(
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


def _eig_by_cusolver(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, left: bool, right: bool, differentiable: bool
) -> list[str]:
    """cuSOLVER has no left vectors: a function of jaxlib gets these from LAPACK on the host."""
    (t,), (w, *_) = ins, outs
    config: dict[str, Any] = {"left": left, "right": right}
    vectors = array_type(t.shape, w.dtype)
    how = {"call": e.cusolver, "config": config, "finite": identity}
    if not left:
        found = checked(op, e, "cusolver_geev_ffi", [x], ins, (t, w, t, t), **how)
        if right and not is_complex(t.dtype):
            found[3] = e.via(_from_pairs, (w, t), found[1], found[3])[0]
        return [found[1], *found[3 : 3 + right]]
    config["magma"] = "off"
    if is_complex(t.dtype):
        types = (w, vectors, vectors)
        found = checked(op, e, "cuhybrid_eig_comp", [x], ins, types, **how)
        return found[: 2 + right]
    part = array_type(t.shape[:-1], t.dtype)
    types = (part, part, vectors, vectors)
    *parts, vl, vr = checked(op, e, "cuhybrid_eig_real", [x], ins, types, **how)
    return [e.via(ew.complex, (part, part), *parts)[0], vl, *([vr] if right else [])]


def _from_pairs(w: Any, v: Any) -> Any:
    """The vectors of a real matrix: a pair of complex ones is stored as real and imaginary part,
    for the eigenvalue with a positive imaginary part, which is the first of the two."""
    t = type_of(v)
    part = rows_of(ew.imag(w), t.shape[-2])
    first, second = ew.gt(part, lit(0, part)), ew.lt(part, lit(0, part))
    none = (0, 0, 0)
    before, after = [
        pad(v, lit(0, v), padding_config=(*[none] * (t.ndim - 1), (by, -by, 0))) for by in (1, -1)
    ]
    imaginary = where(first, after, where(second, ew.neg(v), lit(0, v)))
    return ew.complex(where(second, before, v), imaginary)


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


eig = matrix_op(
    "eig",
    (2,),
    results=_eig_results,
    lower={"lapack": _eig_by_lapack, "cusolver": _eig_by_cusolver},
    square=True,
    jvp=_eig_jvp,
)
