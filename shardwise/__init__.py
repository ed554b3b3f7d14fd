"""shardwise: NumPy-style programs over global, sharded arrays."""

import os
from typing import TYPE_CHECKING

from shardwise._src.base.interrupts import import_module as _import_module
from shardwise._src.base.lazy import lazy_names
from shardwise._version import __version__ as __version__
from shardwise._version import __version_info__ as __version_info__

if "SHARDWISE_COORDINATOR_ADDRESS" in os.environ:
    _import_module("shardwise._src.distributed.launched")

if TYPE_CHECKING:
    from shardwise import ad as ad
    from shardwise import ad_checkpoint as ad_checkpoint
    from shardwise import api_util as api_util
    from shardwise import checkpoint_policies as checkpoint_policies
    from shardwise import checkpoints as checkpoints
    from shardwise import compat as compat
    from shardwise import core as core
    from shardwise import custom_batching as custom_batching
    from shardwise import custom_derivatives as custom_derivatives
    from shardwise import debug as debug
    from shardwise import distributed as distributed
    from shardwise import dlpack as dlpack
    from shardwise import dtypes as dtypes
    from shardwise import errors as errors
    from shardwise import example_libraries as example_libraries
    from shardwise import experimental as experimental
    from shardwise import export as export
    from shardwise import extend as extend
    from shardwise import ffi as ffi
    from shardwise import flatten_util as flatten_util
    from shardwise import image as image
    from shardwise import interpreters as interpreters
    from shardwise import kernels as kernels
    from shardwise import lax as lax
    from shardwise import lib as lib
    from shardwise import memory as memory
    from shardwise import monitoring as monitoring
    from shardwise import named as named
    from shardwise import nn as nn
    from shardwise import numpy as numpy
    from shardwise import ops as ops
    from shardwise import prng as prng
    from shardwise import profiler as profiler
    from shardwise import random as random
    from shardwise import ref as ref
    from shardwise import scipy as scipy
    from shardwise import sharding as sharding
    from shardwise import stages as stages
    from shardwise import targets as targets
    from shardwise import test_util as test_util
    from shardwise import testing as testing
    from shardwise import tree as tree
    from shardwise import tree_util as tree_util
    from shardwise import typing as typing
    from shardwise import util as util
    from shardwise import version as version
    from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct as ShapeDtypeStruct
    from shardwise._src.arrays.array import Array as Array
    from shardwise._src.arrays.array import Shard as Shard
    from shardwise._src.autodiff.custom_remat import custom_remat as custom_remat
    from shardwise._src.autodiff.grad import grad as grad
    from shardwise._src.autodiff.grad import jvp as jvp
    from shardwise._src.autodiff.grad import linearize as linearize
    from shardwise._src.autodiff.grad import value_and_grad as value_and_grad
    from shardwise._src.autodiff.grad import vjp as vjp
    from shardwise._src.autodiff.jacobian import hessian as hessian
    from shardwise._src.autodiff.jacobian import jacfwd as jacfwd
    from shardwise._src.autodiff.jacobian import jacobian as jacobian
    from shardwise._src.autodiff.jacobian import jacrev as jacrev
    from shardwise._src.autodiff.jvp_vjp import closure_convert as closure_convert
    from shardwise._src.autodiff.jvp_vjp import custom_gradient as custom_gradient
    from shardwise._src.autodiff.jvp_vjp import fwd_and_bwd as fwd_and_bwd
    from shardwise._src.autodiff.jvp_vjp import linear_transpose as linear_transpose
    from shardwise._src.autodiff.remat import checkpoint as checkpoint
    from shardwise._src.autodiff.remat import remat as remat
    from shardwise._src.base.config import allow_f16_reductions as allow_f16_reductions
    from shardwise._src.base.config import auto_pcast as auto_pcast
    from shardwise._src.base.config import check_tracer_leaks as check_tracer_leaks
    from shardwise._src.base.config import checking_leaks as checking_leaks
    from shardwise._src.base.config import config as config
    from shardwise._src.base.config import debug_infs as debug_infs
    from shardwise._src.base.config import debug_key_reuse as debug_key_reuse
    from shardwise._src.base.config import debug_nans as debug_nans
    from shardwise._src.base.config import default_device as default_device
    from shardwise._src.base.config import default_matmul_precision as default_matmul_precision
    from shardwise._src.base.config import default_prng_impl as default_prng_impl
    from shardwise._src.base.config import enable_checks as enable_checks
    from shardwise._src.base.config import enable_custom_prng as enable_custom_prng
    from shardwise._src.base.config import enable_x64 as enable_x64
    from shardwise._src.base.config import explain_cache_misses as explain_cache_misses
    from shardwise._src.base.config import (
        jax2tf_associative_scan_reductions as jax2tf_associative_scan_reductions,
    )
    from shardwise._src.base.config import legacy_prng_key as legacy_prng_key
    from shardwise._src.base.config import log_compiles as log_compiles
    from shardwise._src.base.config import no_execution as no_execution
    from shardwise._src.base.config import no_tracing as no_tracing
    from shardwise._src.base.config import numpy_dtype_promotion as numpy_dtype_promotion
    from shardwise._src.base.config import numpy_rank_promotion as numpy_rank_promotion
    from shardwise._src.base.config import (
        remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type,
    )
    from shardwise._src.base.config import softmax_custom_jvp as softmax_custom_jvp
    from shardwise._src.base.config import thread_guard as thread_guard
    from shardwise._src.base.config import threefry_partitionable as threefry_partitionable
    from shardwise._src.base.flags import make_user_context as make_user_context
    from shardwise._src.compat.functions_of_2024 import xla_computation as xla_computation
    from shardwise._src.custom.custom_jvp import custom_jvp as custom_jvp
    from shardwise._src.custom.custom_vjp import custom_vjp as custom_vjp
    from shardwise._src.debug.clear_caches import clear_caches as clear_caches
    from shardwise._src.debug.environment_info import (
        print_environment_info as print_environment_info,
    )
    from shardwise._src.debug.host_callbacks import effects_barrier as effects_barrier
    from shardwise._src.debug.host_callbacks import pure_callback as pure_callback
    from shardwise._src.debug.name_scopes import named_call as named_call
    from shardwise._src.debug.name_scopes import named_scope as named_scope
    from shardwise._src.jit.eval_shape import ensure_compile_time_eval as ensure_compile_time_eval
    from shardwise._src.jit.eval_shape import eval_shape as eval_shape
    from shardwise._src.jit.eval_shape import make_jaxpr as make_jaxpr
    from shardwise._src.jit.jit import disable_jit as disable_jit
    from shardwise._src.jit.jit import jit as jit
    from shardwise._src.jit.options import Inline as Inline
    from shardwise._src.maps.pmap import pmap as pmap
    from shardwise._src.maps.shard_map import shard_map as shard_map
    from shardwise._src.maps.smap import smap as smap
    from shardwise._src.maps.vmap import vmap as vmap
    from shardwise._src.placement.array_creation import (
        device_put_replicated as device_put_replicated,
    )
    from shardwise._src.placement.array_creation import device_put_sharded as device_put_sharded
    from shardwise._src.placement.array_creation import (
        make_array_from_batched_callback as make_array_from_batched_callback,
    )
    from shardwise._src.placement.array_creation import (
        make_array_from_batched_callback_with_devices as make_array_from_batched_callback_with_devices,
    )
    from shardwise._src.placement.array_creation import (
        make_array_from_callback as make_array_from_callback,
    )
    from shardwise._src.placement.array_creation import (
        make_array_from_process_local_data as make_array_from_process_local_data,
    )
    from shardwise._src.placement.array_creation import (
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from shardwise._src.placement.device_put import block_until_ready as block_until_ready
    from shardwise._src.placement.device_put import copy_to_host_async as copy_to_host_async
    from shardwise._src.placement.device_put import default_backend as default_backend
    from shardwise._src.placement.device_put import device_count as device_count
    from shardwise._src.placement.device_put import device_get as device_get
    from shardwise._src.placement.device_put import device_put as device_put
    from shardwise._src.placement.device_put import devices as devices
    from shardwise._src.placement.device_put import local_device_count as local_device_count
    from shardwise._src.placement.device_put import local_devices as local_devices
    from shardwise._src.placement.device_put import make_mesh as make_mesh
    from shardwise._src.placement.device_put import process_count as host_count
    from shardwise._src.placement.device_put import process_count as process_count
    from shardwise._src.placement.device_put import process_index as host_id
    from shardwise._src.placement.device_put import process_index as process_index
    from shardwise._src.placement.device_put import process_indices as host_ids
    from shardwise._src.placement.device_put import process_indices as process_indices
    from shardwise._src.placement.device_put import (
        with_sharding_constraint as with_sharding_constraint,
    )
    from shardwise._src.placement.explicit_axes import reshard as reshard
    from shardwise._src.placement.explicit_axes import set_mesh as set_mesh
    from shardwise._src.placement.live_arrays import live_arrays as live_arrays
    from shardwise._src.planner.callable_module import explain as explain
    from shardwise._src.planner.transfer_plan import plan as plan
    from shardwise._src.refs.ref_functions import typeof as typeof
    from shardwise._src.refs.refs import Ref as Ref
    from shardwise._src.refs.refs import empty_ref as empty_ref
    from shardwise._src.refs.refs import free_ref as free_ref
    from shardwise._src.refs.refs import freeze as freeze
    from shardwise._src.refs.refs import new_ref as new_ref
    from shardwise._src.runtime.backend import Device as Device
    from shardwise._src.runtime.guards import (
        array_garbage_collection_guard as array_garbage_collection_guard,
    )
    from shardwise._src.runtime.guards import transfer_guard as transfer_guard
    from shardwise._src.runtime.guards import (
        transfer_guard_device_to_device as transfer_guard_device_to_device,
    )
    from shardwise._src.runtime.guards import (
        transfer_guard_device_to_host as transfer_guard_device_to_host,
    )
    from shardwise._src.runtime.guards import (
        transfer_guard_host_to_device as transfer_guard_host_to_device,
    )
    from shardwise._src.tree.registration import tree_flatten as tree_flatten
    from shardwise._src.tree.registration import tree_leaves as tree_leaves
    from shardwise._src.tree.registration import tree_map as tree_map
    from shardwise._src.tree.registration import tree_structure as tree_structure
    from shardwise._src.tree.registration import tree_transpose as tree_transpose
    from shardwise._src.tree.registration import tree_unflatten as tree_unflatten
    from shardwise._src.tree.registration import treedef_is_leaf as treedef_is_leaf
    from shardwise._src.types.array_type import ArrayType as ShapedArray
    from shardwise._src.types.dtypes import float0 as float0
    from shardwise._src.types.partition_spec import P as P
    from shardwise._src.types.sharding import NamedSharding as NamedSharding
    from shardwise._src.values.dslice import ds as ds

lazy_names(__name__)
