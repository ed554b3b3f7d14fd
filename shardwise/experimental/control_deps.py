"""Control dependencies between instructions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.api.layouts import control_dep as control_dep
    from shardwise._src.api.layouts import schedule as schedule

lazy_names(__name__)
