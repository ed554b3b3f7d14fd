"""Reductions of matrices by Householder reflections as programs, for platforms without a library.

    pivoted_reflections_by_steps     # QR decomposition with column exchanges: LAPACK's `geqp3`
    hessenberg_by_steps              # `gehrd`; tridiagonal_by_steps: `sytrd`

Step i reflects column i, so that only its first elements remain; the reflections and their scales
are those of LAPACK: I - tau v vᴴ, with a real result where the matrix is complex.
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
from shardwise._src.ops.linalg.elimination_steps import exchanged, take_rows
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    columns_of,
    diagonal,
    hermitian_part,
    real,
    rows_of,
)
from shardwise._src.ops.linalg.scaling import scaled_to_one, times
from shardwise._src.ops.linalg.triangular import (
    INT32,
    conjugate,
    rows_and_columns,
    triangle,
    turned,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.loops import repeat
from shardwise._src.ops.reduce import argmax, reduce_max
from shardwise._src.ops.shape import pad, rev, slice_in_dim
from shardwise._src.ops.sort import take_along
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import is_complex, real_dtype


def _picked(mask: Any, x: Any, axis: int) -> Any:
    """The one element along an axis where the mask holds."""
    return reduce_sum(where(mask, x, lit(0, x)), axes=(axis,))


def _reflection(column: Any, first: Any) -> tuple[Any, Any, Any]:
    """The reflection that leaves only element `first` of those from there on.

    Returns: its vector, with a one at that place and zeros before; its scale; the element left.
    """
    t = type_of(column)
    axis = t.ndim - 1
    place = iota(dtype=INT32, shape=t.shape, dimension=axis)
    at = ew.eq(place, first)
    part = where(ew.ge(place, first), column, lit(0, column))
    largest = reduce_max(ew.abs(part), axes=(axis,))
    largest = where(ew.gt(largest, lit(0, largest)), largest, lit(1, largest))
    part = ew.div(part, columns_of(as_dtype(largest, t.dtype), t.shape[-1]))
    alpha = _picked(at, part, axis)
    tail = where(at, lit(0, part), part)
    sizes = ew.abs(tail)
    rest = reduce_sum(ew.mul(sizes, sizes), axes=(axis,))
    still = ew.eq(rest, lit(0, rest))
    if is_complex(t.dtype):
        still = ew.bitwise_and(still, ew.eq(ew.imag(alpha), lit(0, rest)))
    size = ew.abs(alpha)
    length = ew.sqrt(ew.add(ew.mul(size, size), rest))
    beta = as_dtype(where(ew.lt(real(alpha), lit(0, length)), length, ew.neg(length)), t.dtype)
    one = lit(1, beta)
    tau = ew.div(ew.sub(beta, alpha), where(still, one, beta))
    apart = where(still, one, ew.sub(alpha, beta))
    v = where(at, lit(1, part), ew.div(tail, columns_of(apart, t.shape[-1])))
    left = where(still, alpha, beta)
    return v, where(still, lit(0, tau), tau), ew.mul(left, as_dtype(largest, t.dtype))


def _reflected(a: Any, v: Any, tau: Any, later: Any) -> Any:
    """(I - conj(tau) v vᴴ) a, in the columns where `later` holds."""
    t = type_of(a)
    m, n = t.shape[-2:]
    inner = reduce_sum(ew.mul(columns_of(conjugate(v), n), a), axes=(t.ndim - 2,))
    v = ew.mul(v, columns_of(conjugate(tau), m))
    return where(later, ew.sub(a, ew.mul(columns_of(v, n), rows_of(inner, m))), a)


def _stored(a: Any, i: Any, first: Any, v: Any, left: Any) -> Any:
    """Column i with the element that is left at `first`, and the vector below."""
    m, n = type_of(a).shape[-2:]
    row, column = rows_and_columns(type_of(a).shape)
    own = ew.eq(column, i)
    a = where(ew.bitwise_and(own, ew.gt(row, first)), columns_of(v, n), a)
    left = columns_of(columns_of(left, m), n)
    return where(ew.bitwise_and(own, ew.eq(row, first)), left, a)


def _noted(taus: Any, i: Any, tau: Any) -> Any:
    t = type_of(taus)
    step = iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1)
    return where(ew.eq(step, i), columns_of(tau, t.shape[-1]), taus)


# -- QR decomposition with column exchanges --


def pivoted_reflections_by_steps(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,), (a, taus, order) = ins, outs
    check_fixed(op, e, t)
    start = [e.constant(0, taus), e.iota(order, order.ndim - 1)]
    if 0 in t.shape:
        return [x, *start]
    scale = array_type(t.shape[:-2], real_dtype(t.dtype))
    small, own = e.via(scaled_to_one, ins, x)
    found = repeat(e, _pivot, taus.shape[-1], outs, [small, *start])
    return [e.via(upper_times, (a, scale), found[0], own)[0], *found[1:]]


def upper_times(a: Any, scale: Any) -> Any:
    """Reflections and r, where r is multiplied by a number for each matrix."""
    row, column = rows_and_columns(type_of(a).shape)
    return where(ew.gt(row, column), a, times(a, scale))


def _pivot(i: Any, a: Any, taus: Any, order: Any) -> list[Any]:
    """Step i: exchanges column i with the longest of those after it, and reflects it."""
    t = type_of(a)
    n, rows, columns = t.shape[-1], t.ndim - 2, t.ndim - 1
    row, column = rows_and_columns(t.shape)
    sizes = ew.abs(where(ew.ge(row, i), a, lit(0, a)))
    squares = reduce_sum(ew.mul(sizes, sizes), axes=(rows,))
    place = iota(dtype=INT32, shape=type_of(squares).shape, dimension=rows)
    squares = where(ew.ge(place, i), squares, lit(-1, squares))
    swap = exchanged((*t.shape[:-2], n), i, argmax(squares, axes=(rows,), index_dtype=INT32))
    a = turned(take_rows(turned(a), swap))
    order = take_along(order, swap, rows)
    v, tau, left = _reflection(_picked(ew.eq(column, i), a, columns), i)
    a = _stored(_reflected(a, v, tau, ew.gt(column, i)), i, i, v, left)
    return [a, _noted(taus, i, tau), order]


# -- Hessenberg and tridiagonal form --


def hessenberg_by_steps(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,) = ins
    check_fixed(op, e, t)
    n = t.shape[-1]
    if n < 2 or not t.size:
        return [x, e.constant(0, outs[1])]
    return repeat(e, _turned_on_both_sides, n - 1, outs, [x, e.constant(0, outs[1])])


def _turned_on_both_sides(i: Any, a: Any, taus: Any) -> list[Any]:
    """Step i: h a hᴴ, with the reflection h that leaves two elements of column i below its top."""
    t = type_of(a)
    n, columns = t.shape[-1], t.ndim - 1
    _, column = rows_and_columns(t.shape)
    first = ew.add(i, np.int32(1))
    v, tau, left = _reflection(_picked(ew.eq(column, i), a, columns), first)
    a = _reflected(a, v, tau, ew.gt(column, i))
    outer = reduce_sum(ew.mul(a, rows_of(v, n)), axes=(columns,))
    outer = ew.mul(outer, columns_of(tau, n))
    a = ew.sub(a, ew.mul(columns_of(outer, n), rows_of(conjugate(v), n)))
    return [_stored(a, i, first, v, left), _noted(taus, i, tau)]


def tridiagonal_by_steps(op: Op, e: Any, ins: Any, outs: Any, x: str, *, lower: bool) -> list[str]:
    t, taus = outs[0], outs[3]
    check_fixed(op, e, t)
    full = e.via(_hermitian, ins, x, lower=lower)[0]
    found = repeat(
        e, _turned_on_both_sides, t.shape[-1] - 1, (t, taus), [full, e.constant(0, taus)]
    )
    return e.via(_with_diagonals, (t, taus), *found, lower=lower)


def _hermitian(x: Any, lower: bool) -> Any:
    """The Hermitian matrix with this triangle; for the upper one, in reverse order."""
    x = hermitian_part(ew.add(triangle(x, lower), triangle(x, lower, strict=True)))
    return x if lower else _reversed(x)


def _reversed(x: Any) -> Any:
    n = type_of(x).ndim
    return rev(x, dimensions=(n - 2, n - 1))


def _with_diagonals(a: Any, taus: Any, lower: bool) -> list[Any]:
    if not lower:
        a, taus = _reversed(a), rev(taus, dimensions=(type_of(taus).ndim - 1,))
    t = type_of(a)
    n, axis = t.shape[-1], t.ndim - 2 if lower else t.ndim - 1
    none = (0, 0, 0)
    up = tuple([(-1, 1, 0) if d == axis else none for d in range(t.ndim)])
    beside = diagonal(pad(a, lit(0, a), padding_config=up))
    beside = slice_in_dim(beside, 0, n - 1, t.ndim - 2)
    return [a, real(diagonal(a)), real(beside), taus]
