"""Linear systems with a tridiagonal matrix.

    tridiagonal_solve(dl, d, du, b, perturbed=False)      # f32[*, n] three times, f32[*, n, k]

Row i of the matrix has dl[i], d[i] and du[i] around its diagonal; dl[0] and du[n - 1] are not read.
A singular matrix gives NaN; with `perturbed`, tiny numbers replace zero pivots.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import by_platform
from shardwise._src.ops.linalg.lapack_kernels import checked, columns_of
from shardwise._src.ops.linalg.triangular import KERNEL_DTYPES, for_one_matrix
from shardwise._src.ops.linalg.tridiagonal_steps import tridiagonal_elimination
from shardwise._src.ops.shape import pad
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters


def _type(op: Op, *types: ArrayType, perturbed: bool) -> ArrayType:
    *lines, b = types
    if b.dtype.name not in KERNEL_DTYPES or {t.dtype for t in lines} != {b.dtype}:
        raise TypeError(
            f"[{op.name}] takes operands of the same dtype, float32, float64, complex64 or "
            f"complex128; got {join_types(types)}."
        )
    if b.ndim < 2 or any(t.shape != b.shape[:-1] for t in lines):
        raise ValueError(
            f"[{op.name}] takes three diagonals of the same shape, and a matrix with as many rows; "
            f"got {join_types(types)}."
        )
    return array_type(b.shape, b.dtype)


def _dims(op: Op, *types: ArrayType, **_: Any) -> Dims:
    names = letters(types[0].ndim - 1)
    line, matrix = (*names, None), (*names, None, None)
    return Dims((line, line, line, matrix), (matrix,))


def _by_lapack(op: Op, e: Any, ins: Any, outs: Any, *xs: str, perturbed: bool) -> str:
    if perturbed:
        kernel = "tridiagonal_solve_perturbed_ffi"
        return e.lapack(kernel, xs, ins, outs, batch=ins[0].ndim - 1)[0]
    return checked(op, e, "gtsv", xs, ins, ins, aliases={i: i for i in range(4)})[3]


def _by_cusparse(op: Op, e: Any, ins: Any, outs: Any, *xs: str, perturbed: bool) -> str | None:
    batch = ins[0].ndim - 1
    if perturbed:
        return e.cusolver("cu_tridiagonal_solve_perturbed", xs, ins, outs, batch=batch)[0]
    if ins[0].shape[-1] < 3:  # it takes three rows or more
        return None
    return e.cusolver("cusparse_gtsv2_ffi", xs, ins, outs, batch=batch, aliases={3: 0})[0]


def _shifted(x: Any, by: int, after: int = 0) -> Any:
    """Elements shifted by `by` along the dimension before the last `after`; filled with zeros."""
    none = (0, 0, 0)
    config = (*[none] * (type_of(x).ndim - 1 - after), (by, -by, 0), *[none] * after)
    return pad(x, lit(0, x), padding_config=config)


def _product(lines: Any, x: Any) -> Any:
    """The sum of products of the lines that are not None; unread elements are ignored."""
    count = type_of(x).shape[-1]
    total = None
    for line, by in zip(lines, (1, 0, -1), strict=True):
        if line is not None:
            part = ew.mul(columns_of(line, count), _shifted(x, by, 1) if by else x)
            total = part if total is None else ew.add(total, part)
    return total


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x = op(*primals, **p)
    *lines, change = tangents
    moved = _product(lines, x)
    if moved is not None:
        change = ew.neg(moved) if change is None else ew.sub(change, moved)
    return x, op(*primals[:3], change, **p)


def _transpose(op: Op, ct: Any, dl: Any, d: Any, du: Any, b: Any, **p: Any) -> list[Any]:
    if not is_linear(b) or any(is_linear(x) for x in (dl, d, du)):
        raise ValueError(f"[{op.name}] is linear in its last operand only.")
    return [None, None, None, op(_shifted(du, 1), d, _shifted(dl, -1), ct, **p)]


def _batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, Any]:
    *lines, b = args
    if any(d is not None for d in ds[:3]):
        return batch_leading(op, mapped, args, ds, **p)
    return for_one_matrix(lambda b: op(*lines, b, **p), b, ds[3], type_of(b).ndim - 1)


tridiagonal_solve = Op(
    "tridiagonal_solve",
    is_expensive=True,
    type_rule=_type,
    dims=_dims,
    lower=by_platform(
        {"lapack": _by_lapack, "cusolver": _by_cusparse, "xla": tridiagonal_elimination}
    ),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)
