"""Operations on host values in multi-process programs: gather, broadcast, synchronize."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.errors import ProcessFailureError as ProcessFailureError
    from shardwise._src.distributed.host_local import (
        global_array_to_host_local_array as global_array_to_host_local_array,
    )
    from shardwise._src.distributed.host_local import (
        host_local_array_to_global_array as host_local_array_to_global_array,
    )
    from shardwise._src.distributed.multihost import assert_equal as assert_equal
    from shardwise._src.distributed.multihost import broadcast_one_to_all as broadcast_one_to_all
    from shardwise._src.distributed.multihost import live_devices as live_devices
    from shardwise._src.distributed.multihost import process_allgather as process_allgather
    from shardwise._src.distributed.multihost import (
        reached_preemption_sync_point as reached_preemption_sync_point,
    )
    from shardwise._src.distributed.multihost import sync_global_devices as sync_global_devices
    from shardwise._src.extend.composed import (
        global_array_to_host_local_array_impl as global_array_to_host_local_array_impl,
    )
    from shardwise._src.extend.composed import (
        global_array_to_host_local_array_p as global_array_to_host_local_array_p,
    )
    from shardwise._src.extend.composed import (
        host_local_array_to_global_array_impl as host_local_array_to_global_array_impl,
    )
    from shardwise._src.extend.composed import (
        host_local_array_to_global_array_p as host_local_array_to_global_array_p,
    )

lazy_names(__name__)
