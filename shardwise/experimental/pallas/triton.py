"""JAX's names for kernels of GPUs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.pallas_api.pallas_helpers import load as load
    from shardwise._src.kernels.pallas_api.pallas_helpers import store as store
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_add as atomic_add
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_and as atomic_and
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_max as atomic_max
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_min as atomic_min
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_or as atomic_or
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_xchg as atomic_xchg
    from shardwise._src.kernels.pallas_api.pallas_triton import atomic_xor as atomic_xor
    from shardwise._src.kernels.pallas_api.pallas_triton import debug_barrier as debug_barrier
    from shardwise._src.kernels.pallas_api.pallas_triton import dot as dot
    from shardwise._src.kernels.pallas_api.pallas_triton import (
        elementwise_inline_asm as elementwise_inline_asm,
    )
    from shardwise._src.kernels.pallas_api.pallas_triton import max_contiguous as max_contiguous
    from shardwise._src.kernels.ref_access import atomic_cas as atomic_cas
    from shardwise._src.numpy.unary import tanh as approx_tanh

lazy_names(__name__)
