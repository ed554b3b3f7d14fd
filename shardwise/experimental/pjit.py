"""`pjit`, the older name of `jit`, with the older names of its shardings."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.pjit import AUTO as AUTO
    from shardwise._src.compat.pjit import FROM_GDA as FROM_GDA
    from shardwise._src.compat.pjit import FromGda as FromGda
    from shardwise._src.compat.pjit import pjit as pjit
    from shardwise._src.placement.device_put import (
        with_sharding_constraint as with_sharding_constraint,
    )

lazy_names(__name__)
