"""Names that JAX has under `experimental`, for programs that import them from there."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.functions_of_2024 import disable_x64 as disable_x64
    from shardwise._src.compat.functions_of_2024 import enable_x64 as enable_x64
    from shardwise._src.debug.host_callbacks import io_callback as io_callback
    from shardwise.experimental import array_serialization as array_serialization
    from shardwise.experimental import buffer_callback as buffer_callback
    from shardwise.experimental import checkify as checkify
    from shardwise.experimental import compilation_cache as compilation_cache
    from shardwise.experimental import compute_on as compute_on
    from shardwise.experimental import control_deps as control_deps
    from shardwise.experimental import custom_partitioning as custom_partitioning
    from shardwise.experimental import global_device_array as global_device_array
    from shardwise.experimental import jet as jet
    from shardwise.experimental import key_reuse as key_reuse
    from shardwise.experimental import layout as layout
    from shardwise.experimental import maps as maps
    from shardwise.experimental import mesh_utils as mesh_utils
    from shardwise.experimental import multihost_utils as multihost_utils
    from shardwise.experimental import ode as ode
    from shardwise.experimental import pallas as pallas
    from shardwise.experimental import pjit as pjit
    from shardwise.experimental import profiler as profiler
    from shardwise.experimental import random as random
    from shardwise.experimental import rnn as rnn
    from shardwise.experimental import roofline as roofline
    from shardwise.experimental import scheduling_groups as scheduling_groups
    from shardwise.experimental import serialize_executable as serialize_executable
    from shardwise.experimental import shard_alike as shard_alike
    from shardwise.experimental import shard_map as shard_map
    from shardwise.experimental import sparse as sparse
    from shardwise.experimental import state as state
    from shardwise.experimental import topologies as topologies
    from shardwise.experimental import xla_metadata as xla_metadata

lazy_names(__name__)
