"""LU decomposition with partial pivoting, and solves with it.

    lu(x)                             # f32[*, m, n] → [lu, pivots, permutation]
    lu_pivots_to_permutation(pivots, size=m)
    lu_solve(a, factors, permutation, b, form="N")     # a⁻¹ b, aᵀ⁻¹ b or aᴴ⁻¹ b
    solve(a, b)                       # the same, factoring a

Both factors are in `lu`: the lower one is below the diagonal, with an implicit diagonal of ones.
Row i of their product is row permutation[i] of x. Step i of the elimination exchanged the rows i
and pivots[i]. For a singular matrix, whose u has a zero on its diagonal, solutions are infinite or
NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading, reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import by_platform
from shardwise._src.ops.linalg.elimination_steps import elimination_by_panels, take_rows
from shardwise._src.ops.linalg.lapack_kernels import columns_of, eye, matrix_op
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    conjugate,
    for_one_matrix,
    product,
    rows_and_columns,
    triangle,
    triangular_solve,
    turned,
)
from shardwise._src.ops.logical import select_n, where
from shardwise._src.ops.loops import repeat
from shardwise._src.ops.rules import zero_jvp
from shardwise._src.ops.shape import pad, slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sort import sort
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_integer, real_dtype

# -- lu_pivots_to_permutation --


def _permutation_type(op: Op, pivots: ArrayType, *, size: int) -> ArrayType:
    if not is_integer(pivots.dtype) or not pivots.ndim or pivots.shape[-1] > size:
        raise TypeError(
            "[lu_pivots_to_permutation] takes vectors of integers, no longer than the permutation; "
            f"got {pivots.str_short(True)} for a permutation of {size}."
        )
    return array_type((*pivots.shape[:-1], size), pivots.dtype)


def _permutation_dims(op: Op, pivots: ArrayType, *, size: int) -> Dims:
    names = (*letters(pivots.ndim - 1), None)
    return Dims((names,), (names,))


def _permutation_by_cuda(
    op: Op, e: Any, ins: Any, outs: Any, pivots: str, *, size: int
) -> str | None:
    (t,) = ins
    if t.dtype != INT32 or 0 in (t.size, outs[0].size):
        return None
    return e.cusolver("cu_lu_pivots_to_permutation", [pivots], ins, outs, batch=t.ndim - 1)[0]


def _permutation_by_steps(op: Op, e: Any, ins: Any, outs: Any, pivots: str, *, size: int) -> str:
    (t,), (out,) = ins, outs
    start = e.iota(out, out.ndim - 1)
    if 0 in (t.size, out.size):
        return start
    return repeat(e, _exchange, t.shape[-1], (t, out), [pivots, start])[1]


def _exchange(i: Any, pivots: Any, order: Any) -> list[Any]:
    """Swaps entries i and pivots[i] of the order."""
    axis = type_of(order).ndim - 1
    size = type_of(order).shape[-1]
    places = iota(dtype=INT32, shape=type_of(order).shape, dimension=axis)
    steps = iota(dtype=INT32, shape=type_of(pivots).shape, dimension=axis)
    other = reduce_sum(where(ew.eq(steps, i), pivots, lit(0, pivots)), axes=(axis,))
    here = ew.eq(places, i)
    there = ew.eq(
        iota(dtype=type_of(other).dtype, shape=type_of(order).shape, dimension=axis),
        columns_of(other, size),
    )
    mine, its = [
        columns_of(reduce_sum(where(at, order, lit(0, order)), axes=(axis,)), size)
        for at in (here, there)
    ]
    return [pivots, where(here, its, where(there, mine, order))]


lu_pivots_to_permutation = Op(
    "lu_pivots_to_permutation",
    is_expensive=True,
    type_rule=_permutation_type,
    dims=_permutation_dims,
    lower=by_platform({"cusolver": _permutation_by_cuda, "xla": _permutation_by_steps}),
    jvp=zero_jvp,
    batch=batch_leading,
)

# -- lu --


def _lu_results(x: ArrayType) -> list:
    m, n = x.shape
    return [(x.shape, x.dtype), ((min(m, n),), INT32), ((m,), INT32)]


def _by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,) = ins
    batch = t.ndim - 2
    types = (*outs[:2], array_type(t.shape[:batch], INT32))
    factors, pivots, _ = e.lapack("getrf", [x], ins, types, batch=batch, aliases={0: 0})
    pivots, order = e.via(_from_zero, (outs[1],), pivots, size=t.shape[-2])
    return [factors, pivots, order]


def _by_cusolver(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,) = ins
    batch = t.ndim - 2
    types = (*outs[:2], array_type(t.shape[:batch], INT32))
    factors, pivots, _ = e.cusolver(
        "cusolver_getrf_ffi", [x], ins, types, batch=batch, aliases={0: 0}
    )
    pivots, order = e.via(_from_zero, (outs[1],), pivots, size=t.shape[-2])
    return [factors, pivots, order]


def _by_libtpu(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str] | None:
    if real_dtype(ins[0].dtype) != np.float32:  # its kernel has no others
        return None
    if 0 in ins[0].shape:  # the permutation may have elements
        return None
    return e.xla_expansion("LuDecomposition", [x], ins, outs)


def _from_zero(pivots: Any, size: int) -> list[Any]:
    pivots = ew.sub(pivots, lit(1, pivots))
    return [pivots, lu_pivots_to_permutation(pivots, size=size)]


def _lu_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """With F = l⁻¹ p dx u⁻¹, dl is l times F's part below the diagonal, du is the rest times u.

    Source: de Hoog, Anderssen, Lukas, "Differentiation of matrix functionals using triangular
    factorization" (2011). l and u are extended to square by parts of the identity.
    """
    (x,), (dx,) = primals, tangents
    factors, pivots, order = op(x)
    lower, upper = square_factors(factors)
    change = take_rows(dx, order)
    change = triangular_solve(
        lower, change, left_side=True, lower=True, form="N", unit_diagonal=True
    )
    change = triangular_solve(
        upper, change, left_side=False, lower=False, form="N", unit_diagonal=False
    )
    below = triangle(change, True, strict=True)
    found = ew.add(product(lower, below), product(triangle(change, False), upper))
    return [factors, pivots, order], [found, None, None]


def square_factors(factors: Any) -> tuple[Any, Any]:
    """l and u as square matrices, extended by parts of the identity if necessary."""
    t = type_of(factors)
    (m, n), axes = t.shape[-2:], (t.ndim - 2, t.ndim - 1)
    k = min(m, n)
    lower = triangle(slice_in_dim(factors, 0, k, axes[1]), True, strict=True)
    lower = _padded(lower, 0, m - k)
    lower = ew.add(lower, eye(type_of(lower).shape, t.dtype))
    upper = _padded(triangle(slice_in_dim(factors, 0, k, axes[0]), False), n - k, 0)
    if n > k:
        row, column = rows_and_columns(type_of(upper).shape)
        new = ew.bitwise_and(ew.eq(row, column), ew.ge(row, lit(k, row)))
        upper = select_n(new, upper, lit(1, upper))
    return lower, upper


def _padded(x: Any, rows: int, columns: int) -> Any:
    config = (*[(0, 0, 0)] * (type_of(x).ndim - 2), (0, rows, 0), (0, columns, 0))
    return pad(x, lit(0, x), padding_config=config) if rows or columns else x


def inverse(order: Any) -> Any:
    """The inverse of permutations."""
    axis = type_of(order).ndim - 1
    places = iota(dtype=INT32, shape=type_of(order).shape, dimension=axis)
    return sort(order, places, dimension=axis)[1]


lu = matrix_op(
    "lu",
    (2,),
    results=_lu_results,
    lower={
        "lapack": _by_lapack,
        "cusolver": _by_cusolver,
        "libtpu": _by_libtpu,
        "xla": elimination_by_panels,
    },
    jvp=_lu_jvp,
    sharding_rule="ab -> ab, -, -",
)

# -- lu_solve: a system with a factored matrix; derivatives treat the factors as constants --


def _solve_results(
    a: ArrayType, factors: ArrayType, order: ArrayType, b: ArrayType, *, form: str
) -> list:
    if factors != a or order.shape != a.shape[:1] or b.shape[0] != a.shape[0]:
        raise ValueError(
            "[lu_solve] takes a square matrix, its factors and their permutation, and a matrix "
            f"with as many rows; got {join_types((a, factors, order, b))}."
        )
    return [(b.shape, b.dtype)]


def _solve_lower(
    op: Op, e: Any, ins: Any, outs: Any, a: str, factors: str, order: str, b: str, *, form: str
) -> str:
    if ins[0].ndim == 2 and outs[0].size and e.may_partition("getrs", ins):
        return e.partitioned_call("getrs", [factors, order, b], ins[1:], outs, {"form": form})[0]
    return e.via(by_factors, ins[1:], factors, order, b, form=form)[0]


def by_factors(factors: Any, order: Any, b: Any, form: str) -> Any:
    """The solution by triangular solves."""

    def part(b: Any, lower: bool) -> Any:
        return triangular_solve(
            factors, b, left_side=True, lower=lower, form=form, unit_diagonal=lower
        )

    if form == "N":
        return part(part(take_rows(b, order), True), False)
    return take_rows(part(part(b, False), True), inverse(order))


def _solve_jvp(op: Op, primals: Any, tangents: Any, *, form: str) -> tuple[Any, Any]:
    a, factors, order, _ = primals
    da, db = tangents[0], tangents[3]
    x = op(*primals, form=form)
    change = db
    if da is not None:
        da = da if form == "N" else turned(da) if form == "T" else adjoint(da)
        moved = ew.neg(product(da, x))
        change = moved if change is None else ew.add(change, moved)
    return x, None if change is None else op(a, factors, order, change, form=form)


def _solve_transpose(
    op: Op, ct: Any, a: Any, factors: Any, order: Any, b: Any, *, form: str
) -> list[Any]:
    if not is_linear(b) or is_linear(a) or is_linear(factors):
        raise ValueError("[lu_solve] is linear in its last operand only.")
    if form == "C":
        a, factors = conjugate(a), conjugate(factors)
    found = op(a, factors, order, ct, form="T" if form == "N" else "N")
    return [None, None, None, found]


def _solve_batch(op: Op, mapped: Any, args: Any, ds: Any, *, form: str) -> tuple[Any, Any]:
    *matrices, b = args
    if any(d is not None for d in ds[:3]):
        return batch_leading(op, mapped, args, ds, form=form)
    at = type_of(b).ndim - 1
    return for_one_matrix(lambda b: op(*matrices, b, form=form), b, ds[3], at)


lu_solve = matrix_op(
    "lu_solve",
    (2, 2, 1, 2),
    results=_solve_results,
    lower=_solve_lower,
    square=True,
    multiple=False,
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=_solve_batch,
    sharding_rule="ab, cd, -, ef -> ef",
)


def solve(a: Any, b: Any, form: str = "N") -> Any:
    """The solution of linear systems, by factoring the matrix."""
    factors, _, order = lu(ew.stop_gradient(a))
    return lu_solve(a, factors, order, b, form=form)


def inv(a: Any) -> Any:
    t = type_of(a)
    one = eye(t.shape, t.dtype)
    return solve(a, one if t.mesh is None else reshard_like(one, t))
