"""Loaded modules: compiled from StableHLO text, launched on raw buffers.

The runtime below checks byte sizes and devices only. Whoever calls `LoadedModule.launch` has
checked types and placements; dispatch does so by looking the program up under exactly those.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime import processes, shutdown
from shardwise._src.runtime.backend import JAXLIB, JAXLIB_VERSION
from shardwise._src.runtime.callbacks import HostCalls, refuse_inside
from shardwise._src.runtime.ffi import unknown_target
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.runtime.in_flight import CPU_WINDOW, Window
from shardwise._src.runtime.partitioner_callbacks import failure_in
from shardwise._src.runtime.shardy import parsed

CompileOptions = xc.CompileOptions
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
LARGE = 1 << 16  # bytes of a result that is not kept until its program has ended
_SKIP_CHECKS: dict[str, Any] = {}


# XLA's flags for kernels that are compiled fast and run unoptimised.
_UNOPTIMISED: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}

if JAXLIB < (0, 11):
    _SKIP_CHECKS["_skip_checks"] = True
    _UNOPTIMISED["xla_cpu_use_fusion_emitters"] = False  # the flag is gone since


def compile_options(
    devices: tuple[Any, ...],
    *,
    free_parameters: Sequence[bool] = (),
    free_outputs: Sequence[bool] = (),
    quick: bool = False,
    small: bool = False,
    overrides: dict[str, Any] | None = None,
) -> Any:
    """Options for one SPMD program over `devices`, partitioned by Shardy.

    free_parameters, free_outputs: where the partitioner may choose the sharding itself.
    quick: a program of one or two kernels, where compile time outweighs run time.
    small: one on so few elements that optimising its kernels would not pay.
    overrides: XLA flags by name; an unknown name fails the compilation.
    """
    platform = devices[0].platform
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
    if platform == "cpu" and (left_out := _passes_left_out(quick, devices)):
        build.debug_options.xla_disable_hlo_passes = ",".join(left_out)
    flags = {**(_UNOPTIMISED if small and platform == "cpu" else {}), **(overrides or {})}
    if flags:
        options.env_option_overrides = list(flags.items())
    return options


def _passes_left_out(quick: bool, devices: Sequence[Any]) -> list[str]:
    """XLA's passes for CPU that a program goes without."""
    out: list[str] = []
    if quick and JAXLIB < (0, 12):
        out.append("fusion-wrapper")
    if processes.span_of(devices):
        # Gloo reduces several arrays one after the other anyway, and one that fails among them,
        # because a process is gone, leaves others waiting for ever: nothing can break that.
        out += ["all-reduce-combiner", "cpu-all-reduce-combiner"]
    return out


class LoadedModule:
    """A module as XLA compiled it, on its devices. It knows buffers, and neither types nor trees.

    collectives: whether its devices talk to each other, where that is known already.
    span:        the processes of its devices, if there are several; name, digest: what tells it
                 from other modules in these, then, and text: what it was compiled from.
    """

    __slots__ = (
        "raw", "devices", "result_shapes", "has_collectives", "window", "calls", "_smallest",
        "span", "name", "digest", "text",
    )

    def __init__(
        self, raw: Any, devices: tuple[Any, ...], collectives: bool | None = None,
        calls: HostCalls | None = None,
    ):
        self.raw = raw
        self.calls = calls  # of host functions
        self.devices = devices
        self.span = processes.span_of(devices)
        self.name, self.digest, self.text = "", "", ""
        self._smallest: int | None = None  # the result that the window holds; -1: a token
        platform = devices[0].platform
        self.result_shapes: list[tuple[int, ...]] | None = None  # on each device, if just compiled
        if collectives is None:
            hlo = raw.get_hlo_text() if len(devices) > 1 else ""
            collectives = _communicates(hlo)
            self.result_shapes = _result_shapes(hlo) if hlo else None
        self.has_collectives = collectives
        self.window: Window | None = CPU_WINDOW if len(devices) > 1 and platform == "cpu" else None
        if len(devices) == 1 and platform == "cpu":
            shutdown.runs_alone(devices[0], result_handler)

    def launch(self, buffers: Sequence[Any], handlers: Sequence[Any]) -> list[Any]:
        """Starts the program; the results may still be computed when this returns."""
        gate = None if self.span is None else processes.gate()
        if gate is None:
            return self.launch_now(buffers, handlers)
        return gate.launch(self, buffers, handlers)

    def launch_now(self, buffers: Sequence[Any], handlers: Sequence[Any]) -> list[Any]:
        if self.has_collectives:
            refuse_inside()
        if self.window is not None:
            self.window.admit()
        if self.calls is not None:
            return self.calls.launch(self.raw, buffers, handlers)
        if self.window is None:
            return self.raw.execute_sharded(buffers).consume_with_handlers(handlers)
        if self._smallest == -1:
            started = self.raw.execute_sharded(buffers, with_tokens=True)
            self.window.record(started.consume_token())
            return started.consume_with_handlers(handlers)
        results = self.raw.execute_sharded(buffers).consume_with_handlers(handlers)
        if self._smallest is None:
            sizes = [raw.on_device_size_in_bytes() for raw in results]
            least = min(sizes, default=LARGE)
            self._smallest = sizes.index(least) if least < LARGE else -1
        if self._smallest >= 0:
            self.window.record(results[self._smallest])
        return results

    def output_shardings(self) -> list[Any] | None:
        return self.raw.get_output_shardings()

    def parameter_layouts(self) -> list[str]:
        """As XLA writes them: `{1,0}` is row by row."""
        return [str(layout) for layout in self.raw.get_parameter_layouts()]

    def output_layouts(self) -> list[str]:
        return [str(layout) for layout in self.raw.get_output_layouts()]

    def aliased_parameters(self) -> set[int]:
        """The parameters whose memory a result takes."""
        header = self.raw.get_hlo_text().partition("\n")[0]
        return {int(n) for n in re.findall(r"\((\d+), \{[^}]*\}, (?:may|must)-alias\)", header)}

    def hlo_text(self) -> str:
        return self.raw.get_hlo_text()

    def cost(self) -> dict[str, float]:
        return self.raw.cost_analysis()

    def memory(self) -> Any:
        return self.raw.get_compiled_memory_stats()

    def serialize(self) -> bytes:
        return self.raw.serialize()


def _communicates(hlo: str) -> bool:
    return any(name + "(" in hlo or name + "-start(" in hlo for name in COLLECTIVES)


def _result_shapes(hlo: str) -> list[tuple[int, ...]]:
    """The shapes of a module's results on one device, from the first line of its text."""
    header = re.sub(r"/\*.*?\*/|\{[^{}>]*\}", "", hlo.partition("\n")[0])  # and layouts
    results = re.match(r"[^=)]*", header.partition("->")[2])
    found = re.findall(r"\w\[([\d,]*)\]", results[0]) if results else []
    return [tuple([int(n) for n in dims.split(",") if n]) for dims in found]


def compile_text(
    client: Any, text: str, devices: tuple[Any, ...], options: Any,
    callbacks: Sequence[Any] = (), ordered: bool = False,
) -> LoadedModule:
    """Compiles a module; `callbacks` are the host functions that it calls, by number."""
    where = _jax.DeviceList(devices)
    calls = None
    if callbacks:
        calls = HostCalls(callbacks, len(devices), processes.span_of(devices), ordered)
    try:
        with uninterrupted():  # XLA asks Python how calls are partitioned
            if calls is not None:  # jaxlib takes them with a parsed module only
                module = parsed(text)
                raw = client.compile_and_load(module, where, options, host_callbacks=calls.entries)
            else:
                raw = client.compile_and_load(text, where, options)
    except _jax.JaxRuntimeError as error:
        if (failure := failure_in(text)) is not None:
            raise failure from None
        _explain(error, devices[0].platform)
    return LoadedModule(raw, devices, calls=calls)


def hlo_computation(text: str) -> Any:
    """A module as HLO, before any of XLA's passes."""
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def estimated_cost(client: Any, text: str) -> dict[str, float]:
    """XLA's estimate for a module that is neither partitioned nor optimised."""
    return _jax.hlo_module_cost_analysis(client, hlo_computation(text).as_hlo_module())


_NO_OPTION = re.compile(r"No such compile option: '(\w+)'")
_BAD_VALUE = re.compile(r"While setting option (\w+), '(.*)' is not a valid (\w+) value")


_NO_TARGET = re.compile(
    r"No FFI handler registered for (.+?) on a platform|"
    r"No registered implementation for (?:untyped )?custom call to (\S+)"
)


def _explain(error: Exception, platform: str) -> NoReturn:
    """Raises what a failed compilation was about: an option, a name, or the error itself."""
    if found := _NO_TARGET.search(str(error)):
        name = found[1] or found[2].strip("'\"")
        raise _jax.JaxRuntimeError(unknown_target(name, platform)) from None
    if found := _NO_OPTION.search(str(error)):
        hint = did_you_mean(found[1], _option_names())
        raise _jax.JaxRuntimeError(
            f"compiler_options: No such compile option: {found[1]!r} in jaxlib {JAXLIB_VERSION}."
            + hint
        ) from None
    if found := _BAD_VALUE.search(str(error)):
        raise _jax.JaxRuntimeError(
            f"compiler_options: {found[2]!r} is not a valid value of {found[1]!r}; it takes a "
            f"value of type {found[3]}."
        ) from None
    raise error


def _option_names() -> list[str]:
    """The names that jaxlib knows by themselves; XLA has more."""
    known = xc.CompileOptions().executable_build_options.debug_options
    return [name for name in dir(known) if name.startswith("xla_")]


def load(
    client: Any, blob: bytes, devices: tuple[Any, ...], options: Any,
    collectives: bool | None = None,
) -> LoadedModule:
    """What `LoadedModule.serialize` wrote. The caller vouches for an equal `fingerprint`."""
    raw = client.deserialize_executable(blob, _jax.DeviceList(devices), options)
    return LoadedModule(raw, devices, collectives)


@functools.lru_cache(4096)
def result_handler(aval: Any, placement: Any) -> Any:
    """Turns one result of a launch into a raw buffer of that type and placement."""
    return _jax.array_result_handler(aval, placement, committed=True, **_SKIP_CHECKS)


closed_by_fork(LoadedModule, "launch")
