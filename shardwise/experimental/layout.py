"""Memory layouts of arrays: the order of their dimensions, and tiles."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.placement.layout_constraints import (
        with_layout_constraint as with_layout_constraint,
    )
    from shardwise._src.types.layout import Format as Format
    from shardwise._src.types.layout import Layout as Layout

lazy_names(__name__)
