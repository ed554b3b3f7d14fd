"""Checks the results and the speed of collectives, over devices of one process and of two.

Each of all-reduce, all-gather, all-to-all and permute runs over all devices, with little data for
its latency, and with more for its bandwidth: bytes of one device's operand over the median time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from shardwise._src.cli.findings import LATE, PLAIN, Clock, Line, Ran, run_program

SMALL, LARGE = 1 << 8, 1 << 20  # bytes on each device, about
MARK = "measured: "
SLOW = 5e-3  # seconds from which a small collective counts as slow

COLLECTIVES = """
import json
import statistics
import sys
import time

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise.sharding import NamedSharding, PartitionSpec as P

n = sw.device_count()
mesh = sw.make_mesh((n,), ("x",))
ring = [(i, (i + 1) % n) for i in range(n)]
COLLECTIVES = {  # what runs on each device; the same of the whole value, in rows of devices
    "all-reduce": (lambda x: lax.psum(x, "x"), lambda v: v.sum(0)),
    "all-gather": (lambda x: lax.all_gather(x, "x", tiled=True), lambda v: v.reshape(-1)),
    "all-to-all": (
        lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True),
        lambda v: v.reshape(n, n, -1).swapaxes(0, 1).reshape(-1),
    ),
    "permute": (lambda x: lax.ppermute(x, "x", ring), lambda v: np.roll(v, 1, 0).reshape(-1)),
}


def check(name, run, expected, size):
    whole = (np.arange(n * size) % 251).astype(np.float32)
    split = NamedSharding(mesh, P("x"))
    x = sw.make_array_from_callback(whole.shape, split, lambda i: whole[i])
    to = P() if name in ("all-reduce", "all-gather") else P("x")
    f = sw.jit(sw.shard_map(run, mesh=mesh, in_specs=P("x"), out_specs=to, check_vma=False))
    right = expected(whole.reshape(n, size))
    for shard in f(x).addressable_shards:
        found = np.asarray(shard.data)
        if not np.array_equal(found, right[shard.index]):
            sys.exit(f"{name} of {4 * size} bytes returned wrong values on {shard.device}: {found}")
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        f(x).block_until_ready()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


rows = []
for bytes_of_each in map(int, sys.argv[1:]):
    size = max(1, bytes_of_each // 4 // n) * n
    for name, (run, expected) in COLLECTIVES.items():
        seconds = check(name, run, expected, size)
        rows.append({"collective": name, "bytes": 4 * size, "seconds": seconds, "devices": n})
if sw.process_index() == 0:
    print("measured:", json.dumps(rows))
"""


def one_process(clock: Clock, quick: bool) -> Iterator[Line]:
    """Collectives over eight virtual CPU devices."""
    sizes = [str(SMALL)] if quick else [str(SMALL), str(LARGE)]
    env = {**PLAIN, "SHARDWISE_NUM_CPU_DEVICES": "8"}
    ran = run_program(COLLECTIVES, [sys.executable], sizes, clock.left(25.0), **env)
    if quick and ran.text.startswith(LATE):  # a busy machine is not broken
        text = f"not tested: it takes longer than {ran.seconds:.0f} s"
        yield Line(None, "one process", text, "run without --quick to allow more time")
        return
    yield from _lines("one process", "8 virtual CPU devices", ran)


def accelerators(clock: Clock, quick: bool) -> Iterator[Line]:
    """Collectives over the GPUs of this machine."""
    sizes = [str(SMALL)] if quick else [str(SMALL), str(64 * LARGE)]
    ran = run_program(COLLECTIVES, [sys.executable], sizes, clock.left(25.0))
    yield from _lines("GPUs", "the GPUs here", ran)


def two_processes(clock: Clock) -> Iterator[Line]:
    """Collectives over two processes of two devices each, started by a launcher; uses Gloo."""
    seconds = clock.left(30.0)
    options = ["-n", "2", "--devices-per-process", "2", "--initialization-timeout"]
    launch = [sys.executable, "-m", "shardwise", "launch", *options, f"{seconds:.1f}"]
    ran = run_program(COLLECTIVES, launch, [str(SMALL), str(LARGE)], seconds, **PLAIN)
    yield from _lines("two processes", "4 CPU devices, with Gloo,", ran)


def _lines(name: str, where: str, ran: Ran) -> Iterator[Line]:
    found = ran.text.partition(MARK)[2]
    if not (ran.ok and found):
        yield Line(False, name, ran.text or "printed nothing", _remedy(ran.text))
        return
    rows = json.loads(found.splitlines()[0])
    took = f"collectives over {where} return the right values ({ran.seconds:.1f} s in all)"
    yield Line(True, name, took, facts={"seconds": ran.seconds, "measured": rows})
    for row in rows:
        yield _measured(row)


def _measured(row: dict[str, object]) -> Line:
    seconds, size = float(str(row["seconds"])), int(str(row["bytes"]))
    text = f"{size:>9,} bytes per device: {seconds * 1e6:>8,.0f} us"
    if size > 2 * SMALL:  # for few bytes, the time is pure latency
        text += f", {size / seconds / 1e9:>7.3f} GB/s"
    slow = seconds > SLOW and size <= 2 * SMALL
    advice = (
        "this is slow: do other programs use the processors (`uptime`), or is their number limited "
        "(by a container's quota)?"
    )
    return Line(None, f"  {row['collective']}", text, advice if slow else "", row)


def _remedy(text: str) -> str:
    if text.startswith(LATE):
        return (
            "it hangs, or this machine is very busy: look at `uptime`; run without --quick to "
            "allow more time. `py-spy dump` shows where a process hangs."
        )
    if "cannot listen" in text or "did not reach" in text:
        return (
            "a firewall, or a sandbox without loopback, blocks connections between processes: "
            "see `network`."
        )
    return "`shardwise explain-error` explains the errors that the library raises."
