"""Functions with user-defined partitioning."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.partitioning.custom_partitioning import (
        custom_partitioning as custom_partitioning,
    )
    from shardwise._src.partitioning.sharding_rules import BATCHING as BATCHING
    from shardwise._src.partitioning.sharding_rules import ArrayMapping as ArrayMapping
    from shardwise._src.partitioning.sharding_rules import CompoundFactor as CompoundFactor
    from shardwise._src.partitioning.sharding_rules import SdyShardingRule as SdyShardingRule

lazy_names(__name__)
