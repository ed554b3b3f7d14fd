"""Matrices as compressed sparse rows (CSR) and columns (CSC)."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.matrices import CSC as CSC
    from shardwise._src.sparse.matrices import CSR as CSR
    from shardwise._src.sparse.matrices import csr_fromdense as csr_fromdense
    from shardwise._src.sparse.matrices import csr_matmat as csr_matmat
    from shardwise._src.sparse.matrices import csr_matvec as csr_matvec
    from shardwise._src.sparse.matrices import csr_todense as csr_todense

lazy_names(__name__)
