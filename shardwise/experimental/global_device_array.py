"""The older import path of `GlobalDeviceArray`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.global_device_array import GlobalDeviceArray as GlobalDeviceArray
    from shardwise._src.compat.global_device_array import get_shard_indices as get_shard_indices
    from shardwise._src.compat.global_device_array import get_shard_shape as get_shard_shape

lazy_names(__name__)
