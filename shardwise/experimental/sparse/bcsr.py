"""Batched compressed sparse rows (BCSR)."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.bcsr import BCSR as BCSR
    from shardwise._src.sparse.bcsr import bcsr_broadcast_in_dim as bcsr_broadcast_in_dim
    from shardwise._src.sparse.bcsr import bcsr_concatenate as bcsr_concatenate
    from shardwise._src.sparse.bcsr import bcsr_dot_general as bcsr_dot_general
    from shardwise._src.sparse.bcsr import bcsr_extract as bcsr_extract
    from shardwise._src.sparse.bcsr import bcsr_fromdense as bcsr_fromdense
    from shardwise._src.sparse.bcsr import bcsr_sum_duplicates as bcsr_sum_duplicates
    from shardwise._src.sparse.bcsr import bcsr_todense as bcsr_todense

lazy_names(__name__)
