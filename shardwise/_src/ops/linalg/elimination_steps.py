"""LU decomposition as a program, for platforms without a library for it.

Panels of columns are factored one column at a time, with pivots from full columns, as in LAPACK's
`getrf`; each panel then updates the columns after it by a triangular solve and one product.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, GatherScatterMode
from shardwise._src.ops.indexing.gather_scatter import gather
from shardwise._src.ops.linalg.by_platform import check_fixed
from shardwise._src.ops.linalg.lapack_kernels import columns_of, rows_of
from shardwise._src.ops.linalg.triangular import INT32, product, rows_and_columns, triangular_solve
from shardwise._src.ops.logical import where
from shardwise._src.ops.loops import repeat
from shardwise._src.ops.reduce import argmax
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.ops.sort import take_along
from shardwise._src.types.array_type import array_type

PANEL = 64  # columns


def take_rows(x: Any, order: Any) -> Any:
    """Rows of matrices in a given order; order: i32[*, rows]."""
    t = type_of(x)
    if not t.size:
        return x
    row, batch = t.ndim - 2, tuple(range(t.ndim - 2))
    return gather(
        x,
        reshape(order, shape=(*type_of(order).shape, 1)),
        dimension_numbers=GatherDimensionNumbers((row + 1,), (row,), (row,), batch, batch),
        slice_sizes=(*[1] * (row + 1), t.shape[-1]),
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def exchanged(shape: tuple[int, ...], i: Any, other: Any) -> Any:
    """The order 0, 1, … with i and another place exchanged, for each of a batch."""
    places = iota(dtype=INT32, shape=shape, dimension=len(shape) - 1)
    other = columns_of(other, shape[-1])
    here, there = ew.eq(places, i), ew.eq(places, other)
    return where(here, other, where(there, ew.mul(lit(1, places), i), places))


def elimination_by_panels(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    (t,), (_, pivots_type, order_type) = ins, outs
    check_fixed(op, e, t)
    order = e.iota(order_type, order_type.ndim - 1)
    leading, (m, n) = t.shape[:-2], t.shape[-2:]
    if 0 in t.shape:
        return [x, e.constant(0, pivots_type), order]
    pivots = []
    for start in range(0, min(m, n), PANEL):
        size = min(PANEL, min(m, n) - start)
        panel = array_type((*leading, m - start, size), t.dtype)
        steps = array_type((*leading, size), INT32)
        rows = array_type((*leading, m - start), INT32)
        given = e.via(_panel, (t,), x, start=start, size=size)[0]
        state = [given, e.constant(0, steps), e.iota(rows, rows.ndim - 1)]
        found, places, moved = repeat(e, _eliminate, size, (panel, steps, rows), state)
        pivots += e.via(_plus, (steps,), places, start=start)
        types = (t, order_type, panel, rows)
        x, order = e.via(_updated, types, x, order, found, moved, start=start)
    sizes = [array_type((*leading, min(PANEL, min(m, n) - k)), INT32)
             for k in range(0, min(m, n), PANEL)]  # fmt: skip
    return [x, e.via(_joined, sizes, *pivots)[0], order]


def _panel(x: Any, start: int, size: int) -> Any:
    t = type_of(x)
    rest = slice_in_dim(x, start, t.shape[-2], t.ndim - 2)
    return slice_in_dim(rest, start, start + size, t.ndim - 1)


def _plus(places: Any, start: int) -> Any:
    return ew.add(places, lit(start, places))


def _joined(*pivots: Any) -> Any:
    return concatenate(*pivots, dimension=type_of(pivots[0]).ndim - 1)


def _eliminate(i: Any, a: Any, pivots: Any, order: Any) -> list[Any]:
    """Step i in a panel: exchanges rows, and subtracts multiples of row i from those below."""
    t = type_of(a)
    (m, n), rows, columns = t.shape[-2:], t.ndim - 2, t.ndim - 1
    row, column = rows_and_columns(t.shape)
    sizes = ew.abs(reduce_sum(where(ew.eq(column, i), a, lit(0, a)), axes=(columns,)))
    below = ew.ge(iota(dtype=INT32, shape=type_of(sizes).shape, dimension=rows), i)
    largest = argmax(where(below, sizes, lit(-1, sizes)), axes=(rows,), index_dtype=INT32)
    swap = exchanged(type_of(order).shape, i, largest)
    a, order = take_rows(a, swap), take_along(order, swap, rows)
    step = iota(dtype=INT32, shape=type_of(pivots).shape, dimension=rows)
    pivots = where(ew.eq(step, i), columns_of(largest, n), pivots)
    top = reduce_sum(where(ew.eq(row, i), a, lit(0, a)), axes=(rows,))
    own = reduce_sum(where(ew.eq(column, i), a, lit(0, a)), axes=(columns,))
    pivot = reduce_sum(where(ew.eq(step, i), top, lit(0, top)), axes=(rows,))
    zero = ew.eq(pivot, lit(0, pivot))
    factors = columns_of(ew.div(own, columns_of(where(zero, lit(1, pivot), pivot), m)), n)
    later = ew.gt(row, i)
    change = ew.sub(a, ew.mul(factors, rows_of(top, m)))
    a = where(ew.bitwise_and(later, ew.gt(column, i)), change, a)
    return [where(ew.bitwise_and(later, ew.eq(column, i)), factors, a), pivots, order]


def _updated(x: Any, order: Any, panel: Any, moved: Any, start: int) -> list[Any]:
    """The matrix with a factored panel, and the other columns of its rows changed accordingly."""
    t, p = type_of(x), type_of(panel)
    (m, n), rows, columns = t.shape[-2:], t.ndim - 2, t.ndim - 1
    size = p.shape[-1]
    rest = take_rows(slice_in_dim(x, start, m, rows), moved)
    parts = [slice_in_dim(rest, 0, start, columns), panel]
    if start + size < n:
        after = slice_in_dim(rest, start + size, n, columns)
        factor, below = (
            slice_in_dim(panel, 0, size, rows),
            slice_in_dim(panel, size, m - start, rows),
        )
        upper = triangular_solve(
            factor,
            slice_in_dim(after, 0, size, rows),
            left_side=True,
            lower=True,
            form="N",
            unit_diagonal=True,
        )
        lower = slice_in_dim(after, size, m - start, rows)
        lower = ew.sub(lower, product(below, upper))
        parts.append(concatenate(upper, lower, dimension=rows))
    rest = concatenate(*parts, dimension=columns)
    held, tail = (slice_in_dim(order, *part, axis=rows) for part in ((0, start), (start, m)))
    order = concatenate(held, take_along(tail, moved, rows), dimension=rows)
    return [concatenate(slice_in_dim(x, 0, start, rows), rest, dimension=rows), order]
