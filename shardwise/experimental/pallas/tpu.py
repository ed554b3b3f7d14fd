"""JAX's names for kernels of TPUs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.explain.launches.tpu_info import ChipVersion as ChipVersion
    from shardwise._src.explain.launches.tpu_info import Tiling as Tiling
    from shardwise._src.explain.launches.tpu_info import TpuInfo as TpuInfo
    from shardwise._src.explain.launches.tpu_info import get_tpu_info as get_tpu_info
    from shardwise._src.explain.launches.tpu_info import (
        get_tpu_info_for_chip as get_tpu_info_for_chip,
    )
    from shardwise._src.explain.launches.tpu_info import is_tpu_device as is_tpu_device
    from shardwise._src.kernels.copying.async_copies import async_copy as async_copy
    from shardwise._src.kernels.copying.async_copies import async_remote_copy as async_remote_copy
    from shardwise._src.kernels.copying.async_copies import (
        get_barrier_semaphore as get_barrier_semaphore,
    )
    from shardwise._src.kernels.copying.async_copies import make_async_copy as make_async_copy
    from shardwise._src.kernels.copying.async_copies import (
        make_async_remote_copy as make_async_remote_copy,
    )
    from shardwise._src.kernels.copying.async_copies import sync_copy as sync_copy
    from shardwise._src.kernels.core_maps import CoreMesh as TensorCoreMesh
    from shardwise._src.kernels.core_maps import CoreType as CoreType
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.launch_record import LoweringException as LoweringException
    from shardwise._src.kernels.pallas_api.interpret_params import (
        InterpretParams as InterpretParams,
    )
    from shardwise._src.kernels.pallas_api.interpret_params import (
        force_tpu_interpret_mode as force_tpu_interpret_mode,
    )
    from shardwise._src.kernels.pallas_api.interpret_params import (
        reset_tpu_interpret_mode_state as reset_tpu_interpret_mode_state,
    )
    from shardwise._src.kernels.pallas_api.interpret_params import (
        set_tpu_interpret_mode as set_tpu_interpret_mode,
    )
    from shardwise._src.kernels.pallas_api.kernel_random import prng_random_bits as prng_random_bits
    from shardwise._src.kernels.pallas_api.kernel_random import prng_seed as prng_seed
    from shardwise._src.kernels.pallas_api.kernel_random import (
        stateful_bernoulli as stateful_bernoulli,
    )
    from shardwise._src.kernels.pallas_api.kernel_random import stateful_bits as stateful_bits
    from shardwise._src.kernels.pallas_api.kernel_random import stateful_normal as stateful_normal
    from shardwise._src.kernels.pallas_api.kernel_random import stateful_uniform as stateful_uniform
    from shardwise._src.kernels.pallas_api.kernel_random import to_pallas_key as to_pallas_key
    from shardwise._src.kernels.pallas_api.pallas import (
        PrefetchScalarGridSpec as PrefetchScalarGridSpec,
    )
    from shardwise._src.kernels.pallas_api.pallas_arrays import einshape as einshape
    from shardwise._src.kernels.pallas_api.pallas_arrays import sample_block as sample_block
    from shardwise._src.kernels.pallas_api.pallas_cores import core_barrier as core_barrier
    from shardwise._src.kernels.pallas_api.pallas_cores import (
        create_tensorcore_mesh as create_tensorcore_mesh,
    )
    from shardwise._src.kernels.pallas_api.pallas_cores import emit_pipeline as emit_pipeline
    from shardwise._src.kernels.pallas_api.pallas_cores import (
        run_on_first_core as run_on_first_core,
    )
    from shardwise._src.kernels.pallas_api.pallas_helpers import load as load
    from shardwise._src.kernels.pallas_api.pallas_helpers import store as store
    from shardwise._src.kernels.pallas_api.pallas_tpu import ARBITRARY as ARBITRARY
    from shardwise._src.kernels.pallas_api.pallas_tpu import CORE_PARALLEL as CORE_PARALLEL
    from shardwise._src.kernels.pallas_api.pallas_tpu import PARALLEL as PARALLEL
    from shardwise._src.kernels.pallas_api.pallas_tpu import SUBCORE_PARALLEL as SUBCORE_PARALLEL
    from shardwise._src.kernels.pallas_api.pallas_tpu import (
        GridDimensionSemantics as GridDimensionSemantics,
    )
    from shardwise._src.kernels.pallas_api.pallas_tpu import MemorySpace as MemorySpace
    from shardwise._src.kernels.pallas_api.pallas_tpu import SideEffectType as SideEffectType
    from shardwise._src.kernels.pallas_api.pallas_tpu import bitcast as bitcast
    from shardwise._src.kernels.pallas_api.pallas_tpu import pack_elementwise as pack_elementwise
    from shardwise._src.kernels.pallas_api.pallas_tpu import roll as roll
    from shardwise._src.kernels.pallas_api.pallas_tpu import touch as touch
    from shardwise._src.kernels.pallas_api.pallas_tpu import trace_value as trace_value
    from shardwise._src.kernels.pallas_api.pallas_tpu import (
        unpack_elementwise as unpack_elementwise,
    )
    from shardwise._src.kernels.pallas_api.pallas_tpu import (
        with_memory_space_constraint as with_memory_space_constraint,
    )
    from shardwise._src.kernels.spaces import ANY as ANY
    from shardwise._src.kernels.spaces import CMEM as CMEM
    from shardwise._src.kernels.spaces import HBM as HBM
    from shardwise._src.kernels.spaces import SEMAPHORE as SEMAPHORE
    from shardwise._src.kernels.spaces import SMEM as SMEM
    from shardwise._src.kernels.spaces import VMEM as VMEM
    from shardwise._src.kernels.spaces import VMEM_SHARED as VMEM_SHARED
    from shardwise._src.kernels.spaces import SemaphoreType as SemaphoreType
    from shardwise._src.kernels.spaces import dma_semaphore as dma_semaphore
    from shardwise._src.kernels.stochastic_rounding import stochastic_round as stochastic_round

lazy_names(__name__)
