"""Running a single op; groups of replicas along named axes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.replica_groups import AxisEnv as AxisEnv
    from shardwise._src.compat.replica_groups import axis_groups as axis_groups
    from shardwise._src.extend.primitive import apply_primitive as apply_primitive
    from shardwise._src.extend.rule_tables import (
        canonicalize_dtype_handlers as canonicalize_dtype_handlers,
    )
    from shardwise._src.runtime.backend import Client as Backend

lazy_names(__name__)
