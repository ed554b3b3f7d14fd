"""Our tilings as jaxlib shardings, and back.

jaxlib gets plain `GSPMDSharding` objects: they hash and compare in C++, independent of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from jaxlib import _jax
from jaxlib import xla_client as xc


def placement(
    devices: tuple[_jax.Device, ...], tiling: Any, memory_kind: str | None
) -> _jax.GSPMDSharding:
    """The jaxlib sharding of `tiling` over `devices` (in logical order)."""
    tiles = tiles_of(tiling)
    return _jax.GSPMDSharding(_jax.DeviceList(devices), tiles, memory_kind=memory_kind)


def tiles_of(tiling: Any) -> xc.HloSharding:
    """The XLA sharding of a tiling; None means replicated."""
    if tiling is None or all(d == 1 for d in tiling.dims):
        return xc.HloSharding.replicate()
    return _iota_tiles(tiling) if tiling.assignment is None else _listed_tiles(tiling)


def _iota_tiles(tiling: Any) -> xc.HloSharding:
    dims = list(tiling.dims)
    subgroups: list[xc.OpSharding.Type] = []
    if tiling.replicated:
        total = 1
        for size in tiling.mesh_sizes:
            total *= size
        for tiles in tiling.dims:
            total //= tiles
        dims, subgroups = [*dims, total], [xc.OpSharding.Type.REPLICATED]
    return xc.HloSharding.iota_tile(dims, list(tiling.mesh_sizes), list(tiling.order), subgroups)


def _listed_tiles(tiling: Any) -> xc.HloSharding:
    proto = xc.OpSharding()
    proto.type = xc.OpSharding.Type.OTHER
    proto.tile_assignment_dimensions = list(tiling.tile_assignment().shape)
    proto.tile_assignment_devices = list(tiling.assignment)
    proto.replicate_on_last_tile_dim = tiling.replicated
    return xc.HloSharding.from_proto(proto)


def describe(
    op_sharding: xc.OpSharding | None,
) -> tuple[tuple[int, ...], tuple[int, ...], bool] | None:
    """A compiled sharding as (tiles per dimension, device order, last dimension replicates).

    None means fully replicated.
    """
    if op_sharding is None:
        return None
    tiles = xc.HloSharding.from_proto(op_sharding)
    if tiles.is_replicated() or op_sharding.type != xc.OpSharding.Type.OTHER:
        return None
    dims = tuple(tiles.tile_assignment_dimensions())
    return dims, tuple(tiles.tile_assignment_devices()), tiles.replicate_on_last_tile_dim()


if TYPE_CHECKING:  # for users' programs: there jaxlib has no stubs
    OpSharding: TypeAlias = Any
    HloSharding: TypeAlias = Any
else:
    OpSharding = xc.OpSharding
    HloSharding = xc.HloSharding


def get_op_sharding_from_serialized_proto(sharding: bytes) -> OpSharding:
    """XLA's `OpSharding` from its serialized form."""
    found = xc.OpSharding()
    found.ParseFromString(sharding)
    return found


def get_hlo_sharding_from_serialized_proto(sharding: bytes) -> HloSharding:
    """XLA's `HloSharding` from the serialized form of an `OpSharding`."""
    return xc.HloSharding.from_proto(get_op_sharding_from_serialized_proto(sharding))


def get_serialized_proto_from_hlo_sharding(sharding: HloSharding) -> bytes:
    """The serialized form of an `HloSharding`, as an `OpSharding`."""
    return sharding.to_proto().SerializeToString()
