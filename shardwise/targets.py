"""Machines that are not attached, for which programs can be compiled: see docs/targets.md."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.targets.gpus import add as add
    from shardwise._src.targets.gpus import description as description
    from shardwise._src.targets.machine_names import available as available
    from shardwise._src.targets.machine_names import devices as devices
    from shardwise._src.targets.machine_names import names as names

__all__ = ["add", "available", "description", "devices", "names"]
lazy_names(__name__)
