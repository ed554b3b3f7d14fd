"""A matrix sharded by columns: each device has some columns, with all of their rows.

A matrix in R × C tiles is converted to this form by one all-to-all among the R devices of each
column of tiles, and back by another. Each of p = R·C devices has about n / p adjacent columns;
device q has the columns before those of device q + 1. Factors are computed in p steps: the columns
of one device, the panel, are sent to all devices; each of them factors it, and updates its own
columns with it. So a device holds a few arrays of n²/p elements, never the full matrix.

    a = Columns((37, 37), (4, 2), 0)      # over the named axes (0, 0), of 4, and (1, 0), of 2
    x = a.enter(tile)                      # [10, 19] → [37, 5]
    panel = a.panel(x, q, start=12)        # [25, ≤5], the same on all devices
    tile = a.leave(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.barrier import optimization_barrier
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice
from shardwise._src.ops.linalg.lapack_kernels import spread
from shardwise._src.ops.linalg.triangular import adjoint
from shardwise._src.ops.logical import where
from shardwise._src.ops.shape import concatenate, pad, slice_in_dim
from shardwise._src.ops.sharded.collective import all_to_all, number, pmax, ppermute, psum


def parts_of(size: int, count: int) -> int:
    """The size of parts; the last ones may be smaller."""
    return -(-size // count)


def padded(x: Any, rows: int, columns: int) -> Any:
    """Padded with zeros at the bottom and on the right, to these sizes."""
    shape = type_of(x).shape
    config = tuple([(0, n - m, 0) for n, m in zip((rows, columns), shape, strict=True)])
    return x if shape == (rows, columns) else pad(x, lit(0, x), padding_config=config)


def rows_between(x: Any, start: int, end: int) -> Any:
    return slice_in_dim(x, start, end, 0)


def first_columns(x: Any, count: int) -> Any:
    return slice_in_dim(x, 0, count, 1)


def below(*parts: Any) -> Any:
    """Matrices stacked vertically."""
    parts = tuple([x for x in parts if type_of(x).shape[0]])
    return parts[0] if len(parts) == 1 else concatenate(*parts, dimension=0)


def exchanged(x: Any, over: dict[str, Any], split: int, concat: int) -> Any:
    """All-to-all behind a barrier: XLA would split up x, with several layouts, and fail."""
    (x,) = optimization_barrier(x)
    return all_to_all(x, split=split, concat=concat, groups=None, **over)


@dataclass(frozen=True)
class Columns:
    """How a matrix is sharded.

    operand: the operand number in its axis names; turned: whether this describes its transpose.
    """

    shape: tuple[int, int]
    tiles: tuple[int, int]
    operand: int
    turned: bool = False

    def transpose(self) -> Columns:
        (m, n), (r, c) = self.shape, self.tiles
        return Columns((n, m), (c, r), self.operand, not self.turned)

    @property
    def devices(self) -> int:
        return self.tiles[0] * self.tiles[1]

    @property
    def tile(self) -> tuple[int, int]:
        rows, columns = [parts_of(n, k) for n, k in zip(self.shape, self.tiles, strict=True)]
        return rows, columns

    @property
    def width(self) -> int:
        """The number of columns per device; the last ones may lie outside of the matrix."""
        return parts_of(self.tile[1], self.tiles[0])

    def start(self, q: int) -> int:
        """The first column of device q."""
        place, part = divmod(q, self.tiles[0])
        return place * self.tile[1] + part * self.width

    def count(self, q: int) -> int:
        """The number of columns of device q."""
        place, part = divmod(q, self.tiles[0])
        own = min(self.tile[1], self.shape[1] - place * self.tile[1])
        return max(0, min(own - part * self.width, self.width))

    def parts(self) -> list[tuple[int, int, int]]:
        """The devices that have columns: (device, first column, number of columns)."""
        found = [(q, self.start(q), self.count(q)) for q in range(self.devices)]
        return [part for part in found if part[2]]

    def _over(self, letters: str) -> dict[str, Any]:
        sizes = dict(zip("rc", self.tiles, strict=True))
        dims = {"r": 1, "c": 0} if self.turned else {"r": 0, "c": 1}
        return {
            "names": tuple([(dims[x], self.operand) for x in letters]),
            "sizes": tuple([sizes[x] for x in letters]),
        }

    def enter(self, tile: Any) -> Any:
        """The columns of the device, from its tile and those of other devices."""
        tile = padded(tile, self.tile[0], self.width * self.tiles[0])
        if self.tiles[0] > 1:
            tile = exchanged(tile, self._over("r"), 1, 0)
        return rows_between(tile, 0, self.shape[0])

    def leave(self, x: Any) -> Any:
        rows, columns = self.tile
        x = padded(x, rows * self.tiles[0], self.width)
        if self.tiles[0] > 1:
            x = exchanged(x, self._over("r"), 0, 1)
        return first_columns(x, columns)

    def own(self) -> Any:
        """The number of the device."""
        return number(**self._over("cr")) if self.devices > 1 else np.int32(0)

    def own_start(self) -> Any:
        """The first column of the device."""
        return self.start_and_count(self.own())[0]

    def start_and_count(self, q: Any) -> tuple[Any, Any]:
        """`start` and `count` for a device whose number is computed by the program."""
        if self.devices == 1:
            return np.int32(0), np.int32(self.shape[1])
        width, tile = np.int32(self.width), np.int32(self.tile[1])
        place, part = ew.div(q, np.int32(self.tiles[0])), ew.rem(q, np.int32(self.tiles[0]))
        before, skipped = ew.mul(place, tile), ew.mul(part, width)
        own = ew.sub(ew.min(tile, ew.sub(np.int32(self.shape[1]), before)), skipped)
        return ew.add(before, skipped), ew.max(np.int32(0), ew.min(own, width))

    def panel(self, x: Any, q: int, start: int = 0, end: int | None = None) -> Any:
        """Rows of the columns of device q, sent to all devices."""
        part = rows_between(x, start, self.shape[0] if end is None else end)
        part = first_columns(part, self.count(q))
        if self.devices == 1:
            return part
        mine = spread(ew.eq(self.own(), np.int32(q)), type_of(part).shape)
        return psum(where(mine, part, lit(0, part)), groups=None, **self._over("cr"))

    def adjoint(self, x: Any) -> Any:
        """The columns of the adjoint of a square matrix: each device sends its rows to each."""
        n = self.shape[0]
        if self.devices > 1:
            starts = [self.start(q) for q in range(self.devices)]
            x = padded(x, max(starts) + self.width, self.width)
            x = below(*[rows_between(x, start, start + self.width) for start in starts])
            x = exchanged(x, self._over("cr"), 0, 1)
            rows = [(q * self.width, count) for q, _, count in self.parts()]
            parts = [slice_in_dim(x, first, first + count, 1) for first, count in rows]
            x = concatenate(*parts, dimension=1)
        return padded(adjoint(x), n, self.width)

    def total(self, x: Any) -> Any:
        """The sum over all devices."""
        return x if self.devices == 1 else psum(x, groups=None, **self._over("cr"))

    def largest(self, x: Any) -> Any:
        """The maximum over all devices."""
        return x if self.devices == 1 else pmax(x, groups=None, **self._over("cr"))

    def moved(self, x: Any, pairs: list[tuple[int, int]]) -> Any:
        """Values received from other devices; pairs: device numbers, source and target."""
        return ppermute(x, perm=tuple(pairs), **self._over("cr"))

    def chosen(self, q: int, panel: Any, after: Any, before: Any) -> Any:
        """The panel on device q, padded to the width of the others; `after` on later devices, and
        `before` on earlier ones.
        """
        t = type_of(before)
        own, here = self.own(), np.int32(q)
        panel = padded(panel, *t.shape)
        found = where(spread(ew.gt(own, here), t.shape), after, before)
        return where(spread(ew.eq(own, here), t.shape), panel, found)

    def rows_of_own(self, x: Any, first: int) -> Any:
        """The rows of x whose indices are the device's columns; x begins with row `first`."""
        n = type_of(x).shape[1]
        x = padded(x, type_of(x).shape[0] + self.width, n)
        place = ew.max(ew.sub(self.own_start(), np.int32(first)), np.int32(0))
        return dynamic_slice(x, place, np.int32(0), slice_sizes=(self.width, n))
