"""Combines the local rows of each process into one array over the devices of all, and back.

`pmap` uses this for devices of several processes: a process passes and receives the indices of its
own devices, and collectives are over all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.placement.array_creation import make_array_from_single_device_arrays
from shardwise._src.transfers.transfer import move
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.pmap_sharding import PmapSharding
from shardwise._src.types.sharding import NamedSharding


def joined(x: Any, d: int, own: Sequence[Any], everyone: Sequence[Any]) -> Array:
    """The array over all devices, from the rows of this process along `d`.

    own, everyone: the devices of this process, and of all.
    """
    shape = type_of(x).shape
    rows = move(as_arraylike(x), PmapSharding.default(shape, d, tuple(own)))
    whole = (*shape[:d], len(everyone), *shape[d + 1 :])
    return _of_parts(whole, PmapSharding.default(whole, d, tuple(everyone)), rows)


def own_part(y: Array, own: Sequence[Any]) -> Array:
    """The part of a result of `pmap` over all devices that belongs to this process."""
    if not isinstance(y.sharding, PmapSharding):  # out_axes=None
        mesh = Mesh(np.array(own, object), y.sharding.mesh.axis_names)
        return _of_parts(y.shape, NamedSharding(mesh, PartitionSpec()), y)
    d = y.sharding.stacked_dim
    shape = y.shape if d is None else (*y.shape[:d], len(own), *y.shape[d + 1 :])
    return _of_parts(shape, PmapSharding.default(shape, d, tuple(own)), y)


def _of_parts(shape: tuple[int, ...], sharding: Any, x: Array) -> Array:
    parts = [shard.data for shard in x.addressable_shards]
    return make_array_from_single_device_arrays(shape, sharding, parts, dtype=x.dtype)
