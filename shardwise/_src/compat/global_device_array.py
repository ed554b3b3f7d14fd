"""`GlobalDeviceArray`: the former type of arrays that span processes.

    x = GlobalDeviceArray(global_shape, mesh, mesh_axes, buffers)
    x = GlobalDeviceArray.from_callback(global_shape, mesh, mesh_axes, data_callback)

All of these return an `Array` with `NamedSharding(mesh, P(*mesh_axes))`; `isinstance(x,
GlobalDeviceArray)` checks whether x is such an array. An array also has the former names of its
attributes: `local_shards` is `addressable_shards`, `local_data(i)` is `addressable_data(i)`,
`mesh_axes` is `sharding.spec`, `global_shards` is unchanged. It is compared elementwise and printed
like any array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise._src.arrays.array import Array
from shardwise._src.placement import array_creation
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


class _Meta(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Array)


def _over_mesh(make: Callable[..., Array]) -> staticmethod[..., Array]:
    """A function that makes arrays, with a mesh and its axes instead of a sharding."""

    def over_mesh(
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: Any,
        data_callback: Callable[[Any], Any],
    ) -> Array:
        return make(global_shape, _place(global_mesh, mesh_axes), data_callback)

    over_mesh.__doc__ = f"Legacy spelling of `{make.__name__}`."
    return staticmethod(over_mesh)


class GlobalDeviceArray(metaclass=_Meta):
    """Legacy spelling of `make_array_from_single_device_arrays`.

    Args:
      global_shape: of the full array.
      global_mesh: the devices.
      mesh_axes: a `PartitionSpec` or a sequence of its entries.
      device_buffers: single-device arrays, one on each device of this process.

    Returns:
      An `Array`.
    """

    def __new__(  # pyright: ignore[reportInconsistentConstructor]
        cls,
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: Any,
        device_buffers: Sequence[Array],
    ) -> Array:
        place = _place(global_mesh, mesh_axes)
        make = array_creation.make_array_from_single_device_arrays
        return make(global_shape, place, device_buffers)

    from_callback = _over_mesh(array_creation.make_array_from_callback)
    from_batched_callback = _over_mesh(array_creation.make_array_from_batched_callback)
    from_batched_callback_with_devices = _over_mesh(
        array_creation.make_array_from_batched_callback_with_devices
    )


def get_shard_indices(
    global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any
) -> Mapping[Any, tuple[slice, ...]]:
    """The index of each device's shard: legacy spelling of `devices_indices_map`."""
    return _place(global_mesh, mesh_axes).devices_indices_map(tuple(global_shape))


def get_shard_shape(
    global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any
) -> tuple[int, ...]:
    """The shape of a shard: legacy spelling of `shard_shape`."""
    return _place(global_mesh, mesh_axes).shard_shape(tuple(global_shape))


def _place(mesh: Mesh, axes: Any) -> NamedSharding:
    if isinstance(axes, str) or not isinstance(axes, Sequence | PartitionSpec):
        raise TypeError(
            "GlobalDeviceArray: mesh_axes must be a PartitionSpec or a sequence of its entries, "
            f"got {axes!r} of type {type(axes).__name__}."
        )
    return NamedSharding(mesh, PartitionSpec(*axes))
