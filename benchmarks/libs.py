"""The two libraries with one interface, so that a row is written once.

    lib = Lib("shardwise", itertools.count(1000))
    lib.np.sin(lib.root.device_put(...))

Submodules are imported on first use: if a library lacks one, only the rows that need it
fail.
"""

from __future__ import annotations

import compileall
import gc
import importlib
import os
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DEVICES = 8


def prepare_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Requests eight virtual CPU devices and disables caches on disk. Call before either import.

    Variables that are already set are kept, except the caches: with one of them enabled, a second
    run of the benchmarks would find the first run's compilations.
    """
    flag = "--xla_force_host_platform_device_count"
    flags = environment.get("XLA_FLAGS", "")
    if flag not in flags:
        environment["XLA_FLAGS"] = f"{flags} {flag}={DEVICES}".strip()
    environment.setdefault("JAX_PLATFORMS", "cpu")  # also read by shardwise, as a fallback
    for prefix in ("JAX_", "SHARDWISE_"):
        environment[prefix + "ENABLE_COMPILATION_CACHE"] = "false"


def memory(name: str) -> int:
    """Resident memory of this process in bytes: now, `VmRSS`, or its peak, `VmHWM`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def peak_growth(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and by how many bytes the process grew at most."""
    gc.collect()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    result = call()
    return result, memory("VmHWM") - before


def compile_sources() -> None:
    """Writes the bytecode of installed packages, even if the environment disables it."""
    spec = find_spec("shardwise")
    assert spec is not None and spec.submodule_search_locations is not None
    compileall.compile_dir(spec.submodule_search_locations[0], quiet=2)


def _module(part: str) -> Any:
    """A module of a library, imported when it is first used."""
    return cached_property(lambda lib: importlib.import_module(lib.name + part))


@dataclass(frozen=True)
class Lib:
    """One library as the rows see it.

    `sizes` yields array sizes that were not used before in this process, so that a row can
    miss every cache keyed by shape. Both libraries draw from the same iterator.
    """

    name: str
    sizes: Iterator[int]

    root = _module("")
    np = _module(".numpy")
    lax = _module(".lax")
    random = _module(".random")
    nn = _module(".nn")
    sharding = _module(".sharding")

    def mesh(self, **axes: int) -> Any:
        """A mesh such as `mesh(dp=4, tp=2)` whose sharding the compiler propagates."""
        auto = (self.sharding.AxisType.Auto,) * len(axes)
        return self.root.make_mesh(tuple(axes.values()), tuple(axes), axis_types=auto)

    def named(self, mesh: Any, *spec: Any) -> Any:
        """`named(mesh, "dp", None)` is the NamedSharding with that PartitionSpec."""
        return self.sharding.NamedSharding(mesh, self.sharding.PartitionSpec(*spec))
