"""Matrices in coordinate format (COO)."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.matrices import COO as COO
    from shardwise._src.sparse.matrices import coo_fromdense as coo_fromdense
    from shardwise._src.sparse.matrices import coo_matmat as coo_matmat
    from shardwise._src.sparse.matrices import coo_matvec as coo_matvec
    from shardwise._src.sparse.matrices import coo_todense as coo_todense

lazy_names(__name__)
