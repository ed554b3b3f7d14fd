"""JAX's names for kernels of TPUs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.pallas import PrefetchScalarGridSpec as PrefetchScalarGridSpec
    from shardwise._src.kernels.spaces import HBM as HBM
    from shardwise._src.kernels.spaces import SMEM as SMEM
    from shardwise._src.kernels.spaces import VMEM as VMEM

lazy_names(__name__)
