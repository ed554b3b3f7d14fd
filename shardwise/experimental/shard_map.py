"""The older form of `shard_map`, at its older import path."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.old_shard_map import shard_map as shard_map

lazy_names(__name__)
