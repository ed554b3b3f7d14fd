"""`PmapSharding`: the sharding of `pmap` inputs and results, one shard for each device.

    PmapSharding.default((8, 3))                    # x[i] on device i
    PmapSharding.default((2, 8), sharded_dim=1)     # x[:, i] on device i

In general a `ShardingSpec` gives the number of parts of each dimension, and the axis of a grid of
devices that enumerates them:

    ShardingSpec((NoSharding(), Chunked([2])), (Replicated(4), ShardedAxis(0)))

A shard keeps the unstacked dimension, with size 1. If each index of a dimension has its own
device, indexing that dimension with an int returns the shard. `NamedSharding` expresses the same
with names of mesh axes and is preferred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.lazy import public
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import pluralize
from shardwise._src.runtime.backend import local_devices
from shardwise._src.types.devices import Device, kind_text
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.tiled import TiledSharding
from shardwise._src.types.tiling import Tiling, tile_slices


@public("shardwise.compat")
@dataclass(frozen=True)
class NoSharding:
    """The dimension is not split."""

    parts: ClassVar[tuple[int, ...]] = ()


@public("shardwise.compat")
@dataclass(frozen=True)
class Unstacked:
    """The dimension, of this size, is split into single indices."""

    size: int

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.size,)


@public("shardwise.compat")
@dataclass(frozen=True, init=False)
class Chunked:
    """The dimension is split into `chunks[0]` parts, each of these into `chunks[1]`, and so on."""

    chunks: tuple[int, ...]

    def __init__(self, chunks: Sequence[int]):
        object.__setattr__(self, "chunks", tuple(chunks))

    @property
    def parts(self) -> tuple[int, ...]:
        return self.chunks


@public("shardwise.compat")
@dataclass(frozen=True)
class ShardedAxis:
    """This axis of the device grid enumerates the parts of split number `axis`."""

    axis: int


@public("shardwise.compat")
@dataclass(frozen=True)
class Replicated:
    """Along this axis of the grid, of size `replicas`, the shards are replicated."""

    replicas: int


DimSharding: TypeAlias = NoSharding | Unstacked | Chunked
AxisMeaning: TypeAlias = ShardedAxis | Replicated


@public("shardwise.compat")
@dataclass(frozen=True, init=False)
class ShardingSpec:
    """sharding:     for each dimension of the array, how it is split.
    mesh_mapping: for each axis of the device grid, what it enumerates. Splits are numbered across
        all dimensions; a `Chunked` has one for each of its numbers.
    """

    sharding: tuple[DimSharding, ...]
    mesh_mapping: tuple[AxisMeaning, ...]

    def __init__(self, sharding: Sequence[DimSharding], mesh_mapping: Sequence[AxisMeaning]):
        object.__setattr__(self, "sharding", tuple(sharding))
        object.__setattr__(self, "mesh_mapping", tuple(mesh_mapping))

    def tiling(self) -> Tiling:
        """The tiling over the grid of devices."""
        dims = tuple(math.prod(dim.parts) for dim in self.sharding)
        cuts = [n for dim in self.sharding for n in dim.parts]
        axes = {a.axis: i for i, a in enumerate(self.mesh_mapping) if isinstance(a, ShardedAxis)}
        copies = [i for i, a in enumerate(self.mesh_mapping) if isinstance(a, Replicated)]
        counted_cuts = sorted(a.axis for a in self.mesh_mapping if isinstance(a, ShardedAxis))
        if counted_cuts != list(range(len(cuts))):
            raise ValueError(
                f"{self} makes {pluralize(len(cuts), 'cut')}, but its mesh_mapping lists the cuts "
                f"{counted_cuts}; each, from 0 on, must occur once."
            )
        sizes = tuple(
            cuts[a.axis] if isinstance(a, ShardedAxis) else a.replicas for a in self.mesh_mapping
        )
        order = tuple(axes[cut] for cut in range(len(cuts))) + tuple(copies)
        return Tiling(dims, sizes, order, math.prod(sizes[i] for i in copies) > 1)


def spec_to_indices(
    shape: Sequence[int], spec: ShardingSpec
) -> tuple[tuple[slice | int, ...], ...]:
    """The index of each device's shard, in row-major order of the grid: an int in an unstacked
    dimension, slices in others."""
    parts: list[Sequence[Any]] = [
        range(dim.size) if isinstance(dim, Unstacked) else tile_slices(n, math.prod(dim.parts))
        for n, dim in zip(shape, spec.sharding, strict=True)
    ]
    tiles = list(itertools.product(*parts))
    return tuple([tiles[int(i)] for i in spec.tiling().tile_of_position()])


@final
class PmapSharding(TiledSharding):
    """One shard for each device, as specified by a `ShardingSpec`.

    PmapSharding(devices, sharding_spec)
        devices: array or sequence of devices, in row-major order of the grid.
    """

    sharding_spec: ShardingSpec

    def __new__(
        cls, devices: Sequence[Device] | NDArray[np.object_], sharding_spec: ShardingSpec
    ) -> PmapSharding:
        given: Any = sharding_spec
        if not isinstance(given, ShardingSpec):
            kind = type(given).__name__
            raise TypeError(
                f"the second argument of PmapSharding must be a ShardingSpec, got {kind}. "
                "PmapSharding.default(shape, sharded_dim) creates the default one."
            )
        return _pmap_sharding(tuple(np.array(devices, object).flat), sharding_spec, None)

    @staticmethod
    def default(
        shape: Sequence[int], sharded_dim: int | None = 0, devices: Sequence[Device] | None = None
    ) -> PmapSharding:
        """One index of a dimension for each device, or the full array on each.

        Args:
          shape: the shape of the array.
          sharded_dim: the dimension; None to replicate the array on all devices.
          devices: by default those of this process, as many as the dimension has indices.

        Raises:
          ValueError: if there are fewer devices than indices, or more devices given than indices.
        """
        if sharded_dim is None:
            if devices is None:
                raise ValueError("PmapSharding.default needs sharded_dim or devices; got neither.")
            spec = ShardingSpec([NoSharding()] * len(shape), [Replicated(len(devices))])
            return PmapSharding(devices, spec)
        if not -len(shape) <= sharded_dim < len(shape):
            raise ValueError(
                f"PmapSharding.default: a shape {tuple(shape)} has no dimension {sharded_dim}."
            )
        size = shape[sharded_dim]
        given = local_devices()[:size] if devices is None else devices
        if len(given) != size:
            whose = "this process has" if devices is None else "there are"
            raise ValueError(
                f"PmapSharding.default: dimension {sharded_dim} of {tuple(shape)} needs "
                f"{pluralize(size, 'device')}, but {whose} {len(given)}."
            )
        dims: list[DimSharding] = [NoSharding()] * len(shape)
        dims[sharded_dim] = Unstacked(size)
        return PmapSharding(given, ShardingSpec(dims, [ShardedAxis(0)]))

    @property
    def mesh(self) -> Mesh:
        """The grid of devices; its axes have numbers as names."""
        sizes = self.sharding_spec.tiling().mesh_sizes
        names = [f"axis{i}" for i in range(len(sizes))]
        return Mesh(np.array(self._devices, object).reshape(sizes), names)

    @property
    def spec(self) -> PartitionSpec:
        """The axes of `mesh` over which each dimension is sharded."""
        axes = self.sharding_spec.mesh_mapping
        names = {a.axis: f"axis{i}" for i, a in enumerate(axes) if isinstance(a, ShardedAxis)}
        cuts = itertools.count()
        rows = [[names[next(cuts)] for _ in dim.parts] for dim in self.sharding_spec.sharding]
        while rows and not rows[-1]:
            rows.pop()
        return PartitionSpec(*map(tuple, rows))

    @property
    def stacked_dim(self) -> int | None:
        spec = self.sharding_spec
        cut = [d for d, dim in enumerate(spec.sharding) if not isinstance(dim, NoSharding)]
        if len(cut) != 1 or not isinstance(spec.sharding[cut[0]], Unstacked):
            return None
        return cut[0] if spec.mesh_mapping == (ShardedAxis(0),) else None

    def with_memory_kind(self, kind: str | None) -> PmapSharding:
        return _pmap_sharding(self._devices, self.sharding_spec, kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("PmapSharding", self._devices, self.sharding_spec, self._memory_kind)

    def __repr__(self) -> str:
        devices = pluralize(len(self._devices), "device")
        return f"PmapSharding({devices}, {self.sharding_spec}{kind_text(self._memory_kind)})"


def _pmap_sharding(
    devices: tuple[Device, ...], spec: ShardingSpec, memory_kind: str | None
) -> PmapSharding:
    return PmapSharding.interned(devices, spec.tiling(), memory_kind, sharding_spec=spec)


read_by("PmapSharding", _pmap_sharding)
