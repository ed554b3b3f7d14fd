"""Control dependencies between instructions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.placement.layout_constraints import control_dep as control_dep
    from shardwise._src.placement.layout_constraints import schedule as schedule

lazy_names(__name__)
