"""`Sharding`, the base class: everything derived from a list of devices and a `Tiling`.

The index arithmetic is cached per shape, with slices and tuples shared, so thousands of devices
cost milliseconds once. Sizes need not be divisible by the number of tiles: for n elements in k
tiles each has ceil(n/k), the last ones fewer or none. `padded_shape` is the combined shape of the
shards; `is_even` tells whether it equals the shape itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise._src.types.devices import Device, default_memory_kind, is_addressable
from shardwise._src.types.html_repr import HTML
from shardwise._src.types.partition_spec import AxisName
from shardwise._src.types.tiling import (
    Index,
    Tiling,
    index_bounds,
    replica_ids,
    tile_indices,
    tile_size,
    tiling_of_indices,
)

Shape = tuple[int, ...]
SHAPES_REMEMBERED = 64  # per sharding; an index map over 8,192 devices takes about a megabyte
SMALL_REMEMBERED = 1024  # per sharding, for entries of a few numbers


class Sharding:
    """How arrays are laid out over devices. To define a new kind, subclass and define

    devices:             property; the devices as a tuple, in logical order.
    tiling(ndim):        the `Tiling` of an array with `ndim` dimensions over these devices.
    is_fully_replicated: property; whether every device holds the full array.

    or instead of these

    device_set:                 property; the devices as a set.
    devices_indices_map(shape): the index that each of them holds: a slice for each dimension.
        These must be the tiles of a grid, each held by equally many devices; if a size is not
        divisible, tiles have ceil(n/k) elements, the last ones fewer or none.

    and, unless it is the default one, the property `memory_kind`. Instances must be hashable
    and must not change.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("__hash__", True) is None:
            raise TypeError(
                f"{cls.__name__} defines __eq__ but not __hash__. Shardings are cache keys: "
                "define both, or neither."
            )

    @property
    def devices(self) -> tuple[Device, ...]:
        if not (self._defines("device_set") and self._defines("devices_indices_map")):
            raise NotImplementedError(self._lacks("the property `devices`"))
        return self._cached_sorted_devices

    def tiling(self, ndim: int) -> Tiling:
        if not self._defines("devices_indices_map"):
            raise NotImplementedError(self._lacks("`tiling(ndim)`"))
        return self._cached_tiling(ndim)

    @property
    def is_fully_replicated(self) -> bool:
        if self._defines("tiling") or not self._defines("devices_indices_map"):
            raise NotImplementedError(self._lacks("the property `is_fully_replicated`"))
        return self._cached_is_whole

    @property
    def memory_kind(self) -> str | None:
        """The memory kind of the shards; None if the devices have no memory kinds."""
        return self._cached_default_memory_kind

    def with_memory_kind(self, kind: str | None) -> Sharding:
        """The same sharding with another memory kind; None means the default kind."""
        if (kind or self._cached_default_memory_kind) == self.memory_kind:
            return self
        raise NotImplementedError(
            f"{type(self).__name__} must define `with_memory_kind(kind)` to be moved from memory "
            f"of kind {self.memory_kind!r} to {kind or self._cached_default_memory_kind!r}."
        )

    @property
    def stacked_dim(self) -> int | None:
        """The dimension, if any, in which device number i holds exactly index i:
        indexing it with an int selects a shard."""
        return None

    # -- derived from `device_set` and `devices_indices_map`, if defined -------------------------

    def _defines(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(Sharding, name)

    def _lacks(self, what: str) -> str:
        return (
            f"{type(self).__name__} must define {what}. A custom sharding defines `devices`, "
            "`tiling(ndim)` and `is_fully_replicated`, or else `device_set` and "
            "`devices_indices_map(shape)`; see Sharding."
        )

    @cached_property
    def _cached_sorted_devices(self) -> tuple[Device, ...]:
        return tuple(sorted(self.device_set, key=lambda device: device.id))

    @cached_property
    def _cached_tiling(self) -> Callable[[int], Tiling]:
        def tiling(ndim: int) -> Tiling:
            shape = (len(self.devices),) * ndim  # divisible by any number of equal tiles
            try:
                return tiling_of_indices(shape, self._mapped(shape))
            except ValueError as error:
                what = f"{type(self).__name__}.devices_indices_map({shape})"
                raise ValueError(f"{what} is not the map of a tiling: {error}.") from None

        return lru_cache(tiling)

    def _mapped(self, shape: Shape) -> list[Index]:
        """The index that the subclass's own map gives each device."""
        index_map = self.devices_indices_map(shape)
        if frozenset(index_map) != frozenset(self.device_set):
            raise ValueError("its devices differ from those of `device_set`")
        return [index_map[device] for device in self.devices]

    def _check_mapped(self, shape: Shape, indices: Sequence[Index]) -> None:
        """Raises if the subclass's own map differs from the map of the tiling."""
        pairs = zip(self.devices, self._mapped(shape), indices, strict=True)
        for device, mine, tile in pairs:
            if index_bounds(shape, mine) != index_bounds(shape, tile):
                raise ValueError(
                    f"{type(self).__name__}.devices_indices_map({shape}) gives {device} the index "
                    f"{mine}, but its map for other shapes implies {tile}: of n elements in "
                    "k tiles each has ceil(n/k), the last ones fewer or none."
                )

    @cached_property
    def _cached_is_whole(self) -> bool:
        found: list[bool] = []
        for ndim in (1, 2, 3):
            try:
                found.append(self.tiling(ndim).num_tiles == 1)
            except (ValueError, TypeError, IndexError):  # the map does not support this rank
                continue
        if not found:
            raise NotImplementedError(self._lacks("the property `is_fully_replicated`"))
        return all(found)

    # -- devices ---------------------------------------------------------------------------

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @cached_property
    def _cached_device_set(self) -> frozenset[Device]:
        return frozenset(self.devices)

    @property
    def device_set(self) -> frozenset[Device]:
        return self._cached_device_set

    @cached_property
    def _cached_addressable(self) -> tuple[int, ...]:
        return tuple(i for i, device in enumerate(self.devices) if is_addressable(device))

    @property
    def addressable_positions(self) -> tuple[int, ...]:
        """The positions in `devices` of the devices of this process."""
        return self._cached_addressable

    @cached_property
    def _cached_addressable_set(self) -> frozenset[Device]:
        return frozenset(self.devices[i] for i in self.addressable_positions)

    @property
    def addressable_devices(self) -> frozenset[Device]:
        """The devices of this process."""
        return self._cached_addressable_set

    @property
    def has_addressable_devices(self) -> bool:
        """Whether some of the devices belong to this process."""
        return len(self.addressable_positions) > 0

    @property
    def is_fully_addressable(self) -> bool:
        """Whether every device belongs to this process."""
        return len(self.addressable_positions) == len(self.devices)

    # Private JAX names that libraries use.

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self.devices

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        return tuple([self.devices[i] for i in self.addressable_positions])

    @cached_property
    def _cached_default_memory_kind(self) -> str | None:
        places = self.addressable_positions
        return default_memory_kind(self.devices[places[0]]) if places else None

    # -- index arithmetic ------------------------------------------------------------------

    def shard_shape(self, global_shape: Sequence[int]) -> Shape:
        """The shape of the first shard, ceil(n/k) in each dimension: of all shards, if even."""
        shape = tuple(global_shape)
        self.check_rank(len(shape))
        return self._cached_tile_shape(shape)

    def check_rank(self, ndim: int) -> None:
        """Raises ValueError if the sharding is for arrays of another rank."""

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raises ValueError if the sharding is for arrays of another rank than this shape's."""
        self.shard_shape(aval_shape)

    def tile_shape(self, stored: Sequence[int]) -> Shape:
        """`shard_shape` of an array as stored, where elements may have dimensions too."""
        return self._cached_tile_shape(tuple(stored))

    def is_even(self, global_shape: Sequence[int]) -> bool:
        """Whether each dimension is divisible by its number of tiles: all shards are equal."""
        return self._cached_padding(tuple(global_shape)) is None

    def padded_shape(self, global_shape: Sequence[int]) -> Shape:
        """The shape rounded up to full shards: k·ceil(n/k) in each dimension.

        If that equals the shape, the same tuple is returned.
        """
        shape = tuple(global_shape)
        return self._cached_padding(shape) or shape

    def indices(self, global_shape: Sequence[int]) -> tuple[Index, ...]:
        """The index that each device holds, in the order of `devices`."""
        return self._cached_indices(tuple(global_shape))

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """Device → the index it holds of an array of this shape: a slice for each dimension."""
        return self._cached_index_map(tuple(global_shape))

    def addressable_devices_indices_map(
        self, global_shape: Sequence[int]
    ) -> Mapping[Device, Index]:
        """`devices_indices_map`, for the devices of this process."""
        return self._cached_local_index_map(tuple(global_shape))

    def replica_ids(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """For each of `devices`, the number of earlier ones that hold the same index."""
        return self._cached_replica_ids(tuple(global_shape))

    def distinct(self, global_shape: Sequence[int]) -> tuple[tuple[Index, ...], tuple[int, ...]]:
        """The distinct indices that this process holds, and positions that hold them."""
        return self._cached_distinct(tuple(global_shape))

    def is_held_here(self, global_shape: Sequence[int]) -> bool:
        """Whether the devices of this process hold every element of an array of this shape."""
        return self.is_fully_addressable or self._cached_is_held_here(tuple(global_shape))

    def tile_assignment(self, ndim: int) -> NDArray[np.intp]:
        """The positions in `devices` that hold each tile, as a grid; replicas come last."""
        return self.tiling(ndim).tile_assignment()

    def check_divisible(self, global_shape: Shape) -> None:
        """For callers that cannot pad: raises ValueError if a dimension is not divisible."""
        tiles = self.tiling(len(global_shape)).dims
        for dim, (size, count) in enumerate(zip(global_shape, tiles, strict=True)):
            if size % count:
                whole, tiles_are, advice = self._layout_for_messages(dim, len(global_shape))
                raise ValueError(
                    f"cannot shard an array of shape {global_shape} by {whole}: dimension {dim} "
                    f"of size {size} is not divisible by {count}, {tiles_are}. "
                    f"Pad the dimension to {tile_size(size, count) * count}, {advice}."
                )

    def _layout_for_messages(self, dim: int, ndim: int) -> tuple[str, str, str]:
        """For messages: the full layout, what splits dimension `dim`, and what to do instead."""
        del dim, ndim
        return repr(self), "the number of tiles along it", "or shard it another way"

    @cached_property
    def _cached_tile_shape(self) -> Callable[[Shape], Shape]:
        def tile_shape(shape: Shape) -> Shape:
            tiles = self.tiling(len(shape)).dims
            return tuple(map(tile_size, shape, tiles))

        return lru_cache(SMALL_REMEMBERED)(tile_shape)

    @cached_property
    def _cached_padding(self) -> Callable[[Shape], Shape | None]:
        def padding(shape: Shape) -> Shape | None:
            tiles = self.tiling(len(shape)).dims
            padded = tuple(tile_size(n, k) * k for n, k in zip(shape, tiles, strict=True))
            return None if padded == shape else padded

        return lru_cache(SMALL_REMEMBERED)(padding)

    @cached_property
    def _cached_indices(self) -> Callable[[Shape], tuple[Index, ...]]:
        def indices(shape: Shape) -> tuple[Index, ...]:
            tiling = self.tiling(len(shape))
            tiles = tile_indices(shape, tiling.dims)  # shared among replicas
            found = tuple(map(tiles.__getitem__, tiling.tile_of_position().tolist()))
            if not self._defines("tiling"):
                self._check_mapped(shape, found)
            return found

        return lru_cache(SHAPES_REMEMBERED)(indices)

    @cached_property
    def _cached_index_map(self) -> Callable[[Shape], Mapping[Device, Index]]:
        def index_map(shape: Shape) -> Mapping[Device, Index]:
            self.check_rank(len(shape))
            return MappingProxyType(dict(zip(self.devices, self.indices(shape), strict=True)))

        return lru_cache(SHAPES_REMEMBERED)(index_map)

    @cached_property
    def _cached_local_index_map(self) -> Callable[[Shape], Mapping[Device, Index]]:
        def local_index_map(shape: Shape) -> Mapping[Device, Index]:
            self.check_rank(len(shape))
            devices, indices = self.devices, self.indices(shape)
            return MappingProxyType({devices[i]: indices[i] for i in self.addressable_positions})

        return lru_cache(SHAPES_REMEMBERED)(local_index_map)

    @cached_property
    def _cached_replica_ids(self) -> Callable[[Shape], tuple[int, ...]]:
        def ids(shape: Shape) -> tuple[int, ...]:
            return tuple(replica_ids(shape, self.tiling(len(shape))))

        return lru_cache(SHAPES_REMEMBERED)(ids)

    @cached_property
    def _cached_is_held_here(self) -> Callable[[Shape], bool]:
        def is_held_here(shape: Shape) -> bool:
            indices, _ = self.distinct(shape)
            sizes = [
                math.prod([len(range(*s.indices(n))) for s, n in zip(index, shape, strict=True)])
                for index in indices
            ]
            return sum(sizes) == math.prod(shape)

        return lru_cache(SHAPES_REMEMBERED)(is_held_here)

    @cached_property
    def _cached_distinct(self) -> Callable[[Shape], tuple[tuple[Index, ...], tuple[int, ...]]]:
        def distinct(shape: Shape) -> tuple[tuple[Index, ...], tuple[int, ...]]:
            indices, replicas = self.indices(shape), self.replica_ids(shape)
            seen: dict[Any, int] = {}
            for i in self.addressable_positions:
                key = tuple([(s.start, s.stop) for s in indices[i]])
                if key not in seen or replicas[i] == 0:
                    seen[key] = i
            positions = tuple(seen.values())
            return tuple([indices[i] for i in positions]), positions

        return lru_cache(SHAPES_REMEMBERED)(distinct)

    # -- comparison ------------------------------------------------------------------------

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether arrays of `ndim` dimensions are laid out the same way: the same index on each
        device, with the devices in the same order and the same memory kind.
        """
        if self is other:
            return True
        if not isinstance(other, Sharding) or self.memory_kind != other.memory_kind:
            return False
        mine, theirs = self._device_identity, other._device_identity
        if mine is not theirs and mine != theirs:
            return False
        if self.partial_axes != other.partial_axes:
            return False
        return _same_tiles(self.tiling(ndim), other.tiling(ndim))

    @property
    def _device_identity(self) -> Any:
        return self.devices

    @property
    def partial_axes(self) -> tuple[frozenset[AxisName], frozenset[AxisName]]:
        """Axes along which values are partial sums, and along which their cotangents are."""
        return frozenset(), frozenset()

    def _repr_html_(self) -> str | None:
        return HTML["sharding"](self)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_cached_")}


def _same_tiles(a: Tiling, b: Tiling) -> bool:
    if a.dims != b.dims:
        return False
    return a == b or bool(np.array_equal(a.tile_of_position(), b.tile_of_position()))
