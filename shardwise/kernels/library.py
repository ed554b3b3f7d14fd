"""Functions that are kernels: see docs/kernels-library.md. Their sources are examples of kernels."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.kernels.library.attention_kernels import flash_attention as flash_attention
    from shardwise._src.kernels.library.attention_kernels import paged_attention as paged_attention
    from shardwise._src.kernels.library.grouped_matmul_kernel import (
        grouped_matmul as grouped_matmul,
    )
    from shardwise._src.kernels.library.histogram_kernels import histogram as histogram
    from shardwise._src.kernels.library.histogram_kernels import scatter_add as scatter_add
    from shardwise._src.kernels.library.matmul_kernel import matmul as matmul
    from shardwise._src.kernels.library.norm_kernels import layer_norm as layer_norm
    from shardwise._src.kernels.library.norm_kernels import rms_norm as rms_norm
    from shardwise._src.kernels.library.prefix_sum_kernel import cumsum as cumsum
    from shardwise._src.kernels.library.ring_kernels import collective_matmul as collective_matmul
    from shardwise._src.kernels.library.ring_kernels import ring_all_gather as ring_all_gather
    from shardwise._src.kernels.library.ring_kernels import (
        ring_reduce_scatter as ring_reduce_scatter,
    )
    from shardwise._src.kernels.library.softmax_kernel import log_softmax as log_softmax
    from shardwise._src.kernels.library.softmax_kernel import softmax as softmax

lazy_names(__name__)
