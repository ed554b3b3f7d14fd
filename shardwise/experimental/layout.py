"""Layouts of arrays in memory; see `types.layout`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.types.layout import Format as Format
    from shardwise._src.types.layout import Layout as Layout

__getattr__, __dir__ = lazy_names(__name__)
