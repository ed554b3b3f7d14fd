"""Shardings in XLA's representation."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.runtime.compiler.runtime_shardings import (
        get_hlo_sharding_from_serialized_proto as get_hlo_sharding_from_serialized_proto,
    )
    from shardwise._src.runtime.compiler.runtime_shardings import (
        get_op_sharding_from_serialized_proto as get_op_sharding_from_serialized_proto,
    )
    from shardwise._src.runtime.compiler.runtime_shardings import (
        get_serialized_proto_from_hlo_sharding as get_serialized_proto_from_hlo_sharding,
    )
    from shardwise._src.types.tiled import GSPMDSharding as GSPMDSharding

lazy_names(__name__)
