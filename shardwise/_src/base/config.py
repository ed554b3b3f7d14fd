"""Configuration flags: one object each, with name, default, environment variable and scope.

    enable_x64.value                 # the current value
    with enable_x64(True): ...       # for this thread, in this block
    config.update("enable_x64", True)    # everywhere; also "jax_enable_x64"

A flag is read from `SHARDWISE_NAME`, else from `JAX_NAME`, when shardwise is imported. Programs
that use absl can set it on the command line: see `base.command_line`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from shardwise._src.base import command_line
from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.flags import FLAGS, Flag, GuardFlag, ThreadFlag, parse_bool
from shardwise._src.base.lazy import public
from shardwise._src.base.warn import warn

_log = logging.getLogger("shardwise.config")


enable_x64 = Flag(
    "enable_x64", False, "Keep 64-bit types instead of narrowing them to 32 bits.",
    parse=parse_bool, trace=True,
)
default_matmul_precision = Flag(
    "default_matmul_precision", None,
    "Precision of matrix products on devices that have several: default, high or highest.",
    choices=(None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32"),
    trace=True,
)
numpy_rank_promotion = Flag(
    "numpy_rank_promotion", "allow",
    "What to do when broadcasting adds dimensions: allow, warn or raise.",
    choices=("allow", "warn", "raise"), trace=True,
)
numpy_dtype_promotion = Flag(
    "numpy_dtype_promotion", "standard",
    "standard, or strict: mixing dtypes is an error.",
    choices=("standard", "strict"), trace=True,
)
num_cpu_devices = Flag(
    "num_cpu_devices", -1,
    "How many virtual CPU devices to make; -1 means one, or what XLA_FLAGS says.", parse=int,
)
platforms = Flag(
    "platforms", None, "Comma-separated platforms, e.g. 'cuda,cpu'; the first is the default one.",
    parse=str,
)
default_device = Flag(
    "default_device", None, "Where uncommitted values go; None means the first device.", trace=True
)
check_tracer_leaks = Flag(
    "check_tracer_leaks", False,
    "Raise where a traced value is still referenced when its function has ended.",
    parse=parse_bool, trace=True,
)
checking_leaks = check_tracer_leaks  # the name for `with`
disallow_mesh_context_manager = Flag(
    "disallow_mesh_context_manager", False,
    "`with mesh:` is an error, where `with set_mesh(mesh):` is meant to be the only way.",
    parse=parse_bool,
)
disable_jit = Flag(
    "disable_jit", False, "Run jitted functions op by op, for debugging.",
    parse=parse_bool, trace=True,
)
eager_pmap = Flag(
    "eager_pmap", True, "Under `disable_jit`, functions of `pmap` run op by op, too.",
    parse=parse_bool, trace=True,
)
debug_nans = Flag(
    "debug_nans", False, "Check results for NaN, and find the op that gave one; for debugging.",
    parse=parse_bool, trace=True,
)
debug_infs = Flag(
    "debug_infs", False, "Check results for infinities as for NaN; for debugging.",
    parse=parse_bool, trace=True,
)
debug_key_reuse = Flag(
    "debug_key_reuse", False, "Find keys of random numbers that are used twice; for debugging.",
    parse=parse_bool, trace=True,
)
traceback_filtering = Flag(
    "traceback_filtering", "auto",
    "off: errors that pass through a transform show the frames of the library, too.",
    choices=("auto", "off", "remove_frames", "quiet_remove_frames", "tracebackhide"),
)
log_compiles = Flag(
    "log_compiles", False, "Log each trace and compilation with its time.", parse=parse_bool
)
compare_programs = Flag(
    "compare_programs", True,
    "Compare programs over several processes before their first launch.", parse=parse_bool,
)
wait_report_secs = Flag(
    "wait_report_secs", 30.0,
    "Seconds of waiting for other processes after which it is said for whom, with their stacks. "
    "Set before they join.",
    parse=float,
)
wait_timeout_secs = Flag(
    "wait_timeout_secs", 600.0,
    "Seconds of waiting for processes that have not come, after which it fails. Set before they "
    "join.",
    parse=float,
)
store_timeout_secs = Flag(
    "store_timeout_secs", 30.0,
    "Seconds in which a store of objects (s3://, gs://) has to answer a request for a checkpoint; "
    "large objects have more.",
    parse=float,
)
thread_guard = ThreadFlag(
    "thread_guard", False,
    "Programs over several processes are launched by the thread that sets this, and no other.",
    parse=parse_bool,
)
_GUARDED = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
transfer_guard_host_to_device = GuardFlag(
    "transfer_guard_host_to_device", "allow",
    "What happens where values of the host are brought to devices: implicitly, or at all.",
    choices=_GUARDED,
)
transfer_guard_device_to_device = GuardFlag(
    "transfer_guard_device_to_device", "allow",
    "What happens where values are copied between devices.", choices=_GUARDED,
)
transfer_guard_device_to_host = GuardFlag(
    "transfer_guard_device_to_host", "allow",
    "What happens where values are copied to the host; on CPU, nothing is.", choices=_GUARDED,
)
transfer_guard = GuardFlag(
    "transfer_guard", "allow", "All three of them at once.", choices=_GUARDED
)
transfer_guard.parts = (
    transfer_guard_host_to_device, transfer_guard_device_to_device, transfer_guard_device_to_host,
)
array_garbage_collection_guard = GuardFlag(
    "array_garbage_collection_guard", "allow",
    "What happens to arrays in reference cycles, whose memory waits for Python's collector.",
    choices=("allow", "log", "fatal"),
)
enable_checks = Flag(
    "enable_checks", False, "Check each program that is staged, to find errors of the library.",
    parse=parse_bool, trace=True,
)
no_tracing = Flag(
    "no_tracing", False, "Tracing a function for `jit` is an error.", parse=parse_bool
)
no_execution = Flag(
    "no_execution", False, "Running a program is an error.", parse=parse_bool, trace=True
)
flight_recorder_size = Flag(
    "flight_recorder_size", 1000,
    "How many launches, meetings and waits over several processes are remembered.", parse=int,
)
flight_recorder_dir = Flag(
    "flight_recorder_dir", None,
    "Where they are written to when a process fails; None means the folder of temporary files.",
    parse=str,
)
cpu_collectives_implementation = Flag(
    "cpu_collectives_implementation", "gloo",
    "What connects CPU devices of several processes: gloo or mpi.", choices=("gloo", "mpi"),
)
mtls_cert_file = Flag[Any](
    "mtls_cert_file", None, "`initialize`: the certificate of this process, a PEM file.", parse=str
)
mtls_key_file = Flag[Any](
    "mtls_key_file", None, "`initialize`: the key of that certificate, a PEM file.", parse=str
)
mtls_ca_file = Flag[Any](
    "mtls_ca_file", None, "`initialize`: the authority that certificates of all processes are of.",
    parse=str,
)
mtls_peer_uri_prefix = Flag[Any](
    "mtls_peer_uri_prefix", None,
    "`initialize`: what a URI in the certificates of peers begins with.", parse=str,
)
distributed_verify_secure_credentials = Flag(
    "distributed_verify_secure_credentials", False,
    "`initialize` refuses to join other processes without TLS.", parse=parse_bool,
)
threefry_partitionable = Flag(
    "threefry_partitionable", True,
    "Generate random bits so that they can be sharded without communication.",
    parse=parse_bool, trace=True,
)
default_prng_impl = Flag(
    "default_prng_impl", "threefry2x32",
    "The generator of keys that are made without one, and of all raw keys.",
    choices=("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg"),
    trace=True,
)
enable_custom_prng = Flag(
    "enable_custom_prng", False,
    "`shardwise.random.PRNGKey` makes typed keys, and raw ones are warned of.",
    parse=parse_bool, trace=True,
)
legacy_prng_key = Flag(
    "legacy_prng_key", "allow", "What happens where a raw key is passed to `random`.",
    choices=("allow", "warn", "error"),
)
random_seed_offset = Flag(
    "random_seed_offset", 0, "What is added to every seed of `shardwise.random.key`.",
    parse=int, trace=True,
)


def _fixed(name: str, value: bool, doc: str) -> Flag[bool]:
    """A JAX flag for behaviour that is fixed here: it accepts only that value."""
    flag = Flag(name, value, doc, parse=parse_bool)

    def reject(wanted: bool) -> None:
        if wanted != value:
            raise NotImplementedError(f"{name} is always {value} here. {doc}")

    flag.guard = reject
    return flag


allow_f16_reductions = _fixed(
    "allow_f16_reductions", True, "Always on: sums of float16 and bfloat16 are no errors."
)
auto_pcast = _fixed(
    "auto_pcast", True,
    "Always on: operands of an op inside of `shard_map` are made to vary along the same axes.",
)
jax2tf_associative_scan_reductions = _fixed(
    "jax2tf_associative_scan_reductions", False, "Always off: programs are not for TensorFlow."
)
remove_size_one_mesh_axis_from_type = _fixed(
    "remove_size_one_mesh_axis_from_type", False,
    "Always off: types name every mesh axis that splits a dimension, also one of size 1.",
)
softmax_custom_jvp = _fixed(
    "softmax_custom_jvp", False,
    "Always off: `shardwise.nn.softmax` has the derivatives of the exponentials that it is of.",
)

divided_matrix_min_size_bytes = Flag(
    "divided_matrix_min_size_bytes", 2**24,
    "Linear algebra of one matrix that is divided over devices gathers smaller ones: its programs "
    "for parts take long to compile, and wait for each other.",
    parse=int, trace=True,
)
poison_padding = Flag(
    "poison_padding", False,
    "Fill the padding of uneven shards with NaN, or the largest integer, to show it is unused.",
    parse=parse_bool, trace=True,
)

check_replicas = Flag(
    "check_replicas", False,
    "Compare what processes put where they hold the same part of an array, and values of hosts "
    "that their programs take; for debugging.",
    parse=parse_bool,
)


# Compiled programs are cached on disk: see `compiling.disk_cache`.

enable_compilation_cache = Flag(
    "enable_compilation_cache", True, "Keep compiled programs on disk for other processes.",
    parse=parse_bool,
)
compilation_cache_dir = Flag[Any](
    "compilation_cache_dir", None,
    "The folder for them; None means `shardwise` in the user's cache directory.", parse=str,
)
compilation_cache_max_size = Flag(
    "compilation_cache_max_size", 2 << 30, "Bytes that they may take; -1 for no limit.", parse=int
)
persistent_cache_min_compile_time_secs = Flag(
    "persistent_cache_min_compile_time_secs", 0.05,
    "Programs that compile faster are not kept on disk.", parse=float,
)
persistent_cache_min_entry_size_bytes = Flag(
    "persistent_cache_min_entry_size_bytes", 0, "Smaller programs are not kept on disk.", parse=int
)
explain_cache_misses = Flag(
    "explain_cache_misses", False,
    "Log why a call of a jitted function finds no compiled program.", parse=parse_bool,
)

show_progress = Flag(
    "show_progress", True,
    "Say on a terminal how far what takes over two seconds is: compilations, copies, checkpoints.",
    parse=parse_bool,
)


def _check_folder(value: Any) -> None:
    if value is not None and "://" in value:
        raise ValueError(
            f"compilation_cache_dir must be a folder of this machine; got {value!r}. Mount remote "
            "storage, or copy the folder."
        )


compilation_cache_dir.guard = _check_folder

# Obsolete flags: name → the fixed value, and why it cannot be changed.
HISTORIC: dict[str, tuple[Any, str]] = {
    "array": (True, "there is one type of array"),
    "parallel_functions_output_gda": (False, "there is one type of array"),
    "jit_pjit_api_merge": (True, "jit and pjit are one function"),
    "pmap_shmap_merge": (True, "all maps are one mechanism"),
    "experimental_xmap_spmd_lowering": (True, "all maps are one mechanism"),
    "experimental_xmap_spmd_lowering_manual": (True, "all maps are one mechanism"),
    "experimental_xmap_ensure_fixed_sharding": (False, "all maps are one mechanism"),
    "spmd_mode": ("allow_all", "programs may always span processes"),
    "cpp_jit": (True, "calls have one path"),
    "cpp_pjit": (True, "calls have one path"),
    "cpp_pmap": (True, "calls have one path"),
    "omnistaging": (True, "everything under jit is staged"),
    "enable_mlir": (True, "programs are lowered to StableHLO"),
    "use_shardy_partitioner": (True, "Shardy partitions all programs"),
    "dynamic_shapes": (False, "shapes are static"),
    "enable_custom_prng": (True, "`shardwise.random.key` makes typed keys, "
    "`shardwise.random.PRNGKey` plain ones"),
    "use_direct_linearize": (True, "there is one way to linearize"),
    "raise_persistent_cache_errors": (False, "what fails on disk is logged"),
    "persistent_cache_enable_xla_caches": ("none", "XLA's own caches are not used"),
}


@public("shardwise")
class Config:
    """`shardwise.config`: reads flags as attributes, changes them with `update`."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def __reduce__(self) -> str:
        return "config"

    def update(self, name: str, value: Any) -> None:
        """Sets a flag for the whole process.

        Args:
          name: the name of the flag, with or without the prefix `jax_`.
          value: of the flag's type, or a string as in an environment variable.

        Raises:
          AttributeError: the name is unknown.
          TypeError, ValueError: the value is invalid for the flag.
        """
        bare = name.removeprefix("jax_")
        if bare in HISTORIC:
            self._note(bare, value)
            return
        flag = _find(name)
        flag.set(flag.parsed(value) if isinstance(value, str) else value)

    def _note(self, name: str, value: Any) -> None:
        if name not in self._noted:
            self._noted.add(name)
            held, why = HISTORIC[name]
            _log.warning("%s=%r has no effect: it is always %r, as %s.", name, value, held, why)

    def read(self, name: str) -> Any:
        bare = name.removeprefix("jax_")
        return HISTORIC[bare][0] if bare in HISTORIC else _find(name).value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by Python itself: no advice needed
            raise AttributeError(name)
        return self.read(name)

    @property
    def values(self) -> dict[str, Any]:
        """The current values of all flags, by name."""
        return {name: flag.value for name, flag in FLAGS.items()}

    def config_with_absl(self) -> None:
        """Defines `--shardwise_NAME` and `--jax_NAME` for absl; parsed values then take effect.

        Raises:
          ImportError: absl is not installed.
        """
        command_line.define(FLAGS, self.update)

    def parse_flags_with_absl(self) -> None:
        """Like `config_with_absl`, and parses this program's command line now."""
        command_line.parse(FLAGS, self.update)

    def __dir__(self) -> list[str]:
        return sorted({*FLAGS, *vars(Config)} - {"_note", "__getattr__"})


def _find(name: str) -> Flag[Any]:
    flag = FLAGS.get(name.removeprefix("jax_"))
    if flag is not None:
        return flag
    hint = did_you_mean(name.removeprefix("jax_"), [*FLAGS, *HISTORIC])
    hint = hint or f" Known names: {', '.join(sorted(FLAGS))}."
    raise AttributeError(f"unknown configuration name {name!r}.{hint}")


config = Config()


def mind_unknown_variables() -> None:
    """Warns about environment variables that look like flags, but are not."""
    known = ["SHARDWISE_" + name.upper() for name in (*FLAGS, *HISTORIC)]
    for variable in sorted(os.environ):
        if variable.startswith("SHARDWISE_") and variable not in (*known, *_OF_TOOLS):
            warn(
                f"the environment variable {variable} has no effect: there is no such flag."
                f"{did_you_mean(variable, known, 0.8)}"
            )


_OF_TOOLS = (
    "SHARDWISE_UPDATE_GOLDENS",  # of the tests
    # of `shardwise launch`
    "SHARDWISE_BOARD", "SHARDWISE_COORDINATOR_ADDRESS", "SHARDWISE_COORDINATOR_STARTED",
    "SHARDWISE_GENERATION",
    "SHARDWISE_INITIALIZATION_TIMEOUT", "SHARDWISE_LAUNCH", "SHARDWISE_LOCAL_DEVICE_IDS",
    "SHARDWISE_LOCAL_PROCESS_ID", "SHARDWISE_NUM_PROCESSES", "SHARDWISE_PROCESS_ID",
)
mind_unknown_variables()
