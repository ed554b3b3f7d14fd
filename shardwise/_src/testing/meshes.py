"""Meshes of simulated devices, and assertions about shardings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import is_array
from shardwise._src.runtime import backend
from shardwise._src.types.mesh import Mesh


def simulated_mesh(shape: Sequence[int], names: Sequence[str], **options: Any) -> Mesh:
    """A mesh over the first virtual CPU devices of this process.

    shape, names: of the mesh axes. options: as for `Mesh`, such as `axis_types`.
    Raises RuntimeError if there are too few devices; the message says how to get more.
    """
    count = math.prod(shape)
    devices = backend.devices("cpu")
    if count > len(devices):
        raise RuntimeError(
            f"a mesh of shape {tuple(shape)} needs {count} CPU devices, but there are "
            f"{len(devices)}. Start the program with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}, or call "
            f"config.update('num_cpu_devices', {count}) before anything else."
        )
    return Mesh(np.array(devices[:count], object).reshape(tuple(shape)), tuple(names), **options)


def assert_same_sharding(x: Any, y: Any) -> None:
    """Raises AssertionError unless two arrays (or an array and a sharding) have equivalent
    shardings.

    Equivalent: each device has the same shard. One of the arguments must be an array; equivalent
    specs that are written differently are accepted.
    """
    arrays = [a for a in (x, y) if is_array(a)]
    if not arrays:
        raise TypeError(f"expected an array among the arguments; got {x!r} and {y!r}.")
    left, right = (a.sharding if is_array(a) else a for a in (x, y))
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise AssertionError(f"shapes differ: {x.shape} and {y.shape}.")
    if not left.is_equivalent_to(right, arrays[0].ndim):
        raise AssertionError(
            f"an array of type {arrays[0].aval.str_short(True)} is placed differently:\n"
            f"  {left}\n  {right}"
        )
