"""A mesh of explicit axes, functions that shard values over it, and printed types."""

from __future__ import annotations

from typing import Any

import numpy as np

import shardwise as sw
from shardwise.sharding import AxisType
from shardwise.sharding import PartitionSpec as P

MESH = sw.make_mesh((4, 2), ("x", "y"), axis_types=AxisType.Explicit)
A = np.arange(32, dtype=np.float32).reshape(8, 4)
W = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def put(value: Any, *spec: Any) -> Any:
    return sw.device_put(value, P(*spec))


def shown(x: Any) -> str:
    return str(sw.typeof(x))
