"""JAX's names for kernels of TPUs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.kernels.async_copies import async_copy as async_copy
    from shardwise._src.kernels.async_copies import async_remote_copy as async_remote_copy
    from shardwise._src.kernels.async_copies import get_barrier_semaphore as get_barrier_semaphore
    from shardwise._src.kernels.async_copies import make_async_copy as make_async_copy
    from shardwise._src.kernels.async_copies import make_async_remote_copy as make_async_remote_copy
    from shardwise._src.kernels.async_copies import sync_copy as sync_copy
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.pallas import PrefetchScalarGridSpec as PrefetchScalarGridSpec
    from shardwise._src.kernels.pipelines import emit_pipeline as emit_pipeline
    from shardwise._src.kernels.spaces import HBM as HBM
    from shardwise._src.kernels.spaces import SMEM as SMEM
    from shardwise._src.kernels.spaces import VMEM as VMEM
    from shardwise._src.kernels.spaces import SemaphoreType as SemaphoreType

lazy_names(__name__)
