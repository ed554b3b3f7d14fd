"""Moves large arrays over 8 CPU devices; prints the planned and the measured memory."""

import gc
import json
import os
import sys
from pathlib import Path

import numpy as np

import shardwise as sw
from shardwise._src.arrays.array import Array
from shardwise._src.runtime import host_memory
from shardwise._src.transfers import transfer
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

sw.config.update("num_cpu_devices", 8)
DEVICES = np.array(sw.devices())
MESH = Mesh(DEVICES.reshape(4, 2), ("x", "y"))
HALF, BACK = [Mesh(part.reshape(2, 2), ("x", "y")) for part in (DEVICES[:4], DEVICES[4:])]
BYTES = 1 << 26

# Source, target, and whether the source counts as computed when the strategy is chosen.
CASES = {
    "host": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y")), True),
    "host, replicated": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P()), True),
    "program": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y")), False),
    "program, gathering": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P()), False),
    "program, permuting": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P("y", "x")), False),
    "copy": (NamedSharding(HALF, P("x", "y")), NamedSharding(BACK, P("x", "y")), True),
    "pieces": (NamedSharding(HALF, P("x", "y")), NamedSharding(BACK, P("y")), True),
    "put": (None, NamedSharding(MESH, P("x", "y")), True),
    "put, replicated": (None, NamedSharding(MESH, P("y")), True),
    "tree": (NamedSharding(MESH, P("x")), NamedSharding(MESH, P("y")), False),
}


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def source(place, rows):
    host = np.ones((rows, BYTES // 4 // rows if rows > 1000 else 1000), np.float32)
    if place is None:
        return host
    return sw.block_until_ready(sw.device_put(host, place) + 1)


def run(name):
    start, target, ready = CASES[name]
    if not ready:
        Array.is_ready = lambda self: False
    if name == "pieces":  # the choice on accelerators
        Array._is_on_cpu = lambda self: False
        from shardwise._src.planner import transfer_cost

        on_host = transfer.reshard_steps
        transfer_cost.reshard_steps = lambda sig, to, on_cpu, ready: on_host(sig, to, False, ready)
    sw.block_until_ready(sw.device_put(source(start, 16), target))  # load lazily loaded modules
    x = source(start, 4096)
    tree = [x, source(start, 4096)] if name == "tree" else x
    found = sw.plan(tree, target)
    gc.collect()
    host_memory.release()
    host_memory.POOL.spare.clear()
    before, reserved, earlier = status("VmRSS"), status("VmSize"), status("VmPeak")
    Path("/proc/self/clear_refs").write_text("5")
    keep = []
    for leaf in tree if name == "tree" else [tree]:
        keep.append(sw.block_until_ready(sw.device_put(leaf, target)))
    measured = status("VmHWM") - before
    if name.startswith("program") and status("VmPeak") > earlier:
        # Devices share few cores, so that not all allocated memory is written to at the same time.
        measured = status("VmPeak") - reserved
    kinds = sorted({step.kind for step in found.steps})
    print(json.dumps({"planned": found.host_bytes, "measured": measured, "kinds": kinds}))


os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
run(sys.argv[1])
