"""Applies functions of dense arrays to sparse ones."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.sparsify import SparseTracer as SparseTracer
    from shardwise._src.sparse.sparsify import sparsify as sparsify

lazy_names(__name__)
