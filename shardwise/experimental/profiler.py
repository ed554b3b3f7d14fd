"""Profile data for XLA's scheduler."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.runtime.profiler import (
        get_profiled_instructions_proto as get_profiled_instructions_proto,
    )

lazy_names(__name__)
