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
from shardwise._src.base.flags import (
    FLAGS,
    OLD_NAMES,
    Flag,
    GuardFlag,
    ThreadFlag,
    warn_of_old_name,
)
from shardwise._src.base.lazy import public
from shardwise._src.base.warn import warn

_log = logging.getLogger("shardwise.config")


enable_x64 = Flag(
    "enable_x64", False, "Keep 64-bit types instead of narrowing them to 32 bits.", trace=True
)
explicit_x64_dtypes = Flag(
    "explicit_x64_dtypes",
    "warn",
    "What to do when a 64-bit dtype is requested while enable_x64 is off: warn, and narrow it to "
    "32 bits; error; allow, which keeps it for the values that request it.",
    choices=("warn", "error", "allow"),
    trace=True,
)
default_matmul_precision = Flag(
    "default_matmul_precision",
    None,
    "Precision of matrix products on devices that have several: default, high or highest; or the "
    "name of a `lax.DotAlgorithmPreset`.",
    choices=(
        None,
        *"""
        default high highest bfloat16 tensorfloat32 float32 ANY_F8_ANY_F8_F32
        ANY_F8_ANY_F8_F32_FAST_ACCUM ANY_F8_ANY_F8_ANY ANY_F8_ANY_F8_ANY_FAST_ACCUM F16_F16_F16
        F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6
        BF16_BF16_F32_X9 TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 F64_F64_F64
    """.split(),
    ),
    trace=True,
)
numpy_rank_promotion = Flag(
    "numpy_rank_promotion",
    "allow",
    "What to do when broadcasting increases the rank of an array: allow, warn or raise.",
    choices=("allow", "warn", "raise"),
    trace=True,
)
numpy_dtype_promotion = Flag(
    "numpy_dtype_promotion",
    "standard",
    "standard, or strict: mixing dtypes is an error.",
    choices=("standard", "strict"),
    trace=True,
)
check_static_indices = Flag(
    "check_static_indices",
    False,
    "Raise an IndexError if an integer in `x[...]` is out of bounds. Reads with another mode than "
    "the default and `promise_in_bounds`, and writes, are not checked.",
    trace=True,
)
kernels_cpu_form = Flag(
    "kernels_cpu_form",
    "loop",
    "How kernels run on CPU: loop, program after program; vectorized, all programs along axes of "
    "the grid at once where they are independent, which may change the last bits of results.",
    choices=("loop", "vectorized"),
    trace=True,
)
num_cpu_devices = Flag(
    "num_cpu_devices",
    -1,
    "Number of virtual CPU devices; -1 means one, or the number in XLA_FLAGS.",
)
platforms = Flag(
    "platforms",
    None,
    "Comma-separated platforms, e.g. 'cuda,cpu'; the first one is the default.",
    parse=str,
)
default_device = Flag(
    "default_device", None, "Where uncommitted values go; None means the first device.", trace=True
)
check_tracer_leaks = Flag(
    "check_tracer_leaks",
    False,
    "Raise an error if a traced value is still referenced after its function has returned.",
    trace=True,
)
checking_leaks = check_tracer_leaks  # the name for `with`
disallow_mesh_context_manager = Flag(
    "disallow_mesh_context_manager",
    False,
    "Make `with mesh:` an error, so that only `with set_mesh(mesh):` is used.",
)
disable_jit = Flag(
    "disable_jit", False, "Run jitted functions op by op, for debugging.", trace=True
)
eager_pmap = Flag(
    "eager_pmap", True, "Under `disable_jit`, run functions of `pmap` op by op, too.", trace=True
)
debug_nans = Flag(
    "debug_nans",
    False,
    "Check results for NaN, and find the op that returned one; for debugging.",
    trace=True,
)
debug_infs = Flag(
    "debug_infs",
    False,
    "Check results for infinities, as `debug_nans` does for NaN; for debugging.",
    trace=True,
)
debug_key_reuse = Flag(
    "debug_key_reuse",
    False,
    "Raise an error if a random key is used twice; for debugging.",
    trace=True,
)
traceback_filtering = Flag(
    "traceback_filtering",
    "auto",
    "off: tracebacks through a transform include the frames of the library, too.",
    choices=("auto", "off", "remove_frames", "quiet_remove_frames", "tracebackhide"),
)
log_compiles = Flag("log_compiles", False, "Log each trace and compilation with its time.")
compare_programs = Flag(
    "compare_programs",
    True,
    "Before the first launch of a program over several processes, check that all run the same.",
)
wait_report_secs = Flag(
    "wait_report_secs",
    30.0,
    "Seconds of waiting after which the missing processes are reported, with their stacks. Set it "
    "before processes join.",
)
wait_timeout_secs = Flag(
    "wait_timeout_secs",
    600.0,
    "Seconds of waiting for missing processes after which the wait fails. Set it before processes "
    "join.",
)
store_timeout_secs = Flag(
    "store_timeout_secs",
    30.0,
    "Seconds in which an object store (s3://, gs://) must answer a checkpoint request; large "
    "objects get more time.",
)
thread_guard = ThreadFlag(
    "thread_guard",
    False,
    "Let only the thread that sets this launch programs over several processes.",
)
_GUARDED = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
transfer_guard_host_to_device = GuardFlag(
    "transfer_guard_host_to_device",
    "allow",
    "What to do when values are copied from the host to devices: implicitly, or at all.",
    choices=_GUARDED,
)
transfer_guard_device_to_device = GuardFlag(
    "transfer_guard_device_to_device",
    "allow",
    "What to do when values are copied between devices.",
    choices=_GUARDED,
)
transfer_guard_device_to_host = GuardFlag(
    "transfer_guard_device_to_host",
    "allow",
    "What to do when values are copied to the host; on CPU, none are.",
    choices=_GUARDED,
)
transfer_guard = GuardFlag(
    "transfer_guard", "allow", "Sets all three transfer guards.", choices=_GUARDED
)
transfer_guard.parts = (
    transfer_guard_host_to_device,
    transfer_guard_device_to_device,
    transfer_guard_device_to_host,
)
array_garbage_collection_guard = GuardFlag(
    "array_garbage_collection_guard",
    "allow",
    "What to do about arrays in reference cycles, whose memory is freed only by the garbage "
    "collector.",
    choices=("allow", "log", "fatal"),
)
enable_checks = Flag(
    "enable_checks", False, "Check each staged program, to find bugs in the library.", trace=True
)
no_tracing = Flag("no_tracing", False, "Make tracing a function for `jit` an error.")
no_execution = Flag("no_execution", False, "Make running a program an error.", trace=True)
flight_recorder_size = Flag(
    "flight_recorder_size",
    1000,
    "Number of launches, meetings and waits over several processes that are recorded.",
)
flight_recorder_dir = Flag(
    "flight_recorder_dir",
    None,
    "Folder for the record when a process fails; None means the folder for temporary files.",
    parse=str,
)
cpu_collectives_implementation = Flag(
    "cpu_collectives_implementation",
    "gloo",
    "Transport between CPU devices of several processes: gloo or mpi.",
    choices=("gloo", "mpi"),
)
mtls_cert_file = Flag[Any](
    "mtls_cert_file", None, "`initialize`: the certificate of this process, a PEM file.", parse=str
)
mtls_key_file = Flag[Any](
    "mtls_key_file", None, "`initialize`: the key of that certificate, a PEM file.", parse=str
)
mtls_ca_file = Flag[Any](
    "mtls_ca_file",
    None,
    "`initialize`: the certificate authority of all processes, a PEM file.",
    parse=str,
)
mtls_peer_uri_prefix = Flag[Any](
    "mtls_peer_uri_prefix",
    None,
    "`initialize`: the prefix of a URI in the certificates of peers.",
    parse=str,
)
distributed_verify_secure_credentials = Flag(
    "distributed_verify_secure_credentials", False, "Make `initialize` an error without TLS."
)
threefry_partitionable = Flag(
    "threefry_partitionable",
    True,
    "Generate random bits in a way that can be sharded without communication.",
    trace=True,
)
default_prng_impl = Flag(
    "default_prng_impl",
    "threefry2x32",
    "The default generator of keys, and the generator of all raw keys.",
    choices=("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg"),
    trace=True,
)
enable_custom_prng = Flag(
    "enable_custom_prng",
    False,
    "Make `shardwise.random.PRNGKey` return typed keys, and warn about raw keys.",
    trace=True,
)
legacy_prng_key = Flag(
    "legacy_prng_key",
    "allow",
    "What to do when a raw key is passed to `random`.",
    choices=("allow", "warn", "error"),
)
random_seed_offset = Flag(
    "random_seed_offset", 0, "Offset added to every seed of `shardwise.random.key`.", trace=True
)


def _fixed(name: str, value: bool, doc: str) -> Flag[bool]:
    """A JAX flag for behavior that is fixed here: it accepts only that value."""
    flag = Flag(name, value, doc)

    def reject(wanted: bool) -> None:
        if wanted != value:
            raise NotImplementedError(f"{name} is always {value} in shardwise. {doc}")

    flag.guard = reject
    return flag


allow_f16_reductions = Flag(
    "allow_f16_reductions",
    True,
    "Allow sums (`reduce_sum`) in float16 and bfloat16; otherwise they are a ValueError.",
    trace=True,
)
auto_pcast = _fixed(
    "auto_pcast",
    True,
    "Always on: operands of an op inside `shard_map` are cast to vary over the same axes.",
)
jax2tf_associative_scan_reductions = _fixed(
    "jax2tf_associative_scan_reductions",
    False,
    "Always off: programs are not converted to TensorFlow.",
)
remove_size_one_mesh_axis_from_type = _fixed(
    "remove_size_one_mesh_axis_from_type",
    False,
    "Always off: types name every mesh axis that a dimension is sharded over, also those of "
    "size 1.",
)
softmax_custom_jvp = _fixed(
    "softmax_custom_jvp",
    True,
    "Always on: the derivative of `shardwise.nn.softmax` is computed from its result.",
)

sharded_linalg_min_size_bytes = Flag(
    "sharded_linalg_min_size_bytes",
    2**24,
    "Linear algebra gathers sharded matrices smaller than this: its sharded programs take long to "
    "compile, and communicate often.",
    trace=True,
    old_name="divided_matrix_min_size_bytes",
)
poison_padding = Flag(
    "poison_padding",
    False,
    "Fill the padding of uneven shards with NaN, or the largest integer, to test that it is "
    "unused.",
    trace=True,
)

pallas_enable_debug_checks = Flag(
    "pallas_enable_debug_checks",
    False,
    "Make `experimental.pallas.debug_check` an error when the kernel runs and the condition is "
    "False.",
    trace=True,
)
pallas_poison_buffers = Flag(
    "pallas_poison_buffers",
    False,
    "Memory that kernels have not written is NaN, and of integers the least one: on CPUs all "
    "memory, on TPUs that of `run_scoped` in VMEM; on GPUs it has no effect.",
    trace=True,
)
export_calling_convention_version = Flag(
    "export_calling_convention_version",
    10,
    "The version of exported modules: 9, for older readers, or 10, which modules over several "
    "devices need.",
)
check_replicas = Flag(
    "check_replicas",
    False,
    "Check that processes put equal values into replicas of an array, and pass equal host values "
    "to their programs; for debugging.",
)


# Compiled programs are cached on disk: see `compiling.disk_cache`.

enable_compilation_cache = Flag(
    "enable_compilation_cache", True, "Cache compiled programs on disk, for other processes."
)
compilation_cache_dir = Flag[Any](
    "compilation_cache_dir",
    None,
    "Folder of that cache; None means `shardwise` in the user's cache directory.",
    parse=str,
)
compilation_cache_max_size = Flag(
    "compilation_cache_max_size", 2 << 30, "Maximum size of that cache in bytes; -1 means no limit."
)
persistent_cache_min_compile_time_secs = Flag(
    "persistent_cache_min_compile_time_secs",
    0.05,
    "Programs that compile faster are not cached on disk.",
)
persistent_cache_min_entry_size_bytes = Flag(
    "persistent_cache_min_entry_size_bytes", 0, "Smaller programs are not cached on disk."
)
explain_cache_misses = Flag(
    "explain_cache_misses",
    False,
    "Log why a call of a jitted function did not find a compiled program.",
)

show_progress = Flag(
    "show_progress",
    True,
    "Show the progress of compilations, copies and checkpoints over two seconds on a terminal.",
)


def _check_folder(value: Any) -> None:
    if value is not None and "://" in value:
        raise ValueError(
            f"compilation_cache_dir must be a folder on this machine; got {value!r}. Mount remote "
            "storage, or copy the folder."
        )


compilation_cache_dir.guard = _check_folder

# Obsolete flags: name → the fixed value, and why it cannot be changed.
HISTORIC: dict[str, tuple[Any, str]] = {
    "array": (True, "there is only one array type"),
    "parallel_functions_output_gda": (False, "there is only one array type"),
    "jit_pjit_api_merge": (True, "jit and pjit are the same function"),
    "pmap_shmap_merge": (True, "all maps share one implementation"),
    "experimental_xmap_spmd_lowering": (True, "all maps share one implementation"),
    "experimental_xmap_spmd_lowering_manual": (True, "all maps share one implementation"),
    "experimental_xmap_ensure_fixed_sharding": (False, "all maps share one implementation"),
    "spmd_mode": ("allow_all", "programs can always span processes"),
    "cpp_jit": (True, "there is only one dispatch path"),
    "cpp_pjit": (True, "there is only one dispatch path"),
    "cpp_pmap": (True, "there is only one dispatch path"),
    "omnistaging": (True, "everything under jit is staged"),
    "enable_mlir": (True, "programs are lowered to StableHLO"),
    "use_shardy_partitioner": (True, "Shardy partitions all programs"),
    "dynamic_shapes": (False, "shapes are static"),
    "enable_custom_prng": (
        True,
        "`shardwise.random.key` returns typed keys, `shardwise.random.PRNGKey` raw ones",
    ),
    "remat3": (False, "there is only one implementation of checkpoint"),
    "custom_vjp3": (False, "there is only one implementation of custom_vjp"),
    "use_rgv3": (False, "programs list the devices of each group"),
    "use_direct_linearize": (True, "there is only one implementation of linearize"),
    "use_simplified_jaxpr_constants": (False, "constants are inputs of programs"),
    "custom_jvp3": (False, "there is only one implementation of custom_jvp"),
    "raise_persistent_cache_errors": (False, "cache errors are logged"),
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
            _log.warning(
                "%s=%r has no effect: it is always %r, because %s.", name, value, held, why
            )

    def read(self, name: str) -> Any:
        bare = name.removeprefix("jax_")
        return HISTORIC[bare][0] if bare in HISTORIC else _find(name).value

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(
                f"config.{name} cannot be assigned. Use `shardwise.config.update({name!r}, value)`."
            )
        super().__setattr__(name, value)

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
        command_line.define({**OLD_NAMES, **FLAGS}, self.update)

    def parse_flags_with_absl(self) -> None:
        """Like `config_with_absl`, and parses this program's command line now."""
        command_line.parse({**OLD_NAMES, **FLAGS}, self.update)

    @property
    def x64_enabled(self) -> bool:
        """Whether 64-bit types are kept: the flag `enable_x64`."""
        return enable_x64.value

    def __dir__(self) -> list[str]:
        return sorted({*FLAGS, *vars(Config)} - {"_note", "__getattr__"})


def _find(name: str) -> Flag[Any]:
    bare = name.removeprefix("jax_")
    if bare in FLAGS:
        return FLAGS[bare]
    if bare in OLD_NAMES:
        flag = OLD_NAMES[bare]
        warn_of_old_name(f"the option {bare}", flag.name)
        return flag
    hint = did_you_mean(bare, [*FLAGS, *HISTORIC])
    hint = hint or f" Known options: {', '.join(sorted(FLAGS))}."
    raise AttributeError(f"unknown configuration option {name!r}.{hint}")


config = Config()


def mind_unknown_variables() -> None:
    """Warns about environment variables that look like flags, but are not."""
    known = ["SHARDWISE_" + name.upper() for name in (*FLAGS, *OLD_NAMES, *HISTORIC)]
    for variable in sorted(os.environ):
        if variable.startswith("SHARDWISE_") and variable not in (*known, *_OF_TOOLS):
            warn(
                f"the environment variable {variable} has no effect: there is no such flag."
                f"{did_you_mean(variable, known, 0.8)}"
            )


_OF_TOOLS = (
    "SHARDWISE_UPDATE_GOLDENS",  # of the tests
    # of `shardwise launch`
    "SHARDWISE_BOARD",
    "SHARDWISE_COORDINATOR_ADDRESS",
    "SHARDWISE_COORDINATOR_STARTED",
    "SHARDWISE_GENERATION",
    "SHARDWISE_INITIALIZATION_TIMEOUT",
    "SHARDWISE_LAUNCH",
    "SHARDWISE_LOCAL_DEVICE_IDS",
    "SHARDWISE_LOCAL_PROCESS_ID",
    "SHARDWISE_NUM_PROCESSES",
    "SHARDWISE_PROCESS_ID",
)
mind_unknown_variables()
