"""Modules: compiled from StableHLO text, loaded and launched on raw buffers.

The runtime below checks only byte sizes and devices. Callers of `LoadedModule.launch` must have
checked types and placements; dispatch does so by using them as the key of the program cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
from jaxlib import _hlo, _jax
from jaxlib import xla_client as xc

from shardwise._src.base.caches import cached
from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime import processes, shutdown
from shardwise._src.runtime.backend import JAXLIB, JAXLIB_VERSION, client
from shardwise._src.runtime.compiler.callback_targets import HostCalls, reject_inside
from shardwise._src.runtime.compiler.ffi import unknown_target
from shardwise._src.runtime.compiler.partitioner_callbacks import TARGET as PARTITIONED
from shardwise._src.runtime.compiler.partitioner_callbacks import failure_in
from shardwise._src.runtime.compiler.quiet import quiet
from shardwise._src.runtime.compiler.shardy import parsed
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.runtime.in_flight import CPU_WINDOW, Window
from shardwise._src.runtime.platforms import Platform, platform_of
from shardwise._src.runtime.processes import free_unused
from shardwise._src.runtime.target_machines import is_compile_only, not_attached

CompileOptions = xc.CompileOptions
Launcher: TypeAlias = Callable[[Sequence[_jax.ArrayImpl]], list[Any]]
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
_SKIP_CHECKS: dict[str, Any] = {}


# XLA flags for kernels that are compiled fast and run unoptimized.
_UNOPTIMISED: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}

_EFFORTS: dict[Any, int] = {"UNKNOWN": 0, "O0": 9, "O1": 19, "O2": 29, "O3": 39}

if JAXLIB < (0, 11):
    _SKIP_CHECKS["_skip_checks"] = True
    _UNOPTIMISED["xla_cpu_use_fusion_emitters"] = False  # the flag was removed in 0.11


def compile_options(
    devices: tuple[_jax.Device, ...],
    *,
    free_parameters: Sequence[bool] = (),
    free_outputs: Sequence[bool] = (),
    quick: bool = False,
    small: bool = False,
    overrides: dict[str, Any] | None = None,
) -> xc.CompileOptions:
    """Options for one SPMD program over `devices`, partitioned by Shardy.

    free_parameters, free_outputs: whether the partitioner may choose the sharding of each.
    quick: a program of one or two kernels, for which compile time outweighs run time.
    small: a program on so few elements that optimizing its kernels would not pay off.
    overrides: XLA flags by name; an unknown name fails the compilation.
    """
    is_xla_cpu = platform_of(devices[0]).is_xla_cpu
    options = xc.CompileOptions()
    options.num_replicas = 1
    options.num_partitions = len(devices)
    ids = np.array([[d.id for d in devices]], np.int32)
    options.device_assignment = xc.DeviceAssignment.create(ids)
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, len(devices)
    build.use_spmd_partitioning = len(devices) > 1
    build.use_shardy_partitioner = len(devices) > 1
    if len(devices) > 1:
        build.allow_spmd_sharding_propagation_to_parameters = list(free_parameters) or [False]
        build.allow_spmd_sharding_propagation_to_output = list(free_outputs) or [False]
    if is_xla_cpu and (left_out := _passes_left_out(quick, devices)):
        build.debug_options.xla_disable_hlo_passes = ",".join(left_out)
    flags = {**(_UNOPTIMISED if small and is_xla_cpu else {}), **(overrides or {})}
    if "optimization_level" in flags:
        build.optimization_level = effort("optimization_level", flags.pop("optimization_level"))
    if "memory_fitting_level" in flags:
        build.memory_fitting_level = effort(
            "memory_fitting_level", flags.pop("memory_fitting_level")
        )
    if flags:
        options.env_option_overrides = list(flags.items())
    return options


def _passes_left_out(quick: bool, devices: Sequence[_jax.Device]) -> list[str]:
    """The XLA CPU passes to disable for a program."""
    out: list[str] = []
    if quick and JAXLIB < (0, 12):
        out.append("fusion-wrapper")
    if processes.span_of(devices):
        # Gloo reduces several arrays one after another anyway, and if one of them fails because a
        # process is gone, the others wait forever, and nothing can break that wait.
        out += ["all-reduce-combiner", "cpu-all-reduce-combiner"]
    return out


def effort(name: str, level: Any) -> int:
    """XLA's number of a level of effort: "O0" to "O3", or "UNKNOWN" for its default."""
    if level in _EFFORTS.values():
        return level
    if level not in _EFFORTS:
        raise ValueError(f"{name} must be one of {', '.join(_EFFORTS)}; got {level!r}.")
    return _EFFORTS[level]


class CompiledModule:
    """A compiled module, for devices of which no arrays can be made: it can only be read.

    collectives: whether its devices communicate, if known already.
    span:        the processes of its devices, if several; in that case, name and digest identify
                 it in these, and text is its source.
    """

    __slots__ = (
        "raw",
        "devices",
        "result_shapes",
        "has_collectives",
        "window",
        "calls",
        "span",
        "name",
        "digest",
        "text",
    )
    raw: Any  # jaxlib's `LoadedExecutable`, or `Executable` if it cannot run

    def __init__(
        self,
        raw: _jax.LoadedExecutable | _jax.Executable,
        devices: tuple[_jax.Device, ...],
        collectives: bool | None = None,
        calls: HostCalls | None = None,
    ):
        self.raw = raw
        self.calls = calls  # of host functions
        self.devices = devices
        self.span: tuple[int, ...] | None = None
        self.name, self.digest, self.text = "", "", ""
        self.window: Window | None = None
        self.result_shapes: list[tuple[int, ...]] | None = None  # on each device, if just compiled
        if collectives is None:
            hlo = self.hlo_text() if len(devices) > 1 else ""
            collectives = _communicates(hlo)
            self.result_shapes = _result_shapes(hlo) if hlo else None
        self.has_collectives = collectives

    def launch(
        self, buffers: Sequence[_jax.ArrayImpl], handlers: Sequence[_jax.ResultHandler]
    ) -> list[Any]:
        """Starts the program; the results may still be computed when this returns."""
        return self.launcher(handlers)(buffers)

    def launcher(self, handlers: Sequence[_jax.ResultHandler]) -> Launcher:
        """`launch` with these handlers, as a function of the buffers, for many calls.

        Raises RuntimeError: the devices are only described.
        """
        raise not_attached("the program", self.devices[0])

    def output_shardings(self) -> list[xc.OpSharding] | None:
        """Shardings by tiles: TPU's compiler may name the axes of a mesh instead."""
        found = self.raw.get_output_shardings()
        if found is None:
            return None
        named = [xc.HloSharding.from_proto(s) for s in found]
        return [s.v3_to_v2_sharding().to_proto() for s in named]

    def parameter_layouts(self) -> list[str]:
        """In XLA's notation: `{1,0}` is row-major."""
        return [str(layout) for layout in self.raw.get_parameter_layouts()]

    def output_layouts(self) -> list[str]:
        return [str(layout) for layout in self.raw.get_output_layouts()]

    def aliased_parameters(self) -> set[int]:
        """The parameters whose memory a result reuses."""
        header = self.hlo_text().partition("\n")[0]
        return {int(n) for n in re.findall(r"\((\d+), \{[^}]*\}, (?:may|must)-alias\)", header)}

    def hlo_text(self) -> str:
        (module,) = self.raw.hlo_modules()
        return module.to_string()

    def cost(self) -> dict[str, float]:
        try:
            return self.raw.cost_analysis()
        except _jax.JaxRuntimeError as error:
            if "UNIMPLEMENTED" not in str(error):
                raise
            (module,) = self.raw.hlo_modules()  # the CUDA plugin does not count
            return _jax.hlo_module_cost_analysis(client("cpu"), module)

    def memory(self) -> _jax.CompiledMemoryStats:
        return self.raw.get_compiled_memory_stats()

    def serialize(self) -> bytes:
        return self.raw.serialize()


class LoadedModule(CompiledModule):
    """A compiled module on its devices. It handles buffers, and neither types nor pytrees."""

    __slots__ = ()

    def __init__(
        self,
        raw: _jax.LoadedExecutable,
        devices: tuple[_jax.Device, ...],
        collectives: bool | None = None,
        calls: HostCalls | None = None,
    ):
        super().__init__(raw, devices, collectives, calls)
        self.span = processes.span_of(devices)
        is_xla_cpu = platform_of(devices[0]).is_xla_cpu
        if len(devices) > 1 and is_xla_cpu:
            self.window = CPU_WINDOW
        if len(devices) == 1 and is_xla_cpu:
            shutdown.runs_alone(devices[0], result_handler)

    def hlo_text(self) -> str:
        return self.raw.get_hlo_text()

    def output_shardings(self) -> list[xc.OpSharding] | None:
        return self.raw.get_output_shardings()

    def launcher(self, handlers: Sequence[_jax.ResultHandler]) -> Launcher:
        now = self._local_launcher(handlers)
        if self.span is None:
            return now

        def in_turn(buffers: Sequence[_jax.ArrayImpl]) -> list[Any]:
            gate = processes.gate()
            return now(buffers) if gate is None else gate.launch(self, now, buffers)

        return in_turn

    def _local_launcher(self, handlers: Sequence[_jax.ResultHandler]) -> Launcher:
        """`launcher` without the other processes."""
        raw, window, calls, collectives = self.raw, self.window, self.calls, self.has_collectives
        execute = raw.execute_sharded

        def plain(buffers: Sequence[_jax.ArrayImpl]) -> list[Any]:
            if collectives:
                reject_inside()
            free_unused()
            return execute(buffers).consume_with_handlers(handlers)

        def with_calls(buffers: Sequence[_jax.ArrayImpl]) -> list[Any]:
            assert calls is not None
            if collectives:
                reject_inside()
            if window is not None:
                window.admit(True)
            free_unused()
            return calls.launch(raw, buffers, handlers)

        def in_window(buffers: Sequence[_jax.ArrayImpl]) -> list[Any]:
            assert window is not None
            if collectives:
                reject_inside()
            window.admit(collectives)
            free_unused()
            started = execute(buffers, with_tokens=True)
            window.record(started.consume_token(), collectives)
            return started.consume_with_handlers(handlers)

        if calls is not None:
            return with_calls
        return plain if window is None else in_window


def _communicates(hlo: str) -> bool:
    return any(name + "(" in hlo or name + "-start(" in hlo for name in COLLECTIVES)


def _result_shapes(hlo: str) -> list[tuple[int, ...]]:
    """The shapes of a module's results on one device, from the first line of its text."""
    header = re.sub(r"/\*.*?\*/|\{[^{}>]*\}", "", hlo.partition("\n")[0])  # and layouts
    results = re.match(r"[^=)]*", header.partition("->")[2])
    found = re.findall(r"\w\[([\d,]*)\]", results[0]) if results else []
    return [tuple([int(n) for n in dims.split(",") if n]) for dims in found]


def compile_text(
    client: _jax.Client,
    text: str,
    devices: tuple[_jax.Device, ...],
    options: xc.CompileOptions,
    callbacks: Sequence[Any] = (),
    ordered: bool = False,
) -> CompiledModule:
    """Compiles a module; `callbacks` are the host functions that it calls, by index."""
    where = _jax.DeviceList(devices)
    attached = not is_compile_only(devices)
    calls = None
    if callbacks:
        span = processes.span_of(devices) if attached else None
        calls = HostCalls(callbacks, len(devices), span, ordered)
    if not attached:
        return _compiled_only(client, text, devices, options, calls)
    try:
        with uninterrupted():  # XLA calls Python to partition custom calls
            if calls is not None:  # jaxlib accepts them only with a parsed module
                module = parsed(text)
                raw = client.compile_and_load(module, where, options, host_callbacks=calls.entries)
            else:
                raw = client.compile_and_load(text, where, options)
    except _jax.JaxRuntimeError as error:
        if (failure := failure_in(text)) is not None:
            raise failure from None
        _explain(error, platform_of(devices[0]))
    return LoadedModule(raw, devices, calls=calls)


def _compiled_only(
    client: Any,
    text: str,
    devices: tuple[_jax.Device, ...],
    options: xc.CompileOptions,
    calls: HostCalls | None,
) -> CompiledModule:
    """Compiles a module for devices that are only described. Its host functions are never called:
    the compiler needs only their types, which the text has."""
    try:
        with uninterrupted(), quiet():
            raw = client.compile(parsed(text), _jax.DeviceList(devices), options)
    except _jax.JaxRuntimeError as error:
        _explain(error, platform_of(devices[0]))
    return CompiledModule(raw, devices, calls=calls)


def hlo_computation(text: str) -> _hlo.XlaComputation:
    """A module as HLO, before any of XLA's passes."""
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def estimated_cost(of: _jax.Client, text: str) -> dict[str, float]:
    """XLA's estimate for a module that is neither partitioned nor optimized."""
    module = hlo_computation(text).as_hlo_module()
    try:
        return _jax.hlo_module_cost_analysis(of, module)
    except _jax.JaxRuntimeError as error:
        if "PjRt-compatible" not in str(error):
            raise
        return _jax.hlo_module_cost_analysis(client("cpu"), module)  # devices are only described


_NO_OPTION = re.compile(r"No such compile option: '(\w+)'")
_BAD_VALUE = re.compile(r"While setting option (\w+), '(.*)' is not a valid (\w+) value")


_NO_TARGET = re.compile(
    r"No FFI handler registered for (.+?) on a platform|"
    r"No registered implementation for (?:untyped )?custom call to (\S+)|"
    r"Custom emitter for (\S+) not found"
)


_NO_TYPE = re.compile(r"element type (\w+) not supported by NCCL\s+([a-z-]+?)(?:-start)?\s")
_KINDS = {"s": "int", "u": "uint", "f": "float", "bf": "bfloat"}


def _dtype_name(hlo: str) -> str:
    """The name of a dtype from HLO's: `f8e4m3` is float8_e4m3."""
    kind, bits, rest = re.fullmatch(r"([a-z]+)(\d+)(\w*)", hlo).groups()  # type: ignore[union-attr]
    return f"{_KINDS.get(kind, kind)}{bits}{rest and '_'}{rest}"


def _explain(error: Exception, platform: Platform) -> NoReturn:
    """Raises the cause of a failed compilation: an option, a name, or the error itself."""
    if found := _NO_TYPE.search(str(error)):
        raise NotImplementedError(
            f"an {found[2]} of {_dtype_name(found[1])} cannot be compiled for {platform}: NCCL, "
            "which connects the devices, does not have this dtype. Convert values that are "
            "resharded to a wider one, such as `x.astype('float32')`, and the results back."
        ) from None
    if found := _NO_TARGET.search(str(error)):
        name = found[1] or found[3] or found[2].strip("'\"")
        if name == PARTITIONED:
            raise NotImplementedError(
                f"functions with their own partitioning rules, such as those of "
                f"`custom_partitioning`, cannot be compiled for several devices of '{platform}': "
                "its compiler does not call such rules. Call the function for each shard instead, "
                "inside of `shardwise.shard_map`."
            ) from None
        raise _jax.JaxRuntimeError(unknown_target(name, platform)) from None
    if found := _NO_OPTION.search(str(error)):
        hint = did_you_mean(found[1], _option_names())
        raise _jax.JaxRuntimeError(
            f"compiler_options: No such compile option: {found[1]!r} in jaxlib {JAXLIB_VERSION}."
            + hint
        ) from None
    if found := _BAD_VALUE.search(str(error)):
        raise _jax.JaxRuntimeError(
            f"compiler_options: {found[2]!r} is not a valid value of {found[1]!r}; it requires a "
            f"value of type {found[3]}."
        ) from None
    raise error


def _option_names() -> list[str]:
    """The option names that jaxlib exposes; XLA has more."""
    known = xc.CompileOptions().executable_build_options.debug_options
    return [name for name in dir(known) if name.startswith("xla_")]


def load(
    client: _jax.Client,
    blob: bytes,
    devices: tuple[_jax.Device, ...],
    options: xc.CompileOptions,
    collectives: bool | None = None,
) -> LoadedModule:
    """Loads the result of `LoadedModule.serialize`. The caller ensures an equal `fingerprint`."""
    raw = client.deserialize_executable(blob, _jax.DeviceList(devices), options)
    return LoadedModule(raw, devices, collectives)


@cached(4096)
def result_handler(aval: Any, placement: _jax.GSPMDSharding) -> _jax.ResultHandler:
    """A handler that converts a launch result to a raw buffer of this type and placement."""
    return _jax.array_result_handler(aval, placement, committed=True, **_SKIP_CHECKS)


closed_by_fork(LoadedModule, "launch")
