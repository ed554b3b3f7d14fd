"""Compiled programs on disk."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.experimental.compilation_cache import compilation_cache as compilation_cache

lazy_names(__name__)
