"""Devices of machines that are not attached, for both libraries.

A plugin can be loaded once in a process, so that each library has its own process.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.libs import Lib

MACHINES = ("h100:8", "h100:2x4", "tpu-v5p:2x2x2", "tpu-v6e:2x4")


@dataclass(frozen=True)
class Target(Lib):
    """A library, and the devices that its programs are compiled for."""

    machine: str = ""

    @cached_property
    def devices(self) -> list[Any]:
        if self.name == "shardwise":
            return self.root.targets.devices(self.machine)
        return _devices_of_jax(self.machine)

    @property
    def is_gpu(self) -> bool:
        return not self.machine.startswith("tpu")

    @property
    def hosts(self) -> int:
        return len({d.process_index for d in self.devices})

    def mesh(self, **axes: int) -> Any:
        auto = (self.sharding.AxisType.Auto,) * len(axes)
        grid = np.array(self.devices, object).reshape(tuple(axes.values()))
        return self.sharding.Mesh(grid, tuple(axes), axis_types=auto)

    def on_one(self) -> Any:
        return self.sharding.SingleDeviceSharding(self.devices[0])

    def like(self, x: Any, sharding: Any = None, dtype: Any = None) -> Any:
        """An argument that only has a shape: `x` is an array or a shape."""
        if isinstance(x, tuple):
            x = np.broadcast_to(np.zeros((), dtype or np.float32), x)
        place = sharding or self.on_one()
        return self.root.ShapeDtypeStruct(x.shape, dtype or x.dtype, sharding=place)


def target(library: str, machine: str) -> Target:
    sizes: Iterator[int] = itertools.count(1000)
    return Target(library, sizes, machine)


def _devices_of_jax(machine: str) -> list[Any]:
    from jax._src.cudnn import fused_attention_stablehlo
    from jax.experimental import topologies

    from shardwise import targets

    # jax asks for the version of the library that is installed, and for the attached GPU.
    fused_attention_stablehlo.check_cudnn_version = lambda: 91000
    fused_attention_stablehlo.check_compute_capability = lambda capability: True

    kind, _, shape = machine.partition(":")
    if kind.startswith("tpu"):
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        found = topologies.get_topology_desc(f"{kind.removeprefix('tpu-')}:{shape}", "tpu")
        return [*found.devices]
    sizes = ("1x" * (2 - shape.count("x"))) + shape
    found = topologies.get_topology_desc(
        platform="cuda", topology_name=kind, target_config=targets.description(kind), topology=sizes
    )
    return [*found.devices]
