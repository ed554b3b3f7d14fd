"""The disk cache of compiled programs; see the flag `compilation_cache_dir`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compiling.disk_cache import reset_cache as reset_cache
    from shardwise._src.compiling.disk_cache import set_cache_dir as set_cache_dir

lazy_names(__name__)
