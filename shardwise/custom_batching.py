"""Functions with custom `vmap` rules."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.custom.custom_vmap import custom_vmap as custom_vmap
    from shardwise._src.custom.custom_vmap import sequential_vmap as sequential_vmap

lazy_names(__name__)
