"""Functions whose calls XLA schedules as a group."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.control.call import xla_metadata_call as xla_metadata_call_p
    from shardwise._src.debug.xla_metadata import scheduling_group as scheduling_group
    from shardwise._src.debug.xla_metadata import xla_metadata_call as xla_metadata_call
    from shardwise._src.extend.partial_eval import (
        dce_jaxpr_call_rule as dce_jaxpr_xla_metadata_rule,
    )

lazy_names(__name__)
