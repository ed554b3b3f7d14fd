"""Sparse arrays: BCOO and BCSR with most functions of dense arrays, and simple matrices."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.composed_sparse import bcoo_dot_general_p as bcoo_dot_general_p
    from shardwise._src.extend.composed_sparse import (
        bcoo_dot_general_sampled_p as bcoo_dot_general_sampled_p,
    )
    from shardwise._src.extend.composed_sparse import bcoo_extract_p as bcoo_extract_p
    from shardwise._src.extend.composed_sparse import bcoo_fromdense_p as bcoo_fromdense_p
    from shardwise._src.extend.composed_sparse import bcoo_sort_indices_p as bcoo_sort_indices_p
    from shardwise._src.extend.composed_sparse import bcoo_spdot_general_p as bcoo_spdot_general_p
    from shardwise._src.extend.composed_sparse import bcoo_sum_duplicates_p as bcoo_sum_duplicates_p
    from shardwise._src.extend.composed_sparse import bcoo_todense_p as bcoo_todense_p
    from shardwise._src.extend.composed_sparse import bcoo_transpose_p as bcoo_transpose_p
    from shardwise._src.extend.composed_sparse import bcsr_dot_general_p as bcsr_dot_general_p
    from shardwise._src.extend.composed_sparse import bcsr_extract_p as bcsr_extract_p
    from shardwise._src.extend.composed_sparse import bcsr_fromdense_p as bcsr_fromdense_p
    from shardwise._src.extend.composed_sparse import bcsr_todense_p as bcsr_todense_p
    from shardwise._src.extend.composed_sparse import coo_fromdense_p as coo_fromdense_p
    from shardwise._src.extend.composed_sparse import coo_matmat_p as coo_matmat_p
    from shardwise._src.extend.composed_sparse import coo_matvec_p as coo_matvec_p
    from shardwise._src.extend.composed_sparse import coo_todense_p as coo_todense_p
    from shardwise._src.extend.composed_sparse import csr_fromdense_p as csr_fromdense_p
    from shardwise._src.extend.composed_sparse import csr_matmat_p as csr_matmat_p
    from shardwise._src.extend.composed_sparse import csr_matvec_p as csr_matvec_p
    from shardwise._src.extend.composed_sparse import csr_todense_p as csr_todense_p
    from shardwise._src.extend.composed_sparse import todense_p as todense_p
    from shardwise._src.sparse.base import CuSparseEfficiencyWarning as CuSparseEfficiencyWarning
    from shardwise._src.sparse.base import JAXSparse as JAXSparse
    from shardwise._src.sparse.base import SparseEfficiencyError as SparseEfficiencyError
    from shardwise._src.sparse.base import SparseEfficiencyWarning as SparseEfficiencyWarning
    from shardwise._src.sparse.bcoo import BCOO as BCOO
    from shardwise._src.sparse.bcoo import bcoo_extract as bcoo_extract
    from shardwise._src.sparse.bcoo import bcoo_fromdense as bcoo_fromdense
    from shardwise._src.sparse.bcoo import bcoo_todense as bcoo_todense
    from shardwise._src.sparse.bcsr import BCSR as BCSR
    from shardwise._src.sparse.bcsr import bcsr_broadcast_in_dim as bcsr_broadcast_in_dim
    from shardwise._src.sparse.bcsr import bcsr_concatenate as bcsr_concatenate
    from shardwise._src.sparse.bcsr import bcsr_dot_general as bcsr_dot_general
    from shardwise._src.sparse.bcsr import bcsr_extract as bcsr_extract
    from shardwise._src.sparse.bcsr import bcsr_fromdense as bcsr_fromdense
    from shardwise._src.sparse.bcsr import bcsr_sum_duplicates as bcsr_sum_duplicates
    from shardwise._src.sparse.bcsr import bcsr_todense as bcsr_todense
    from shardwise._src.sparse.entries import bcoo_sort_indices as bcoo_sort_indices
    from shardwise._src.sparse.entries import bcoo_sum_duplicates as bcoo_sum_duplicates
    from shardwise._src.sparse.entries import bcoo_update_layout as bcoo_update_layout
    from shardwise._src.sparse.making import empty as empty
    from shardwise._src.sparse.making import eye as eye
    from shardwise._src.sparse.making import random_bcoo as random_bcoo
    from shardwise._src.sparse.making import todense as todense
    from shardwise._src.sparse.matrices import COO as COO
    from shardwise._src.sparse.matrices import CSC as CSC
    from shardwise._src.sparse.matrices import CSR as CSR
    from shardwise._src.sparse.matrices import coo_fromdense as coo_fromdense
    from shardwise._src.sparse.matrices import coo_matmat as coo_matmat
    from shardwise._src.sparse.matrices import coo_matvec as coo_matvec
    from shardwise._src.sparse.matrices import coo_todense as coo_todense
    from shardwise._src.sparse.matrices import csr_fromdense as csr_fromdense
    from shardwise._src.sparse.matrices import csr_matmat as csr_matmat
    from shardwise._src.sparse.matrices import csr_matvec as csr_matvec
    from shardwise._src.sparse.matrices import csr_todense as csr_todense
    from shardwise._src.sparse.products import (
        bcoo_conv_general_dilated as bcoo_conv_general_dilated,
    )
    from shardwise._src.sparse.products import bcoo_dot_general as bcoo_dot_general
    from shardwise._src.sparse.products import bcoo_dot_general_sampled as bcoo_dot_general_sampled
    from shardwise._src.sparse.products import bcoo_multiply_dense as bcoo_multiply_dense
    from shardwise._src.sparse.products import bcoo_multiply_sparse as bcoo_multiply_sparse
    from shardwise._src.sparse.sparse_grad import grad as grad
    from shardwise._src.sparse.sparse_grad import jacfwd as jacfwd
    from shardwise._src.sparse.sparse_grad import jacobian as jacobian
    from shardwise._src.sparse.sparse_grad import jacrev as jacrev
    from shardwise._src.sparse.sparse_grad import value_and_grad as value_and_grad
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
    from shardwise._src.sparse.sparsify import SparseTracer as SparseTracer
    from shardwise._src.sparse.sparsify import sparsify as sparsify
    from shardwise.experimental.sparse import ad as ad
    from shardwise.experimental.sparse import api as api
    from shardwise.experimental.sparse import bcoo as bcoo
    from shardwise.experimental.sparse import bcsr as bcsr
    from shardwise.experimental.sparse import coo as coo
    from shardwise.experimental.sparse import csr as csr
    from shardwise.experimental.sparse import linalg as linalg
    from shardwise.experimental.sparse import random as random
    from shardwise.experimental.sparse import transform as transform
    from shardwise.experimental.sparse import util as util

lazy_names(__name__)
