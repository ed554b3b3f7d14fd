"""Pytree structures as JSON."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.export.tree_records import (
        register_pytree_node_serialization as register_pytree_node_serialization,
    )
    from shardwise._src.saving.formats.jax_trees import PyTreeFuture as PyTreeFuture
    from shardwise._src.saving.formats.jax_trees import (
        deserialize_pytreedef as deserialize_pytreedef,
    )
    from shardwise._src.saving.formats.jax_trees import serialize_pytreedef as serialize_pytreedef

lazy_names(__name__)
