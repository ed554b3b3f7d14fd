"""Derivatives with respect to stored elements."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.sparse_grad import grad as grad
    from shardwise._src.sparse.sparse_grad import jacfwd as jacfwd
    from shardwise._src.sparse.sparse_grad import jacobian as jacobian
    from shardwise._src.sparse.sparse_grad import jacrev as jacrev
    from shardwise._src.sparse.sparse_grad import value_and_grad as value_and_grad

lazy_names(__name__)
