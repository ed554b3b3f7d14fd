"""Reductions of matrices to simpler forms by unitary matrices, with LAPACK's kernels on CPU.

    schur(x, vectors=True)       # [t, z] with x = z t zᴴ: triangular, with 2×2 blocks if real
    hessenberg(x)                # [a, taus]: zeros below the first subdiagonal, and reflections
    tridiagonal(x, lower=True)   # [a, d, e, taus]: for a Hermitian matrix

They are not differentiable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.linalg.lapack_kernels import (
    checked,
    diagonal,
    identity,
    matrix_op,
    on_cpu,
    prefix,
    real,
)
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_complex, real_dtype

# -- schur --


def _schur_results(x: ArrayType, *, vectors: bool) -> list:
    return [(x.shape, x.dtype)] * (2 if vectors else 1)


def _schur_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, vectors: bool) -> list[str]:
    (t,) = ins
    w = array_type(t.shape[:-1], t.dtype)
    values = (w,) if is_complex(t.dtype) else (w, w)
    chosen = array_type(t.shape[:-2], np.dtype(np.int32))
    config = {"mode": "V" if vectors else "N", "sort": "N"}
    results = (t, t, *values, chosen)
    how = {"config": config, "aliases": {0: 0}, "finite": identity}
    return checked(op, e, "gees", [x], ins, results, **how)[: len(outs)]


schur = matrix_op("schur", (2,), results=_schur_results, lower=_schur_lower, square=True)

# -- hessenberg --


def _hessenberg_results(x: ArrayType) -> list:
    return [(x.shape, x.dtype), ((max(x.shape[0] - 1, 0),), x.dtype)]


def _hessenberg_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    on_cpu(op, e)
    (t,) = ins
    n = t.shape[-1]
    if n < 2:
        return [x, e.constant(0, outs[1])]
    config = {"low": np.int32(1), "high": np.int32(n)}
    return checked(op, e, "gehrd", [x], ins, outs, config=config, aliases={0: 0})


hessenberg = matrix_op(
    "hessenberg", (2,), results=_hessenberg_results, lower=_hessenberg_lower, square=True
)

# -- tridiagonal --


def _tridiagonal_results(x: ArrayType, *, lower: bool) -> list:
    n, part = x.shape[0], real_dtype(x.dtype)
    less = (max(n - 1, 0),)
    return [(x.shape, x.dtype), ((n,), part), (less, part), (less, x.dtype)]


def _tridiagonal_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool) -> list[str]:
    on_cpu(op, e)
    (t,) = ins
    if t.shape[-1] < 2:
        values = e.via(_real_diagonal, ins, x)[0]
        return [x, values, e.constant(0, outs[2]), e.constant(0, outs[3])]
    name = prefix(t.dtype, "sytrd", "hetrd")
    config = {"uplo": "L" if lower else "U"}
    return checked(op, e, name, [x], ins, outs, aliases={0: 0}, config=config)


def _real_diagonal(x: Any) -> Any:
    return real(diagonal(x))


tridiagonal = matrix_op(
    "tridiagonal", (2,), results=_tridiagonal_results, lower=_tridiagonal_lower, square=True
)
