"""Layouts to visualize: plain, uneven, without elements, large, of many processes."""

from types import SimpleNamespace

import numpy as np

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, PositionalSharding

P = PartitionSpec
NASTY = ("</svg><script>document.title='taken'</script>\n\x1b[31m\ud800", "\"&'><b>模型")


class Device(SimpleNamespace):
    """A fake device; unlike its base class it can be a key. This process is process 0."""

    __hash__ = object.__hash__


def mesh(*sizes: int, names: tuple[str, ...] = ("data", "model", "depth")) -> Mesh:
    devices = np.array(sw.devices("cpu")[: np.prod(sizes)])
    return Mesh(devices.reshape(sizes), names[: len(sizes)])


def simulated(*sizes: int, per_process: int = 10**6, names="abcdef") -> Mesh:
    count = int(np.prod(sizes))
    devices = np.empty(count, object)
    devices[:] = [Device(id=i, platform="tpu", process_index=i // per_process)
                  for i in range(count)]  # fmt: skip
    return Mesh(devices.reshape(sizes), tuple(names[: len(sizes)]))


def shardings() -> dict[str, tuple[tuple[int, ...], object]]:
    """Shapes and shardings of arrays, by name."""
    flat, cube, line = mesh(4, 2), mesh(2, 2, 2), mesh(8)
    far, nasty = simulated(2, 2, 4, per_process=4), mesh(4, 2, names=NASTY)
    named = {
        "scalar": ((), flat, P()),
        "row": ((16,), flat, P("data")),
        "grid": ((8, 16), flat, P("data", "model")),
        "columns": ((8, 16), flat, P(None, "model")),
        "whole": ((64,), line, P()),
        "uneven row": ((9,), line, P("data")),
        "uneven grid": ((9, 40), flat, P("data", "model")),
        "few elements": ((2, 3), flat, P("data", "model")),
        "no elements": ((0, 4), flat, P("data", "model")),
        "thin last block": ((1025, 7), line, P(None, "data")),
        "slices": ((4, 8, 16), cube, P("data", "model", "depth")),
        "four dimensions": ((4, 3, 8, 16), cube, P("data", None, "model")),
        "wide": ((4, 100_000), line, P(None, "data")),
        "tall": ((100_000, 4), line, P("data")),
        "processes": ((8, 8), far, P("a", "c")),
        "nasty": ((8, 16), nasty, P(NASTY[0], NASTY[1])),
        "many blocks": ((1 << 16, 1 << 12), simulated(128, 64, per_process=8), P("a", "b")),
        "many in a row": ((1 << 16,), simulated(128, 64), P(("a", "b"))),
        "many replicas": ((8, 2), simulated(2, 4096), P(None, "a")),
        "many slices": ((64, 64, 64), simulated(32, 16, 16), P("a", "b", "c")),
    }
    found: dict[str, tuple[tuple[int, ...], object]] = {
        name: (shape, NamedSharding(on, spec)) for name, (shape, on, spec) in named.items()
    }
    devices = sw.devices("cpu")[:4]
    found["positional"] = ((3, 4), PositionalSharding(devices).reshape(2, 2))
    return found


def meshes() -> dict[str, Mesh]:
    return {
        "square": mesh(4, 2),
        "cube": mesh(2, 2, 2),
        "line": mesh(8),
        "nasty": mesh(4, 2, names=NASTY),
        "large": simulated(128, 64, per_process=8),
        "deep": simulated(16, 8, 8, 8),
        "no axes": Mesh(np.array(sw.devices("cpu")[0], object), ()),
    }
