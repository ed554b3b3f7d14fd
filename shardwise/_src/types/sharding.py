"""Shardings: which device holds which shard of a global array.

    sharding = NamedSharding(mesh, P("x", None))
    sharding.shard_shape((8, 2))            # (2, 2) for x of size 4
    sharding.devices_indices_map((8, 2))    # device → (slice(0, 2), slice(None))

The shardings here are interned: equal ones are the same object, so caches compare identities.
Their common part, with all index arithmetic, is in `sharding_base`. `spec_from_tiles` converts
tiles, as the compiler reports them, back to a spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.types.devices import Device, canonical_memory_kind, kind_text
from shardwise._src.types.frozen import Frozen
from shardwise._src.types.mesh import AbstractMesh, BaseMesh, Mesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import AxisName, PartitionSpec, check_sums
from shardwise._src.types.sharding_base import Sharding
from shardwise._src.types.tiled import GSPMDSharding
from shardwise._src.types.tiling import Tiling, replicated_tiling

__all__ = ["GSPMDSharding", "NamedSharding", "Sharding", "SingleDeviceSharding", "spec_from_tiles"]

# ------------------------------------------------------------------------- NamedSharding


@final
class NamedSharding(Frozen, Sharding):
    """Splits each dimension over the mesh axes named by a `PartitionSpec`.

    NamedSharding(mesh, spec, memory_kind=None)
        mesh: a `Mesh`, or an `AbstractMesh` for a sharding without devices.
    """

    instead = "make a new one with NamedSharding(...) or sharding.update(...)"
    mesh: Mesh | AbstractMesh
    spec: PartitionSpec
    _memory_kind: str | None  # None for the default kind
    _tilings: dict[int, Tiling]

    def __new__(
        cls, mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None = None
    ) -> NamedSharding:
        try:
            found = mesh.named_shardings.get((spec, memory_kind))
        except (AttributeError, TypeError):  # not a mesh, or unhashable: explained below
            found = None
        return found if found is not None else _new_named_sharding(mesh, spec, memory_kind)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.mesh.flat_devices

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    def tiling(self, ndim: int) -> Tiling:
        found = self._tilings.get(ndim)
        return found if found is not None else self._tilings.setdefault(ndim, self._tile(ndim))

    def _tile(self, ndim: int) -> Tiling:
        if len(self.spec) > ndim:
            raise ValueError(
                f"{self.spec} over {self.mesh} has "
                f"{pluralize(len(self.spec), 'entry', 'entries')}, but the array has only "
                f"{pluralize(ndim, 'dimension')}. Remove entries from the end of the spec."
            )
        mesh, used = self.mesh, self.spec.axes
        dims = tuple(math.prod(map(mesh.axis_size, axes)) for axes in self.spec.dims(ndim))
        unused = tuple(name for name in mesh.axis_names if name not in used)
        order = tuple(mesh.axis_names.index(name) for name in used + unused)
        return Tiling(dims, mesh.axis_sizes, order, math.prod(map(mesh.axis_size, unused)) > 1)

    @cached_property
    def _cached_is_replicated(self) -> bool:
        return not self.spec.unreduced and all(self.mesh.axis_size(a) == 1 for a in self.spec.axes)

    @property
    def is_fully_replicated(self) -> bool:
        return self._cached_is_replicated

    @property
    def memory_kind(self) -> str | None:
        if self._memory_kind is not None or isinstance(self.mesh, AbstractMesh):
            return self._memory_kind
        return self._cached_default_memory_kind

    def with_memory_kind(self, kind: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, kind)

    def with_spec(self, spec: PartitionSpec | Sequence[Any]) -> NamedSharding:
        """The sharding over the same mesh with another spec."""
        chosen = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        return NamedSharding(self.mesh, chosen, self._memory_kind)

    def update(self, **fields: Any) -> NamedSharding:
        """The sharding with `mesh`, `spec` or `memory_kind` replaced."""
        mine: dict[str, Any] = {
            "mesh": self.mesh,
            "spec": self.spec,
            "memory_kind": self._memory_kind,
        }
        return NamedSharding(**(mine | fields))

    @property
    def _device_identity(self) -> Any:
        return self.mesh.size if isinstance(self.mesh, AbstractMesh) else self.mesh.flat_devices

    @property
    def partial_axes(self) -> tuple[frozenset[AxisName], frozenset[AxisName]]:
        return self.spec.unreduced, self.spec.reduced

    def _layout_for_messages(self, dim: int, ndim: int) -> tuple[str, str, str]:
        axes = self.spec.dims(ndim)[dim]
        sizes = [f"{name!r} (size {self.mesh.axis_size(name)})" for name in axes]
        noun = "axis" if len(axes) == 1 else "axes"
        return (
            f"{self.spec} over {self.mesh}",
            f"the number of shards along mesh {noun} {' × '.join(sizes)}",
            "choose mesh axes that divide it, or leave it unsharded with None in the spec",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("NamedSharding", self.mesh, self.spec, self._memory_kind)

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{kind_text(self._memory_kind)})"


def _new_named_sharding(mesh: Any, spec: Any, memory_kind: str | None) -> NamedSharding:
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(
            "the first argument of NamedSharding must be a Mesh or an AbstractMesh, "
            f"got {mesh!r} of type {type(mesh).__name__}."
        )
    if not isinstance(spec, PartitionSpec):
        hint = f" Write P(*{spec!r})." if isinstance(spec, (tuple, list)) else ""
        raise TypeError(
            "the second argument of NamedSharding must be a PartitionSpec, "
            f"got {spec!r} of type {type(cast('Any', spec)).__name__}.{hint}"
        )
    _check_spec(mesh, spec)
    check_sums(spec, NotImplementedError)
    kind = memory_kind
    if isinstance(mesh, Mesh):
        kind = canonical_memory_kind(mesh.flat_devices, memory_kind)
    if kind != memory_kind:
        found = NamedSharding(mesh, spec, kind)
        return mesh.named_shardings.setdefault((spec, memory_kind), found)
    sharding = object.__new__(NamedSharding)
    sharding.__dict__.update(mesh=mesh, spec=spec, _memory_kind=kind, _tilings={})
    return mesh.named_shardings.setdefault((spec, kind), sharding)


def _check_spec(mesh: BaseMesh, spec: PartitionSpec) -> None:
    for name in (*spec.axes, *sorted(spec.unreduced | spec.reduced, key=str)):
        if name not in mesh.axis_names:
            raise ValueError(
                f"{spec} names the axis {name!r}, which {mesh} does not have; "
                f"its axes are {join(mesh.axis_names)}."
            )
    for name in spec.axes:
        if spec.axes.count(name) > 1:
            raise ValueError(
                f"{spec} over {mesh} uses the axis {name!r} more than once; "
                "a mesh axis can shard only one dimension, and only once."
            )
    for argument, names in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        auto = sorted(names.intersection(mesh.axes_of_type(AxisType.Auto)), key=str)
        if auto:
            raise ValueError(
                f"{argument}= in {spec} needs axes of type Explicit, but {join(auto)} of {mesh} "
                "is Auto. Make the mesh with axis_types=AxisType.Explicit."
            )


# ----------------------------------------------------------------------------- one device


@final
class SingleDeviceSharding(Frozen, Sharding):
    """The full array on one device."""

    instead = "make a new one"
    device: Device
    _memory_kind: str | None

    def __new__(cls, device: Device, memory_kind: str | None = None) -> SingleDeviceSharding:
        found = _single.get((device, memory_kind))
        if found is not None:
            return found
        kind = canonical_memory_kind((device,), memory_kind)
        if kind != memory_kind:
            same = SingleDeviceSharding(device, kind)
            return _single.setdefault((device, memory_kind), same)
        sharding = object.__new__(SingleDeviceSharding)
        sharding.__dict__.update(device=device, _devices=(device,), _memory_kind=kind)
        return _single.setdefault((device, kind), sharding)

    _devices: tuple[Device, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def tiling(self, ndim: int) -> Tiling:
        return replicated_tiling(ndim, 1)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    @property
    def memory_kind(self) -> str | None:
        return self._memory_kind or self._cached_default_memory_kind

    def with_memory_kind(self, kind: str | None) -> SingleDeviceSharding:
        return SingleDeviceSharding(self.device, kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("SingleDeviceSharding", self.device, self._memory_kind)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}{kind_text(self._memory_kind)})"


def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The full array on a device, in its default memory or in one of another kind."""
    return SingleDeviceSharding(device, memory_kind)


# Bounded: by device and memory kind.
_single: dict[tuple[Device, str | None], SingleDeviceSharding] = {}


# ------------------------------------------------------------------------- tiles to specs


def spec_from_tiles(
    mesh: Mesh | AbstractMesh, dims: Sequence[int], devices: Sequence[int], replicate_last: bool
) -> PartitionSpec | None:
    """Returns the spec over `mesh` with this tile assignment, or None if no spec has it.

    dims:           tiles of each array dimension, then the replicas if `replicate_last`.
    devices:        positions in mesh order, tile by tile; empty if fully replicated.
    replicate_last: whether the last of `dims` is the number of replicas.

    Axes of size 1 are never named, and trailing Nones are omitted.
    """
    tiles = tuple(dims[:-1] if replicate_last else dims)
    if math.prod(tiles) == 1 and len(devices) in (0, mesh.size):
        return PartitionSpec()
    if len(devices) != mesh.size or math.prod(dims) != mesh.size:
        return None
    groups = np.array(devices, np.intp).reshape(math.prod(tiles), -1)  # [tile, replica]
    groups.sort(axis=1)
    entries = _axes_of_dims(mesh, tiles, groups[:, 0].tolist())
    if entries is None:
        return None
    while entries and entries[-1] is None:
        entries.pop()
    spec = PartitionSpec(*entries)
    return spec if _gives(mesh, spec, tiles, groups) else None


def _axes_of_dims(
    mesh: Mesh | AbstractMesh, tiles: tuple[int, ...], first: list[int]
) -> list[Any] | None:
    """For each dimension, the axes along which a tile's first holder moves with the tile."""
    by_stride: dict[int, tuple[AxisName, int]] = {}  # a step along the axis, in positions
    stride = 1
    for name, size in reversed(mesh.shape_tuple):
        if size > 1:
            by_stride[stride] = name, size
            stride *= size
    entries: list[Any] = []
    neighbour = len(first)  # distance in `first` of adjacent tiles of this dimension
    for count in tiles:
        neighbour //= count
        axes: list[AxisName] = []
        done = 1  # tiles accounted for, by the minor axes
        while done < count:
            step = first[neighbour * done] - first[0]
            name, size = by_stride.pop(step, (None, 0))
            if size == 0 or count % (done * size):
                return None
            axes.append(name)
            done *= size
        entries.append(tuple(reversed(axes)) or None)
    return entries


def _gives(
    mesh: Mesh | AbstractMesh, spec: PartitionSpec, tiles: tuple[int, ...], groups: NDArray[np.intp]
) -> bool:
    tiling = NamedSharding(mesh, spec).tiling(len(tiles))
    found = tiling.tile_assignment().reshape(groups.shape)  # a spec's replicas come in order
    return tiling.dims == tiles and bool(np.array_equal(found, groups))


read_by("NamedSharding", NamedSharding)
read_by("SingleDeviceSharding", SingleDeviceSharding)
