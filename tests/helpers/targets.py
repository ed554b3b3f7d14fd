"""Compiles for machines that are not attached, in tests of those whose compiler is installed."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

CUDA, TPU = "h100", "tpu-v5e"
needs_cuda = pytest.mark.skipif(
    "cuda" not in sw.targets.available(), reason="needs shardwise[compile-cuda]"
)
needs_tpu = pytest.mark.skipif(
    "tpu" not in sw.targets.available(), reason="needs shardwise[compile-tpu]"
)
MACHINES = [pytest.param(CUDA, marks=needs_cuda), pytest.param(TPU, marks=needs_tpu)]


def mesh_on(machine: str, shape: tuple[int, ...], names: tuple[str, ...]) -> Mesh:
    """A mesh over all devices of a machine."""
    return Mesh(np.array(sw.targets.devices(machine), object).reshape(shape), names)


def on(place: Any, x: Any, *spec: Any) -> sw.ShapeDtypeStruct:
    """An argument like `x` on a machine's first device, or over a mesh with a spec."""
    if isinstance(place, str):
        sharding = SingleDeviceSharding(sw.targets.devices(place)[0])
    else:
        sharding = NamedSharding(place, PartitionSpec(*spec))
    return sw.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def compiled(f: Any, machine: str, *args: Any) -> Any:
    """A function compiled for arguments like these on the first device of a machine."""
    return sw.jit(f).lower(*[on(machine, x) for x in args]).compile()
