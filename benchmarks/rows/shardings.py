"""Index arithmetic over 8,192 devices. The devices do not exist: nothing runs on them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy

from benchmarks.libs import Lib
from benchmarks.runner import Fresh, Row

GRID = (64, 128)
SHAPE = (640, 1280)


class Device:
    client = SimpleNamespace(process_index=0)
    process_index, platform = 0, "cpu"

    def __init__(self, id: int):
        self.id = id


def grid() -> Any:
    return numpy.array([Device(i) for i in range(8192)], object).reshape(GRID)


def sharding(lib: Lib, devices: Any, name: str) -> Any:
    return lib.named(lib.sharding.Mesh(devices, (name, "y")), name, "y")


def new(lib: Lib) -> Fresh:
    """A new mesh, sharding and index map, which are not cached."""
    devices = grid()

    def fresh() -> Callable[[], Any]:
        name = f"x{next(lib.sizes)}"
        return lambda: sharding(lib, devices, name).devices_indices_map(SHAPE)

    return fresh


def again(lib: Lib) -> Callable[[], Any]:
    held = sharding(lib, grid(), "x")
    return lambda: len(held.devices_indices_map(SHAPE))


ROWS = (
    Row("sharding.new_8192_devices", 1.1, new, kind="fresh"),
    Row("sharding.again_8192_devices", 1.1, again),
)
