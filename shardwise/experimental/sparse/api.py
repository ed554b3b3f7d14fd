"""Creation of sparse arrays."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.making import empty as empty
    from shardwise._src.sparse.making import eye as eye
    from shardwise._src.sparse.making import todense as todense

lazy_names(__name__)
