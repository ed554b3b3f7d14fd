"""Names that attributes of arrays had in JAX until 2023, also in GlobalDeviceArray and keys."""

from __future__ import annotations

from typing import Any

from shardwise._src.ops.random.bits import random_unwrap


class FormerNames:
    """The part of `Array` with its attributes under former names."""

    __slots__ = ()
    addressable_shards: Any
    addressable_data: Any
    sharding: Any
    aval: Any

    @property
    def local_shards(self) -> Any:
        return self.addressable_shards

    def local_data(self, index: int) -> Any:
        return self.addressable_data(index)

    @property
    def device_buffers(self) -> list[Any]:
        """The data of `addressable_shards`."""
        return [shard.data for shard in self.addressable_shards]

    @property
    def _arrays(self) -> list[Any]:
        """`device_buffers`, by the name that libraries use."""
        return self.device_buffers

    @property
    def device_buffer(self) -> Any:
        """The only one of `device_buffers`; ValueError if there are several."""
        first, *others = self.device_buffers
        if others:
            raise ValueError(
                f"device_buffer: array of type {self.aval.str_short(True)} has "
                f"{len(others) + 1} shards. Use `addressable_data(i)`."
            )
        return first

    @property
    def mesh_axes(self) -> Any:
        """The `PartitionSpec`."""
        return self._of_mesh("mesh_axes", "spec")

    @property
    def mesh(self) -> Any:
        return self._of_mesh("mesh", "mesh")

    def _of_mesh(self, name: str, field: str) -> Any:
        found = getattr(self.sharding, field, None)
        if found is None:
            raise AttributeError(
                f"array of type {self.aval.str_short(True)} has no {name}: its sharding, "
                f"{self.sharding}, has no mesh."
            )
        return found

    def unsafe_raw_array(self) -> Any:
        """The integers of keys: `random.key_data`."""
        return random_unwrap(self)
