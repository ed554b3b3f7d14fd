"""Common code for ops over kernels of LAPACK and cuSOLVER.

    schur = matrix_op("schur", (2,), results=lambda x: [(x.shape, x.dtype)] * 2, lower={...})

Operands and results have leading batch dimensions, which are those of the first operand; the
remaining dimensions form a matrix, a vector or a scalar, which is unsharded on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading, broadcast_in_dim, reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import Rules, by_platform
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    check_matrices,
    left_to_partitioner,
    rows_and_columns,
)
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.rules import linear_jvp
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_complex, is_inexact

Results = Callable[..., Sequence[tuple[tuple[int, ...], Any]]]


def matrix_op(
    name: str,
    ranks: tuple[int, ...],
    results: Results,
    lower: Rules | Callable | None = None,
    *,
    body: Callable | None = None,
    square: bool = False,
    multiple: bool = True,
    batch: Callable = batch_leading,
    sharding_rule: str | Callable[..., str] = "",
    jvp: Any = None,
    **rules: Any,
) -> Op:
    """An op on matrices, optionally with vectors and scalars.

    ranks:   the number of dimensions of each operand in addition to the batch.
    results: shape and dtype of each result, by the types of the operands, all without a batch.
    lower:   rules by the libraries of platforms, or one rule for all.
    body:    a function over ops by which it is lowered, if it has no rule `lower`.
    square:  whether the first operand must be square.
    sharding_rule: the dimension factors of operands and results without a batch, if matrices may
             be sharded, such as "ab -> ab, -" (- marks an unsharded dimension); or a function of
             types and parameters that returns them.
    """

    def type_rule(op: Op, *types: ArrayType, **p: Any) -> Any:
        check_matrices(name, types[0], square=square)
        count = types[0].ndim - ranks[0]
        leading = types[0].shape[:count]
        own = [t.ndim - rank for t, rank in zip(types, ranks, strict=True)]
        if any(n != count or t.shape[:n] != leading for n, t in zip(own, types, strict=True)):
            raise ValueError(
                f"[{name}] operands must have the same batch dimensions, followed by "
                f"{', '.join(map(str, ranks))} core dimensions; got {join_types(types)}."
            )
        found = results(*[array_type(t.shape[count:], t.dtype) for t in types], **p)
        made = tuple([array_type((*leading, *shape), dtype) for shape, dtype in found])
        return made if multiple else made[0]

    def dims(op: Op, *types: ArrayType, **p: Any) -> Dims:
        count = types[0].ndim - ranks[0]
        if sharding_rule and not count:
            rule = sharding_rule if isinstance(sharding_rule, str) else sharding_rule(*types, **p)
            sides = [
                [tuple([None if c == "-" else c for c in part]) for part in side.split(", ")]
                for side in rule.split(" -> ")
            ]
            return Dims(tuple(sides[0]), tuple(sides[1]))
        names = letters(count)
        found = results(*[array_type(t.shape[count:], t.dtype) for t in types], **p)
        return Dims(
            tuple([(*names, *[None] * rank) for rank in ranks]),
            tuple([(*names, *[None] * len(shape)) for shape, _ in found]),
        )

    def by_body(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **p: Any) -> Any:
        found = e.via(body, ins, *xs, **p)
        return found if multiple else found[0]

    return Op(
        name,
        multiple=multiple,
        is_expensive=True,
        type_rule=type_rule,
        dims=dims,
        lower=by_platform(lower) if isinstance(lower, Mapping) else lower or by_body,
        batch=batch,
        jvp=jvp and (left_to_partitioner(jvp) if sharding_rule else jvp),
        **rules,
    )


# -- the Hermitian part; a sharded matrix needs one exchange --


def _hermitian_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    if t.ndim == 2 and t.size and e.may_partition("hermitian", ins):
        return e.partitioned_call("hermitian", [x], ins, outs, {})[0]
    return e.via(_hermitian_part, ins, x)[0]


def _hermitian_part(x: Any) -> Any:
    return ew.mul(lit(0.5, x), ew.add(x, adjoint(x)))


hermitian_part = matrix_op(
    "hermitian_part",
    (2,),
    results=lambda x: [(x.shape, x.dtype)],
    lower=_hermitian_lower,
    square=True,
    multiple=False,
    sharding_rule="ab -> ab",
    jvp=linear_jvp,
    transpose=lambda op, ct, x: [op(ct)],
)

# -- calls of kernels --


def checked(
    op: Op,
    e: Any,
    name: str,
    xs: Sequence[str],
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    *,
    finite: Callable | None = None,
    call: Callable | None = None,
    reports: bool = True,
    **more: Any,
) -> list[str]:
    """The results of a kernel whose last result reports failure: the others become NaN then.

    The last operand is a matrix.

    finite: returns the part of the operand that the kernel reads. Results are also NaN if it is
            not finite: iterative kernels might never terminate then, so they get zeros.
    call:   calls the kernel; `e.lapack` if None.
    reports: whether it has that result. If not, only matrices that are not finite give NaN.
    """
    batch = ins[-1].ndim - 2
    info = array_type(ins[0].shape[:batch], INT32)
    types, bad = (*outs, info), ""
    if finite is not None:
        clean, bad = e.via(_finite_or_zero, ins[:1], xs[0], read=finite)
        xs = [clean, *xs[1:]]
    if reports:
        found = (call or e.lapack)(name, xs, ins, types, batch=batch, **more)
        if bad:
            found[-1] = e.via(ew.bitwise_or, (info, info), found[-1], bad)[0]
    else:
        found = [*(call or e.lapack)(name, xs, ins, outs, **more), bad]
    return e.via(_nan_where_failed, types, *found)


def _nan_where_failed(*values: Any) -> list[Any]:
    """NaN for inexact values where the last one, a kernel's report, is not 0."""
    *outs, info = values
    batch = type_of(info).ndim
    return [nan_where_failed(x, info, batch) if is_inexact(type_of(x).dtype) else x for x in outs]


def _finite_or_zero(x: Any, read: Callable) -> list[Any]:
    """Replaces matrices that are not finite by zeros, with a flag of 1 for each of these."""
    t = type_of(x)
    bad = ew.bitwise_not(ew.is_finite(ew.abs(read(x))))
    some = reduce_or(bad, axes=(t.ndim - 2, t.ndim - 1))
    return [select_n(spread(some, t.shape), x, lit(0, x)), as_dtype(some, INT32)]


def nan_unless_finite(x: Any, compute: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """The results of a function over ops; NaN for matrices that are not finite."""
    clean, bad = _finite_or_zero(x, identity)
    return _nan_where_failed(*compute(clean), bad)


def identity(x: Any) -> Any:
    return x


def nan_where_failed(x: Any, info: Any, batch: int) -> Any:
    """NaN for results for which a kernel reports failure. info: i32[*batch]."""
    t = type_of(x)
    failed = ew.ne(info, np.int32(0))
    failed = broadcast_in_dim(failed, shape=t.shape, dims=tuple(range(batch)))
    nan = complex(np.nan, np.nan) if is_complex(t.dtype) else np.nan
    return select_n(failed, x, lit(nan, x))


def prefix(dtype: Any, real: str, other: str) -> str:
    """LAPACK's prefix for a matrix kind that has another name for complex numbers."""
    return other if is_complex(dtype) else real


# -- small helpers over ops, for lowerings and derivatives --


def as_dtype(x: Any, dtype: Any) -> Any:
    return x if type_of(x).dtype == dtype else convert_element_type(x, dtype=dtype)


def real(x: Any) -> Any:
    return ew.real(x) if is_complex(type_of(x).dtype) else x


def on_diagonal(shape: tuple[int, ...]) -> Any:
    """Whether an element of matrices is on the diagonal."""
    return ew.eq(*rows_and_columns(shape))


def eye(shape: tuple[int, ...], dtype: Any) -> Any:
    return as_dtype(on_diagonal(shape), dtype)


def diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    t = type_of(x)
    return reduce_sum(select_n(on_diagonal(t.shape), lit(0, x), x), axes=(t.ndim - 2,))


def trace(x: Any) -> Any:
    t = type_of(x)
    return reduce_sum(select_n(on_diagonal(t.shape), lit(0, x), x), axes=(t.ndim - 2, t.ndim - 1))


def rows_of(v: Any, count: int) -> Any:
    """Matrices of `count` rows, all equal to the vector."""
    t = type_of(v)
    dims = (*range(t.ndim - 1), t.ndim)
    return broadcast_in_dim(v, shape=(*t.shape[:-1], count, t.shape[-1]), dims=dims)


def columns_of(v: Any, count: int) -> Any:
    """Matrices of `count` columns, all equal to the vector."""
    t = type_of(v)
    return broadcast_in_dim(v, shape=(*t.shape, count), dims=tuple(range(t.ndim)))


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcasts one number per matrix to all of its elements."""
    return broadcast_in_dim(x, shape=shape, dims=tuple(range(type_of(x).ndim)))


def scaled(a: Any, v: Any) -> Any:
    """Matrices with each column scaled by its own factor."""
    t = type_of(a)
    return ew.mul(a, rows_of(as_dtype(v, t.dtype), t.shape[-2]))


def inverse_gaps(w: Any) -> Any:
    """1 / (w_j - w_i), and zeros on the diagonal."""
    t = type_of(w)
    n = t.shape[-1]
    gaps = ew.sub(rows_of(w, n), columns_of(w, n))
    one = eye(type_of(gaps).shape, t.dtype)
    return ew.sub(ew.div(lit(1, gaps), ew.add(gaps, one)), one)
