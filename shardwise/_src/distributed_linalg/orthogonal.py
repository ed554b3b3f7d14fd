"""Householder reflections of a sharded matrix, panel by panel; see `columns`."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.distributed_linalg.columns import Columns, below, first_columns, rows_between
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.linalg.lapack_kernels import as_dtype
from shardwise._src.ops.linalg.qr import geqrf as factored
from shardwise._src.ops.linalg.qr import ormqr
from shardwise._src.ops.linalg.triangular import INT32
from shardwise._src.ops.shape import concatenate


def geqrf(tile: Any, a: Columns) -> list[Any]:
    """Each device applies the reflections of the panel to its own columns."""
    x, m = a.enter(tile), a.shape[0]
    scales: list[Any] = []
    for q, start, count in a.parts():
        if start >= m:
            continue
        panel, own = factored(a.panel(x, q, start))
        scales.append(own)
        low = rows_between(x, start, m)
        after = ormqr(
            first_columns(panel, min(count, m - start)), own, low, left=True, adjoint=True
        )
        x = below(rows_between(x, 0, start), a.chosen(q, panel, after, low))
    every = scales[0] if len(scales) == 1 else concatenate(*scales, dimension=0)
    return [a.leave(x), every]


def identity(a: Columns, dtype: Any) -> Any:
    """The device's columns of an identity matrix."""
    shape = (a.shape[0], a.width)
    row, column = [iota(dtype=INT32, shape=shape, dimension=d) for d in (0, 1)]
    return as_dtype(ew.eq(row, ew.add(column, a.own_start())), dtype)


def orgqr(tile: Any, scales: Any, a: Columns) -> list[Any]:
    """Applies the reflections of the panels, last panel first, to columns of the identity."""
    x = a.enter(tile)
    return [a.leave(reflected(x, scales, identity(a, type_of(x).dtype), a))]


def reflected(x: Any, scales: Any, c: Any, a: Columns, under: int = 0) -> Any:
    """The product of the reflections in x, times columns c, of which a device has all rows.

    under: the number of rows between the diagonal and the first element of a reflection.
    """
    m, k = a.shape[0], min(type_of(scales).shape[0], a.shape[0] - under)
    for q, start, count in reversed(a.parts()):
        steps, row = min(count, k - start), start + under
        if steps > 0:
            panel = first_columns(a.panel(x, q, row), steps)
            own = rows_between(scales, start, start + steps)
            low = ormqr(panel, own, rows_between(c, row, m), left=True, adjoint=False)
            c = below(rows_between(c, 0, row), low)
    return c
