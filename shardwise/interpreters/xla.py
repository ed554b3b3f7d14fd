"""Running one op."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.primitive import apply_primitive as apply_primitive

lazy_names(__name__)
