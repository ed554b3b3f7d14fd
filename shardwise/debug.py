"""Inspects values and their shardings while a program runs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.breakpoints import breakpoint as breakpoint
    from shardwise._src.debug.clear_caches import caches as caches
    from shardwise._src.debug.host_callbacks import debug_function as callback
    from shardwise._src.debug.host_callbacks import debug_log as log
    from shardwise._src.debug.host_callbacks import debug_print as print
    from shardwise._src.debug.inspect_array_sharding import (
        inspect_array_sharding as inspect_array_sharding,
    )
    from shardwise._src.debug.visualize_sharding import (
        visualize_array_sharding as visualize_array_sharding,
    )
    from shardwise._src.debug.visualize_sharding import visualize_sharding as visualize_sharding
    from shardwise._src.effects.callback import DebugEffect as DebugEffect
    from shardwise._src.effects.callback import OrderedDebugEffect as OrderedDebugEffect

__all__ = [
    "DebugEffect",
    "OrderedDebugEffect",
    "breakpoint",
    "caches",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]
lazy_names(__name__)
