"""Taylor mode."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.api.jet import jet as jet

lazy_names(__name__)
