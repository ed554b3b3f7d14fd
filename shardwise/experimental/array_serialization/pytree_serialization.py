"""Pytrees of arrays in a folder."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.saving.formats.jax_trees import load as load
    from shardwise._src.saving.formats.jax_trees import load_pytreedef as load_pytreedef
    from shardwise._src.saving.formats.jax_trees import nonblocking_load as nonblocking_load
    from shardwise._src.saving.formats.jax_trees import nonblocking_save as nonblocking_save
    from shardwise._src.saving.formats.jax_trees import save as save

lazy_names(__name__)
