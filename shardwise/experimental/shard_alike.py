"""Values that are sharded alike."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.placement.shard_alike import shard_alike as shard_alike

lazy_names(__name__)
