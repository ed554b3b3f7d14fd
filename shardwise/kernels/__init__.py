"""Kernels: functions over blocks of arrays, launched over a grid: see docs/kernels.md."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.explain.launches.launch_report import LaunchReport as LaunchReport
    from shardwise._src.explain.launches.launch_report import LaunchReports as LaunchReports
    from shardwise._src.explain.launches.launch_report import estimate_cost as estimate_cost
    from shardwise._src.explain.launches.launch_report import report as report
    from shardwise._src.explain.launches.tuning import Candidate as Candidate
    from shardwise._src.explain.launches.tuning import Tuned as Tuned
    from shardwise._src.explain.launches.tuning import Tuning as Tuning
    from shardwise._src.explain.launches.tuning import rank as rank
    from shardwise._src.explain.launches.tuning import tune as tune
    from shardwise._src.kernels.blocks import Block as Block
    from shardwise._src.kernels.blocks import Blocked as Blocked
    from shardwise._src.kernels.blocks import BoundedSlice as BoundedSlice
    from shardwise._src.kernels.blocks import Element as Element
    from shardwise._src.kernels.blocks import Squeezed as Squeezed
    from shardwise._src.kernels.checking.checked_functions import checked as checked
    from shardwise._src.kernels.copying.async_copies import AsyncCopy as AsyncCopy
    from shardwise._src.kernels.copying.async_copies import DeviceIdType as DeviceIdType
    from shardwise._src.kernels.copying.async_copies import async_copy as async_copy
    from shardwise._src.kernels.copying.async_copies import async_remote_copy as async_remote_copy
    from shardwise._src.kernels.copying.async_copies import (
        get_barrier_semaphore as get_barrier_semaphore,
    )
    from shardwise._src.kernels.copying.async_copies import make_async_copy as make_async_copy
    from shardwise._src.kernels.copying.async_copies import (
        make_async_remote_copy as make_async_remote_copy,
    )
    from shardwise._src.kernels.copying.async_copies import semaphore_read as semaphore_read
    from shardwise._src.kernels.copying.async_copies import semaphore_signal as semaphore_signal
    from shardwise._src.kernels.copying.async_copies import semaphore_wait as semaphore_wait
    from shardwise._src.kernels.copying.async_copies import sync_copy as sync_copy
    from shardwise._src.kernels.copying.pipelines import emit_pipeline as emit_pipeline
    from shardwise._src.kernels.core_maps import CoreMesh as CoreMesh
    from shardwise._src.kernels.core_maps import core_map as core_map
    from shardwise._src.kernels.launch_record import CompilerParams as CompilerParams
    from shardwise._src.kernels.launch_record import CostEstimate as CostEstimate
    from shardwise._src.kernels.launch_work import OperandWork as OperandWork
    from shardwise._src.kernels.launching import call as call
    from shardwise._src.kernels.program_frames import cdiv as cdiv
    from shardwise._src.kernels.program_frames import num_programs as num_programs
    from shardwise._src.kernels.program_frames import program_id as program_id
    from shardwise._src.kernels.program_frames import when as when
    from shardwise._src.kernels.ref_access import atomic_add as atomic_add
    from shardwise._src.kernels.ref_access import atomic_and as atomic_and
    from shardwise._src.kernels.ref_access import atomic_cas as atomic_cas
    from shardwise._src.kernels.ref_access import atomic_max as atomic_max
    from shardwise._src.kernels.ref_access import atomic_min as atomic_min
    from shardwise._src.kernels.ref_access import atomic_or as atomic_or
    from shardwise._src.kernels.ref_access import atomic_xchg as atomic_xchg
    from shardwise._src.kernels.ref_access import atomic_xor as atomic_xor
    from shardwise._src.kernels.ref_access import load as load
    from shardwise._src.kernels.ref_access import store as store
    from shardwise._src.kernels.ref_access import swap as swap
    from shardwise._src.kernels.simulation import Simulation as Simulation
    from shardwise._src.kernels.spaces import ANY as ANY
    from shardwise._src.kernels.spaces import HBM as HBM
    from shardwise._src.kernels.spaces import SMEM as SMEM
    from shardwise._src.kernels.spaces import VMEM as VMEM
    from shardwise._src.kernels.spaces import SemaphoreType as SemaphoreType
    from shardwise._src.kernels.spaces import run_scoped as run_scoped
    from shardwise._src.values.dslice import Slice as Slice
    from shardwise._src.values.dslice import ds as ds
    from shardwise.kernels import library as library

lazy_names(__name__)
