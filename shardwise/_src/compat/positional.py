"""`PositionalSharding`: a grid of devices that is mapped onto the dimensions of an array.

    sharding = PositionalSharding(devices()).reshape(4, 2)
    sharding                       # rows in 4, columns in 2 parts
    sharding.T                     # rows in 2, columns in 4
    sharding.replicate(1)          # rows in 4 parts, each on 2 devices

It has the interface of an array of devices: `reshape`, `transpose`, and `replicate` in place of a
sum. Prefer `NamedSharding`, which expresses the same with mesh axis names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import pluralize
from shardwise._src.types.devices import Device, kind_text
from shardwise._src.types.tiled import TiledSharding
from shardwise._src.types.tiling import Tiling


@final
class PositionalSharding(TiledSharding):
    """A grid of device sets, one for each shard of an array of equal rank.

    PositionalSharding(devices, memory_kind=None)
        devices: array or sequence of devices; its shape is the shape of the grid.
    """

    instead = "make a new one with reshape, transpose or replicate"

    def __new__(
        cls, devices: Sequence[Device] | NDArray[np.object_], *, memory_kind: str | None = None
    ) -> PositionalSharding:
        grid: NDArray[np.object_] = np.array(devices, dtype=object)
        if not grid.size:
            raise ValueError("PositionalSharding needs at least one device, got none.")
        positions = np.arange(grid.size).reshape(*grid.shape, 1)
        return _positional(tuple(grid.flat), positions, memory_kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of shards along each dimension of an array."""
        return self._tiling.dims

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, *shape: Any) -> PositionalSharding:
        """The same device sets, in the same order, in a grid of a new shape; -1 is inferred."""
        wanted = _integers(shape)
        try:
            order = np.arange(math.prod(self.shape)).reshape(wanted)
        except ValueError:
            raise ValueError(
                f"cannot reshape {self} to {wanted}: it has "
                f"{pluralize(math.prod(self.shape), 'device set')}."
            ) from None
        return self._with(self._grid().reshape(*order.shape, self._tiling.replicas))

    def transpose(self, *axes: Any) -> PositionalSharding:
        """The grid with its axes permuted, by default reversed."""
        order = _integers(axes) if axes and axes != (None,) else tuple(range(self.ndim))[::-1]
        found = tuple(axis + self.ndim if axis < 0 else axis for axis in order)
        if sorted(found) != list(range(self.ndim)):
            raise ValueError(f"cannot transpose {self} by {order}: that is not a permutation.")
        return self._with(self._grid().transpose(*found, self.ndim))

    @property
    def T(self) -> PositionalSharding:
        return self.transpose()

    def replicate(self, axis: int | None = None, keepdims: bool = True) -> PositionalSharding:
        """Merges the device sets along an axis: each device then holds all data of its merged set.

        axis: None for all axes. keepdims: whether the axis stays, with size 1.
        """
        axes = range(self.ndim) if axis is None else (operator.index(axis),)
        if any(not -self.ndim <= a < self.ndim for a in axes):
            raise ValueError(f"cannot replicate {self} along axis {axis}: there is no such axis.")
        gone = {a % self.ndim for a in axes}
        kept = [a for a in range(self.ndim) if a not in gone]
        grid = self._grid().transpose(*kept, *sorted(gone), self.ndim)
        sizes = [1 if a in gone else n for a, n in enumerate(self.shape) if keepdims or a in kept]
        return self._with(np.sort(grid.reshape(*sizes, -1)))

    def with_memory_kind(self, kind: str | None) -> PositionalSharding:
        return _positional(self._devices, self._grid(), kind)

    def _grid(self) -> NDArray[np.intp]:
        """The device positions of each shard; replicas are along the last axis."""
        return self._tiling.tile_assignment().reshape(*self.shape, self._tiling.replicas)

    def _with(self, grid: NDArray[np.intp]) -> PositionalSharding:
        return _positional(self._devices, grid, self._memory_kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("PositionalSharding", self._devices, self._grid(), self._memory_kind)

    def __repr__(self) -> str:
        copies = f", replicas={self._tiling.replicas}" if self._tiling.replicated else ""
        more = f"{pluralize(len(self._devices), 'device')}{copies}{kind_text(self._memory_kind)}"
        return f"PositionalSharding(shape={self.shape}, {more})"


def _positional(
    devices: tuple[Device, ...], grid: NDArray[np.intp], memory_kind: str | None
) -> PositionalSharding:
    """The canonical sharding for these positions, with replicas along the last axis."""
    *shape, replicas = grid.shape
    flat = tuple(grid.ravel().tolist())
    assignment = None if flat == tuple(range(len(flat))) else flat
    tiling = Tiling(tuple(shape), (len(devices),), (0,), replicas > 1, assignment)
    return PositionalSharding.interned(devices, tiling, memory_kind)


read_by("PositionalSharding", _positional)


def _integers(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Accepts `f(2, 4)` and `f((2, 4))`."""
    if len(given) == 1 and isinstance(given[0], Sequence):
        given = tuple(given[0])
    return tuple(map(operator.index, given))
