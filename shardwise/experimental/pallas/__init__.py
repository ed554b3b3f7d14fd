"""Kernels by JAX's names: see docs/kernels.md, and `shardwise.kernels`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.config import pallas_enable_debug_checks as enable_debug_checks
    from shardwise._src.base.config import pallas_poison_buffers as enable_poison_buffers
    from shardwise._src.explain.launches.launch_report import estimate_cost as estimate_cost
    from shardwise._src.export.kernel_text import lower_as_mlir as lower_as_mlir
    from shardwise._src.kernels.blocks import BlockDim as BlockDim
    from shardwise._src.kernels.blocks import Blocked as Blocked
    from shardwise._src.kernels.blocks import BoundedSlice as BoundedSlice
    from shardwise._src.kernels.blocks import Buffered as Buffered
    from shardwise._src.kernels.blocks import Element as Element
    from shardwise._src.kernels.blocks import Indirect as Indirect
    from shardwise._src.kernels.blocks import RevisitMode as RevisitMode
    from shardwise._src.kernels.blocks import Squeezed as Squeezed
    from shardwise._src.kernels.copying.async_copies import DeviceIdType as DeviceIdType
    from shardwise._src.kernels.copying.async_copies import select_ref as select_ref
    from shardwise._src.kernels.copying.async_copies import semaphore_read as semaphore_read
    from shardwise._src.kernels.copying.async_copies import semaphore_signal as semaphore_signal
    from shardwise._src.kernels.copying.async_copies import semaphore_wait as semaphore_wait
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.launch_record import CostEstimate as CostEstimate
    from shardwise._src.kernels.launches import kernel_call as pallas_call_p
    from shardwise._src.kernels.pallas_api.pallas import BlockSpec as BlockSpec
    from shardwise._src.kernels.pallas_api.pallas import GridSpec as GridSpec
    from shardwise._src.kernels.pallas_api.pallas import no_block_spec as no_block_spec
    from shardwise._src.kernels.pallas_api.pallas import pallas_call as pallas_call
    from shardwise._src.kernels.pallas_api.pallas import squeezed as squeezed
    from shardwise._src.kernels.pallas_api.pallas_cores import core_map as core_map
    from shardwise._src.kernels.pallas_api.pallas_cores import get_global as get_global
    from shardwise._src.kernels.pallas_api.pallas_cores import kernel as kernel
    from shardwise._src.kernels.pallas_api.pallas_helpers import align_to as align_to
    from shardwise._src.kernels.pallas_api.pallas_helpers import broadcast_to as broadcast_to
    from shardwise._src.kernels.pallas_api.pallas_helpers import debug_check as debug_check
    from shardwise._src.kernels.pallas_api.pallas_helpers import debug_print as debug_print
    from shardwise._src.kernels.pallas_api.pallas_helpers import delay as delay
    from shardwise._src.kernels.pallas_api.pallas_helpers import empty_like as empty_like
    from shardwise._src.kernels.pallas_api.pallas_helpers import empty_ref_like as empty_ref_like
    from shardwise._src.kernels.pallas_api.pallas_helpers import loop as loop
    from shardwise._src.kernels.pallas_api.pallas_helpers import multiple_of as multiple_of
    from shardwise._src.kernels.pallas_api.pallas_helpers import next_power_of_2 as next_power_of_2
    from shardwise._src.kernels.pallas_api.pallas_helpers import reciprocal as reciprocal
    from shardwise._src.kernels.pallas_api.pallas_helpers import run_scoped as run_scoped
    from shardwise._src.kernels.pallas_api.pallas_helpers import with_scoped as with_scoped
    from shardwise._src.kernels.pallas_api.pallas_tpu import HOST as HOST
    from shardwise._src.kernels.pallas_api.pallas_tpu import MemoryRef as MemoryRef
    from shardwise._src.kernels.pallas_api.pallas_tpu import MemorySpace as MemorySpace
    from shardwise._src.kernels.program_frames import cdiv as cdiv
    from shardwise._src.kernels.program_frames import num_programs as num_programs
    from shardwise._src.kernels.program_frames import program_id as program_id
    from shardwise._src.kernels.program_frames import when as when
    from shardwise._src.kernels.size_arithmetic import row_major_strides as strides_from_shape
    from shardwise._src.kernels.spaces import ANY as ANY
    from shardwise._src.kernels.spaces import semaphore as semaphore
    from shardwise._src.lax.shape_operators import empty as empty
    from shardwise._src.refs.run_state import run_state as run_state
    from shardwise._src.values.dslice import Slice as Slice
    from shardwise._src.values.dslice import ds as ds
    from shardwise._src.values.dslice import dslice as dslice
    from shardwise.experimental.pallas import tpu as tpu
    from shardwise.experimental.pallas import triton as triton

lazy_names(__name__)
