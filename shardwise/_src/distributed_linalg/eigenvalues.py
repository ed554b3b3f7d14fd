"""Eigenvalues of a sharded Hermitian matrix, by Householder reduction to tridiagonal form.

Columns are reflected one at a time, as in LAPACK's `sytrd`: the product of the matrix and a vector
is assembled from all devices; after WIDTH columns all others are updated together. Eigenvectors of
the tridiagonal matrix (see `tridiagonal`) are then transformed back, panel by panel.

Source: Dongarra, Sorensen, Hammarling, "Block reduction of matrices to condensed forms for
eigenvalue computations" (1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.distributed_linalg.columns import (
    Columns,
    below,
    first_columns,
    padded,
    parts_of,
    rows_between,
)
from shardwise._src.distributed_linalg.orthogonal import reflected
from shardwise._src.distributed_linalg.tridiagonal import eigenpairs, scale_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, real
from shardwise._src.ops.linalg.triangular import INT32, adjoint, conjugate, product
from shardwise._src.ops.logical import where
from shardwise._src.types.dtypes import is_complex

STAGES = 2  # stages, which skip finished rows; they increase program size
WIDTH = 32  # columns reflected before the others are updated


def syevd(tile: Any, a: Columns, mode: str, uplo: str) -> list[Any]:
    """Vectors (if mode is "V") and ascending values; the matrix is scaled to elements of size 1."""
    x = _hermitian(a.enter(tile), a, uplo == "L")
    size = scale_of(a.largest(abs(x).max()))
    x, d, e, scales = _reduced(x * as_dtype(1 / size, type_of(x).dtype), a)
    values, v = eigenpairs(d, e, a)
    if mode == "V":
        x = reflected(x, scales, as_dtype(v, type_of(x).dtype), a, under=1)
    return [a.leave(x), values * size, np.int32(0)]


def _hermitian(x: Any, a: Columns, lower: bool) -> Any:
    """The full matrix from one triangle, with zeros in columns outside of the matrix."""
    shape = type_of(x).shape
    row, own = [iota(dtype=INT32, shape=shape, dimension=d) for d in (0, 1)]
    column = own + a.own_start()
    one = (row > column) if lower else (row < column)
    there = own < a.start_and_count(a.own())[1]
    part = where(one & there, x, x * 0)
    middle = where(row == column, as_dtype(real(x), type_of(x).dtype), x * 0)
    return where(there, part + a.adjoint(part) + middle, x * 0)


def _reduced(x: Any, a: Columns) -> tuple[Any, Any, Any, Any]:
    """Reflections in the columns of the matrix; the diagonal; the off-diagonal; their scales."""
    n, width = a.shape[0], min(WIDTH, a.width)
    wide = parts_of(a.width, width) * width
    x = padded(x, n, wide)
    zero = full(0, (n + wide,), type_of(x).dtype)
    held = (real(zero), real(zero), zero)
    each = parts_of(a.devices, STAGES)
    for first in range(0, a.devices, each):
        part = range(first, min(first + each, a.devices))
        start = min([a.start(q) for q in part if a.count(q)], default=n)
        low, held = _Stage(a, part, start, width).reduced(rows_between(x, start, n), held)
        x = below(rows_between(x, 0, start), low)
    d, e, scales = [y[:n] for y in held]
    return first_columns(x, a.width), d, e, scales


def _column(x: Any, j: Any) -> Any:
    return dynamic_slice(x, np.int32(0), j, slice_sizes=(type_of(x).shape[0], 1))


def _with_column(x: Any, y: Any, j: Any) -> Any:
    return dynamic_update_slice(x, y, np.int32(0), j)


class _Stage:
    """The columns of some devices, in order, and the rows from their first column on."""

    def __init__(self, a: Columns, devices: Sequence[int], start: int, width: int):
        self.a, self.width, self.devices = a, width, devices
        self.start, self.own = start, a.own()
        self.columns = a.start_and_count(self.own)[1]
        self.place = ew.max(a.own_start() - np.int32(self.start), np.int32(0))

    def reduced(self, x: Any, held: tuple) -> tuple[Any, tuple]:
        parts = parts_of(self.a.width, self.width)

        def one(i: Any, state: tuple) -> tuple:
            i = as_dtype(i, INT32)
            panel = _Panel(self, i // np.int32(parts) + np.int32(self.devices[0]))
            return panel.reduced(i % np.int32(parts), *state)

        if not type_of(x).size:
            return x, held
        return fori_loop(0, parts * len(self.devices), one, (x, held), unroll=1)


class _Panel:
    """The columns of device q in a stage."""

    def __init__(self, stage: _Stage, q: Any):
        self.a, self.width, self.start, self.place = stage.a, stage.width, stage.start, stage.place
        start, self.count = self.a.start_and_count(q)
        self.first = start - np.int32(self.start)
        self.here, self.later = stage.own == q, stage.own >= q
        self.columns = stage.columns

    def reduced(self, k: Any, x: Any, held: tuple) -> tuple[Any, tuple]:
        """Reduces the k-th group of `width` columns."""
        (m, wide), width = type_of(x).shape, self.width
        first = k * np.int32(width)
        part = dynamic_slice(x, np.int32(0), first, slice_sizes=(m, width))
        part = self.a.total(where(self.here, part, part * 0))

        def one(j: Any, state: tuple) -> tuple:
            return self._reflected(x, part, first, as_dtype(j, INT32), *state)

        v, w, *rest = fori_loop(0, width, one, (part * 0, part * 0, *held), unroll=1)
        x = x - product(v, adjoint(self._own(w, wide))) - product(w, adjoint(self._own(v, wide)))
        own = dynamic_slice(x, np.int32(0), first, slice_sizes=(m, width))
        return _with_column(x, where(self.here, v, own), first), tuple(rest)

    def _own(self, y: Any, wide: int) -> Any:
        """The rows whose indices are the columns that the device has to update."""
        m, width = type_of(y).shape
        y = dynamic_slice(
            padded(y, m + wide, width), self.place, np.int32(0), slice_sizes=(wide, width)
        )
        there = iota(dtype=INT32, shape=(wide, width), dimension=0) < self.columns
        return where(self.later & there, y, y * 0)

    def _reflected(
        self, x: Any, part: Any, first: Any, j: Any, v: Any, w: Any, d: Any, e: Any, scales: Any
    ) -> tuple:
        """Appends the vectors for column j: to v, and to w, such that vwᴴ + wvᴴ is the update."""
        (m, wide), c = type_of(x).shape, self.first + first + j
        row = iota(dtype=INT32, shape=(m, 1), dimension=0)
        sizes = {"slice_sizes": (1, self.width)}
        at = [dynamic_slice(y, c, np.int32(0), **sizes) for y in (v, w)]
        y = _column(part, j) - product(v, adjoint(at[1])) - product(w, adjoint(at[0]))
        u, beta, tau = _reflection(y, row, c, first + j < self.count)
        own = product(adjoint(u), x)
        changed = full(0, (1, m + wide), type_of(x).dtype)
        changed = dynamic_update_slice(changed, own, np.int32(0), self.place)
        changed = self.a.total(where(self.later, changed, changed * 0))
        z = adjoint(first_columns(changed, m))
        z = z - product(v, product(adjoint(w), u)) - product(w, product(adjoint(v), u))
        z = where(row > c, z * tau, z * 0)
        z = z - u * (product(adjoint(z), u) * tau * 0.5)
        middle = where(row == c, real(y), real(y) * 0).sum()
        place = np.int32(self.start) + c
        held = [
            dynamic_update_slice(old, new.reshape(1), place)
            for old, new in zip((d, e, scales), (middle, beta, tau), strict=True)
        ]
        return (_with_column(v, u, j), _with_column(w, z, j), *held)


def _reflection(y: Any, row: Any, c: Any, there: Any) -> tuple[Any, Any, Any]:
    """I - tau u uᴴ zeroes the elements below row c + 1, and makes that one beta, which is real."""
    alpha = where(row == c + 1, y, y * 0).sum()
    tail = where(row > c + 1, y, y * 0)
    rest = (abs(tail) * abs(tail)).sum()
    norm = ew.sqrt(abs(alpha) * abs(alpha) + rest)
    done = (rest == 0) & (alpha == conjugate(alpha)) if is_complex(type_of(y).dtype) else rest == 0
    done = done | (norm == 0) | ~there
    beta = where(done, real(alpha), where(real(alpha) < 0, norm, -norm))
    divisor = where(done, beta * 0 + 1, beta)
    found = as_dtype(divisor, type_of(y).dtype)
    tau = where(done, alpha * 0, (found - alpha) / found)
    scale = where(done, alpha * 0 + 1, alpha - found)
    u = where(row == c + 1, y * 0 + 1, where(done, y * 0, tail / scale))
    return where(there, u, u * 0), beta, tau
