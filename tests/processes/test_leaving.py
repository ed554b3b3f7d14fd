"""Processes that end while others still need what they have sent."""

import re

import pytest

from shardwise.testing import run_processes
from tests.helpers.everyday import everyday

PAUSED = """
    import os
    import signal
    import subprocess
    import sys
    import time
    from pathlib import Path

    import numpy as np

    import shardwise as sw
    from shardwise.experimental import multihost_utils
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    x = sw.device_put(np.arange(8.0, dtype="f"), NamedSharding(Mesh(sw.devices(), "x"), P("x")))
    double = sw.jit(lambda x: (x * 2).sum())
    print(float(double(x)))
    other = int(multihost_utils.process_allgather(np.int32(os.getpid()))[1])
    if sw.process_index() == 1:
        if sys.argv[1] == "paused":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "paused":
        while Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {other}"])
    print(time.time())
    sw.distributed.shutdown()
    print(time.time())
"""


def test_one_ends_when_the_others_have_what_it_sent():
    results = run_processes(PAUSED, 2, devices=2, args=["paused"], timeout=60, patience=1)
    (_, ended), (resumed, _) = [map(float, r.out.split()[-2:]) for r in results]
    assert resumed < ended
    said = re.sub(r"host \S+, pid \d+", "host H, pid N", results[0].err.strip())
    said = re.sub(r"\S*program\.py:\d+", "program.py:L", re.sub(r"for \d s", "for N s", said))
    assert said == (
        "shardwise: process 0 is to end, and has waited for N s until others have the results of "
        "what they launched with it: process 1 (host H, pid N) is at program.py:L (<module>). It "
        "waits for at most 300 s in all (`shutdown_timeout_seconds`)."
    )
    assert not results[1].err


def test_it_waits_for_nobody_who_is_lost():
    first, second = run_processes(PAUSED, 2, devices=2, args=["lost"], timeout=60, expect=None)
    assert (first.status, second.status) == (0, -9), first
    begun, ended = map(float, first.out.split()[-2:])
    assert ended - begun < 10


LARGE = """
    import numpy as np

    import shardwise as sw
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(sw.devices(), "x")
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
    x = sw.device_put(np.ones((8, 1 << 16), "f"), rows)
    turned = sw.jit(lambda x: x * 2, out_shardings=columns)
    for _ in range(3):
        y = turned(x)
    print(all((s.data == 2).all() for s in y.addressable_shards))
"""


@pytest.mark.parametrize("count", everyday([2, 4], 1))
def test_what_is_exchanged_last_arrives(count):
    results = run_processes(LARGE, count, devices=8 // count, timeout=60)
    assert [r.out for r in results] == ["True\n"] * count
