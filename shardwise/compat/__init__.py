"""Older spellings of functions that the library has under newer names. Each is a thin alias.

New code should use the replacements that the docstrings name.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.as_jax import as_jax as as_jax
    from shardwise._src.compat.global_device_array import GlobalDeviceArray as GlobalDeviceArray
    from shardwise._src.compat.positional import PositionalSharding as PositionalSharding
    from shardwise._src.types.pmap_sharding import Chunked as Chunked
    from shardwise._src.types.pmap_sharding import NoSharding as NoSharding
    from shardwise._src.types.pmap_sharding import PmapSharding as PmapSharding
    from shardwise._src.types.pmap_sharding import Replicated as Replicated
    from shardwise._src.types.pmap_sharding import ShardedAxis as ShardedAxis
    from shardwise._src.types.pmap_sharding import ShardingSpec as ShardingSpec
    from shardwise._src.types.pmap_sharding import Unstacked as Unstacked

lazy_names(__name__)
