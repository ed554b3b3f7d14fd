"""Triangular solves, and common code for ops on matrices.

    triangular_solve(a, b, left_side=True, lower=True, form="N", unit_diagonal=False)   # a⁻¹ b

`form` selects the matrix: "N" itself, "T" its transpose, "C" its adjoint. On CPU this is LAPACK's
`trsm`, elsewhere XLA's instruction. A matrix with a zero on its diagonal gives infinities or NaN,
as in LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading, move_axis, reshape, transpose
from shardwise._src.ops.contract import dot
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import by_platform
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.precision import Precision
from shardwise._src.ops.sharded.sharding_ops import drop_sharding, reshard_like
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_complex

INT32 = np.dtype(np.int32)
KERNEL_DTYPES = ("float32", "float64", "complex64", "complex128")

# -- common to ops on matrices: the last two dimensions are the matrix, the others a batch --


def check_matrices(name: str, *types: ArrayType, square: bool = True) -> None:
    """Rejects operands that LAPACK has no kernels for."""
    x = types[0]
    if any(t.dtype.name not in KERNEL_DTYPES for t in types) or len({t.dtype for t in types}) > 1:
        raise TypeError(
            f"[{name}] takes operands of the same dtype, float32, float64, complex64 or "
            f"complex128; got {join_types(types)}. Convert the others with `astype`."
        )
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "a square matrix" if square else "a matrix"
        raise ValueError(f"[{name}] takes {kind}, or a batch of them; got {x.str_short(True)}.")


def batch_dims(*types: ArrayType) -> tuple[tuple[Any, ...], ...]:
    """The factors of dimensions: batches are shared, matrices must be unsharded."""
    count = types[0].ndim - 2
    names = letters(count)
    return tuple([(*names, *[None] * (t.ndim - count)) for t in types])


def conjugate(x: Any) -> Any:
    return ew.conj(x) if is_complex(type_of(x).dtype) else x


def adjoint(x: Any) -> Any:
    return turned(conjugate(x))


def turned(x: Any) -> Any:
    n = type_of(x).ndim
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def product(a: Any, b: Any) -> Any:
    """The products of batches of matrices."""
    n = type_of(a).ndim
    batch = tuple(range(n - 2))
    return dot(a, b, (((n - 1,), (n - 2,)), (batch, batch)), Precision.HIGHEST)


def rows_and_columns(shape: tuple[int, ...]) -> list[Any]:
    """The row and the column of each element of matrices."""
    n = len(shape)
    return [iota(dtype=INT32, shape=shape, dimension=d) for d in (n - 2, n - 1)]


def triangle(x: Any, lower: bool, strict: bool = False) -> Any:
    """The matrix with zeros outside a triangle; strict: on its diagonal, too."""
    row, column = rows_and_columns(type_of(x).shape)
    if not lower:
        row, column = column, row
    keep = ew.gt(row, column) if strict else ew.ge(row, column)
    return select_n(keep, lit(0, x), x)


def for_one_matrix(solve: Callable[[Any], Any], b: Any, d: int, at: int) -> tuple[Any, int]:
    """Solves for right-hand sides along a mapped dimension `d`, which share one matrix.

    They are merged into the columns or the rows: `at` is the position after these.
    """
    b = move_axis(b, d, at)
    shape = type_of(b).shape
    joint = (*shape[: at - 1], shape[at - 1] * shape[at], *shape[at + 1 :])
    return reshape(solve(reshape(b, shape=joint)), shape=shape), at


def left_to_partitioner(jvp: Callable) -> Callable:
    """A jvp rule for values with a mesh in their types: it runs without, and then reshards."""

    def rule(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
        if all(type_of(x).mesh is None for x in primals):
            return jvp(op, primals, tangents, **p)
        outs, changes = jvp(
            op,
            [drop_sharding(x) for x in primals],
            [None if x is None else drop_sharding(x) for x in tangents],
            **p,
        )
        types = infer(op, tuple(map(type_of, primals)), p)
        if not op.multiple:
            placed = reshard_like(outs, types)
            return placed, None if changes is None else reshard_like(changes, types)
        return [reshard_like(x, t) for x, t in zip(outs, types, strict=True)], [
            None if x is None else reshard_like(x, t) for x, t in zip(changes, types, strict=True)
        ]

    return rule


# -- triangular_solve --


def _type(op: Op, a: ArrayType, b: ArrayType, *, left_side: bool, **_: Any) -> ArrayType:
    check_matrices(op.name, a, b)
    side = -2 if left_side else -1
    if b.ndim != a.ndim or a.shape[:-2] != b.shape[:-2] or b.shape[side] != a.shape[-1]:
        wanted = "rows" if left_side else "columns"
        raise ValueError(
            f"[triangular_solve] b must have a's batch dimensions, and as many {wanted} as a; got "
            f"{join_types((a, b))}."
        )
    return array_type(b.shape, b.dtype, a.weak_type and b.weak_type)


def _dims(op: Op, a: ArrayType, b: ArrayType, **_: Any) -> Dims:
    ins = batch_dims(a, b) if a.ndim > 2 else (("a", "b"), ("c", "d"))
    return Dims(ins, ins[1:])


def _by_lapack(op: Op, e: Any, ins: Any, outs: Any, a: str, b: str, *, form: str, **p: bool) -> str:
    config = {
        "side": "L" if p["left_side"] else "R",
        "uplo": "L" if p["lower"] else "U",
        "trans_x": form,
        "diag": "U" if p["unit_diagonal"] else "N",
    }
    batch = ins[0].ndim - 2
    return e.lapack("trsm", [a, b], ins, outs, batch=batch, config=config, aliases={1: 0})[0]


def _by_xla(op: Op, e: Any, ins: Any, outs: Any, a: str, b: str, *, form: str, **p: bool) -> str:
    names = ("left_side", "lower", "unit_diagonal")
    flags = ", ".join(f"{name} = {'true' if p[name] else 'false'}" for name in names)
    kind = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[form]
    return e.let(
        f'"stablehlo.triangular_solve"({a}, {b}) <{{{flags}, '
        f"transpose_a = #stablehlo<transpose {kind}>}}> : ({e.ty(ins[0])}, {e.ty(ins[1])}) -> "
        f"{e.ty(outs[0])}"
    )


def _standing(a: Any, form: str) -> Any:
    """The matrix of the equations, by `form`."""
    return {"N": lambda x: x, "T": turned, "C": adjoint}[form](a)


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    x = op(a, b, **p)
    change = db
    if da is not None:
        da = triangle(da, p["lower"], p["unit_diagonal"])
        da = _standing(da, p["form"])
        moved = ew.neg(product(da, x) if p["left_side"] else product(x, da))
        change = moved if change is None else ew.add(change, moved)
    return x, op(a, change, **p)


def _transpose(op: Op, ct: Any, a: Any, b: Any, *, form: str, **p: Any) -> list[Any]:
    if not is_linear(b) or is_linear(a):
        raise ValueError("[triangular_solve] is linear in its second operand only.")
    if form == "C":
        return [None, op(conjugate(a), ct, form="N", **p)]
    return [None, op(a, ct, form="T" if form == "N" else "N", **p)]


def _batch(op: Op, mapped: Any, args: Any, ds: Any, *, left_side: bool, **p: Any) -> tuple:
    (a, b), (da, db) = args, ds
    if da is not None:
        return batch_leading(op, mapped, args, ds, left_side=left_side, **p)
    at = type_of(b).ndim - (1 if left_side else 2)  # after the columns, or the rows
    return for_one_matrix(lambda b: op(a, b, left_side=left_side, **p), b, db, at)


triangular_solve = Op(
    "triangular_solve",
    is_expensive=True,
    type_rule=_type,
    dims=_dims,
    lower=by_platform({"lapack": _by_lapack, "xla": _by_xla}),
    jvp=left_to_partitioner(_jvp),
    transpose=_transpose,
    batch=_batch,
)


def solve_triangle(a: Any, b: Any, lower: bool, form: str = "N") -> Any:
    """The solution x of a x = b, of aᵀ x = b (form "T"), or of aᴴ x = b ("C")."""
    return triangular_solve(a, b, left_side=True, lower=lower, form=form, unit_diagonal=False)
