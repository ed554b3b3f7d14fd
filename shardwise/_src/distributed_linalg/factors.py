"""Cholesky, LU and triangular solves of a sharded matrix, panel by panel.

The functions operate on the tiles of one device; results are as in the LAPACK functions they name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.distributed_linalg.columns import Columns, below, first_columns, rows_between
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.factor import cholesky
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, diagonal
from shardwise._src.ops.linalg.lu import inverse, lu, take_rows
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    conjugate,
    product,
    triangular_solve,
    turned,
)
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.shape import concatenate


def hermitian(tile: Any, a: Columns) -> list[Any]:
    """(a + aᴴ) / 2."""
    x = a.enter(tile)
    return [a.leave(ew.mul(lit(0.5, x), ew.add(x, a.adjoint(x))))]


def potrf(tile: Any, a: Columns, uplo: str) -> list[Any]:
    """Right-looking, on the lower triangle. The second result is nonzero if there is no factor."""
    x, bad = a.enter(tile), np.bool_(False)
    for q, start, count in a.parts():
        end = start + count
        panel = a.panel(x, q, start)
        panel_corner = rows_between(panel, 0, count)
        corner = cholesky(panel_corner)
        made, given = [rows_between(diagonal(y), 0, 1) for y in (corner, panel_corner)]
        failed = ew.bitwise_and(ew.ne(made, made), ew.eq(given, given))  # LAPACK propagates NaN
        bad = ew.bitwise_or(bad, reduce_or(failed, axes=(0,)))
        rest = _solved(corner, rows_between(panel, count, a.shape[0] - start), False, True, "C")
        if end < a.shape[0]:
            low = rows_between(x, end, a.shape[0])
            after = ew.sub(low, product(rest, adjoint(a.rows_of_own(rest, end))))
            low = a.chosen(q, rest, after, low)
        else:
            low = rest = rows_between(x, end, end)
        middle = rows_between(x, start, end)
        x = below(rows_between(x, 0, start), a.chosen(q, corner, middle, middle), low)
    return [a.leave(x), as_dtype(bad, INT32)]


def _solved(a: Any, b: Any, left: bool, lower: bool, form: str, unit: bool = False) -> Any:
    if 0 in type_of(b).shape:
        return b
    return triangular_solve(a, b, left_side=left, lower=lower, form=form, unit_diagonal=unit)


def getrf(tile: Any, a: Columns) -> list[Any]:
    """Right-looking, with pivots from full columns, as in LAPACK."""
    x, m = a.enter(tile), a.shape[0]
    pivots: list[Any] = []
    for q, start, count in a.parts():
        if start >= m:
            continue
        panel, own, order = lu(a.panel(x, q, start))
        steps = min(count, m - start)
        pivots.append(ew.add(own, np.int32(start + 1)))
        low = take_rows(rows_between(x, start, m), order)
        upper, rest = rows_between(low, 0, steps), rows_between(low, steps, m - start)
        left = rows_between(panel, 0, steps)
        left = left if steps == count else first_columns(left, steps)
        solved = _solved(left, upper, True, True, "N", unit=True)
        if type_of(rest).shape[0]:
            factor = first_columns(rows_between(panel, steps, m - start), steps)
            after = below(solved, ew.sub(rest, product(factor, solved)))
        else:
            after = solved
        x = below(rows_between(x, 0, start), a.chosen(q, panel, after, low))
    every = pivots[0] if len(pivots) == 1 else concatenate(*pivots, dimension=0)
    return [a.leave(x), every, np.int32(0)]


def getrs(factors: Any, order: Any, b_tile: Any, a: Columns, b: Columns, form: str) -> list[Any]:
    """Solves the system of a matrix with these factors; order: the permutation of its rows."""
    f, x = a.enter(factors), b.enter(b_tile)
    if form == "N":
        x = swept(f, take_rows(x, order), a, True, form, True)
        return [b.leave(swept(f, x, a, False, form, False))]
    x = swept(f, swept(f, x, a, False, form, False), a, True, form, True)
    return [b.leave(take_rows(x, inverse(order)))]


def trsm(
    a_tile: Any, b_tile: Any, a: Columns, b: Columns, side: str, uplo: str, trans_x: str, diag: str
) -> list[Any]:
    """x a = b is solved as aᵀ xᵀ = bᵀ."""
    b = b if side == "L" else b.transpose()
    conj = side == "R" and trans_x == "C"
    form = trans_x if side == "L" else {"N": "T", "T": "N", "C": "N"}[trans_x]
    given = b_tile if side == "L" else turned(b_tile)
    given = conjugate(given) if conj else given
    x = swept(a.enter(a_tile), b.enter(given), a, uplo == "L", form, diag == "U")
    x = b.leave(conjugate(x) if conj else x)
    return [x if side == "L" else turned(x)]


def swept(a: Any, x: Any, own: Columns, lower: bool, form: str, unit: bool) -> Any:
    """The solution for columns x, of which a device has all rows."""
    n = own.shape[0]
    for q, start, count in own.parts() if lower == (form == "N") else reversed(own.parts()):
        end = start + count
        panel = own.panel(a, q, start, n) if lower else own.panel(a, q, 0, end)
        if lower:
            corner, rest = rows_between(panel, 0, count), rows_between(panel, count, n - start)
        else:
            rest, corner = rows_between(panel, 0, start), rows_between(panel, start, end)
        upper, middle = rows_between(x, 0, start), rows_between(x, start, end)
        low = rows_between(x, end, n)
        others = low if lower else upper
        empty = not type_of(rest).shape[0]
        if form != "N" and not empty:
            left = turned(rest) if form == "T" else adjoint(rest)
            middle = ew.sub(middle, product(left, others))
        middle = _solved(corner, middle, True, lower, form, unit)
        if form == "N" and not empty:
            others = ew.sub(others, product(rest, middle))
        x = below(upper, middle, others) if lower else below(others, middle, low)
    return x
