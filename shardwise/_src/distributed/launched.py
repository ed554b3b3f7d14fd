"""Processes started by `shardwise launch` join automatically before the first use of a device, so
the same source runs alone and in many processes."""

from __future__ import annotations

import os

from shardwise._src.distributed import cluster, settings, start
from shardwise._src.runtime import backend


def join_if_launched() -> None:
    """Joins the other processes, if `shardwise launch` started this one."""
    if not start.is_initialized() and all(name in os.environ for name in cluster.LAUNCHED):
        seconds = float(os.environ.get("SHARDWISE_INITIALIZATION_TIMEOUT", "300"))
        start.initialize(cluster_detection_method="shardwise", initialization_timeout=seconds)


backend.before_start = join_if_launched
settings.guard_all(start.is_initialized)
