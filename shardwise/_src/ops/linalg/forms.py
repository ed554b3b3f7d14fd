"""Reductions of matrices to simpler forms by unitary matrices.

    schur(x, vectors=True)       # [t, z] with x = z t zᴴ: triangular, with 2×2 blocks if real
    hessenberg(x)                # [a, taus]: zeros below the first subdiagonal, and reflections
    tridiagonal(x, lower=True)   # [a, d, e, taus]: for a Hermitian matrix

They are not differentiable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.linalg.householder_steps import hessenberg_by_steps, tridiagonal_by_steps
from shardwise._src.ops.linalg.lapack_kernels import (
    checked,
    diagonal,
    identity,
    matrix_op,
    prefix,
    real,
)
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_complex, real_dtype

# -- schur --


def _schur_results(x: ArrayType, *, vectors: bool) -> list:
    return [(x.shape, x.dtype)] * (2 if vectors else 1)


def _schur_by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str, *, vectors: bool) -> list[str]:
    (t,) = ins
    w = array_type(t.shape[:-1], t.dtype)
    values = (w,) if is_complex(t.dtype) else (w, w)
    chosen = array_type(t.shape[:-2], np.dtype(np.int32))
    config = {"mode": "V" if vectors else "N", "sort": "N"}
    results = (t, t, *values, chosen)
    how = {"config": config, "aliases": {0: 0}, "finite": identity}
    return checked(op, e, "gees", [x], ins, results, **how)[: len(outs)]


schur = matrix_op(
    "schur", (2,), results=_schur_results, lower={"lapack": _schur_by_lapack}, square=True
)

# -- hessenberg --


def _hessenberg_results(x: ArrayType) -> list:
    return [(x.shape, x.dtype), ((max(x.shape[0] - 1, 0),), x.dtype)]


def _hessenberg_by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,) = ins
    n = t.shape[-1]
    if n < 2:
        return [x, e.constant(0, outs[1])]
    config = {"low": np.int32(1), "high": np.int32(n)}
    return checked(op, e, "gehrd", [x], ins, outs, config=config, aliases={0: 0})


hessenberg = matrix_op(
    "hessenberg",
    (2,),
    results=_hessenberg_results,
    lower={"lapack": _hessenberg_by_lapack, "xla": hessenberg_by_steps},
    square=True,
)

# -- tridiagonal --


def _tridiagonal_results(x: ArrayType, *, lower: bool) -> list:
    n, part = x.shape[0], real_dtype(x.dtype)
    less = (max(n - 1, 0),)
    return [(x.shape, x.dtype), ((n,), part), (less, part), (less, x.dtype)]


def _tridiagonal_by_lapack(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool
) -> list[str]:
    (t,) = ins
    if t.shape[-1] < 2:
        return _already_tridiagonal(e, ins, outs, x)
    name = prefix(t.dtype, "sytrd", "hetrd")
    config = {"uplo": "L" if lower else "U"}
    return checked(op, e, name, [x], ins, outs, aliases={0: 0}, config=config)


def _tridiagonal_by_cusolver(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool
) -> list[str]:
    if ins[0].shape[-1] < 2:
        return _already_tridiagonal(e, ins, outs, x)
    how = {"call": e.cusolver, "aliases": {0: 0}, "config": {"lower": lower}}
    return checked(op, e, "cusolver_sytrd_ffi", [x], ins, outs, **how)


def _tridiagonal_by_xla(op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool) -> list[str]:
    if ins[0].shape[-1] < 2:
        return _already_tridiagonal(e, ins, outs, x)
    return tridiagonal_by_steps(op, e, ins, outs, x, lower=lower)


def _already_tridiagonal(e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    values = e.via(_real_diagonal, ins, x)[0]
    return [x, values, e.constant(0, outs[2]), e.constant(0, outs[3])]


def _real_diagonal(x: Any) -> Any:
    return real(diagonal(x))


tridiagonal = matrix_op(
    "tridiagonal",
    (2,),
    results=_tridiagonal_results,
    lower={
        "lapack": _tridiagonal_by_lapack,
        "cusolver": _tridiagonal_by_cusolver,
        "xla": _tridiagonal_by_xla,
    },
    square=True,
)
