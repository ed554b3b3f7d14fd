"""Batched coordinate format (BCOO)."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.bcoo import BCOO as BCOO
    from shardwise._src.sparse.bcoo import bcoo_eliminate_zeros as bcoo_eliminate_zeros
    from shardwise._src.sparse.bcoo import bcoo_extract as bcoo_extract
    from shardwise._src.sparse.bcoo import bcoo_fromdense as bcoo_fromdense
    from shardwise._src.sparse.bcoo import bcoo_todense as bcoo_todense
    from shardwise._src.sparse.entries import bcoo_sort_indices as bcoo_sort_indices
    from shardwise._src.sparse.entries import bcoo_sum_duplicates as bcoo_sum_duplicates
    from shardwise._src.sparse.entries import bcoo_update_layout as bcoo_update_layout
    from shardwise._src.sparse.products import (
        bcoo_conv_general_dilated as bcoo_conv_general_dilated,
    )
    from shardwise._src.sparse.products import bcoo_dot_general as bcoo_dot_general
    from shardwise._src.sparse.products import bcoo_dot_general_sampled as bcoo_dot_general_sampled
    from shardwise._src.sparse.products import bcoo_multiply_dense as bcoo_multiply_dense
    from shardwise._src.sparse.products import bcoo_multiply_sparse as bcoo_multiply_sparse
    from shardwise._src.sparse.sparse_shapes import bcoo_broadcast_in_dim as bcoo_broadcast_in_dim
    from shardwise._src.sparse.sparse_shapes import bcoo_concatenate as bcoo_concatenate
    from shardwise._src.sparse.sparse_shapes import bcoo_dynamic_slice as bcoo_dynamic_slice
    from shardwise._src.sparse.sparse_shapes import bcoo_gather as bcoo_gather
    from shardwise._src.sparse.sparse_shapes import bcoo_reduce_sum as bcoo_reduce_sum
    from shardwise._src.sparse.sparse_shapes import bcoo_reshape as bcoo_reshape
    from shardwise._src.sparse.sparse_shapes import bcoo_rev as bcoo_rev
    from shardwise._src.sparse.sparse_shapes import bcoo_slice as bcoo_slice
    from shardwise._src.sparse.sparse_shapes import bcoo_squeeze as bcoo_squeeze
    from shardwise._src.sparse.sparse_shapes import bcoo_transpose as bcoo_transpose

lazy_names(__name__)
