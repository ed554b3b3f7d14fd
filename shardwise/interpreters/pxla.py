"""Options for XLA's compiler, shardings of `pmap`, and the mesh in scope, under JAX's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.backend_clients import (
        create_compile_options as create_compile_options,
    )
    from shardwise._src.maps.axis_resources import thread_resources as thread_resources
    from shardwise._src.types.mesh import Mesh as Mesh
    from shardwise._src.types.partition_spec import PartitionSpec as PartitionSpec
    from shardwise._src.types.pmap_sharding import Chunked as Chunked
    from shardwise._src.types.pmap_sharding import NoSharding as NoSharding
    from shardwise._src.types.pmap_sharding import Replicated as Replicated
    from shardwise._src.types.pmap_sharding import ShardedAxis as ShardedAxis
    from shardwise._src.types.pmap_sharding import ShardingSpec as ShardingSpec
    from shardwise._src.types.pmap_sharding import Unstacked as Unstacked
    from shardwise._src.types.pmap_sharding import spec_to_indices as spec_to_indices

lazy_names(__name__)
