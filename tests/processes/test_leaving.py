"""Processes that end while others still need the data they have sent."""

import re
import signal
import time

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes, until_written

PAUSED = """
    import os
    import signal
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
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        while Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
    sw.distributed.shutdown()
    print(time.time())
"""


def stopped_until_waited_for(how):
    """Process 1 stops itself; once process 0 reports that it waits for it, it receives a signal."""
    at = []

    def during(running):
        until_written(running[0], "shutdown_timeout_seconds", file=2)
        at.append(time.time())
        running[1].send_signal(how)

    results = run_processes(PAUSED, 2, devices=2, patience=1, during=during, expect=None)
    return at[0], *results


def test_one_ends_when_the_others_have_what_it_sent():
    resumed, first, second = stopped_until_waited_for(signal.SIGCONT)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert resumed < float(first.out.split()[-1])
    said = re.sub(r"host \S+, pid \d+", "host H, pid N", first.err.strip())
    said = re.sub(r"\S*program\.py:\d+", "program.py:L", re.sub(r"for \d+ s", "for N s", said))
    assert said == (
        "shardwise: process 0 is about to exit, and has waited for N s until others have the "
        "results of programs launched with it: process 1 (host H, pid N) is at program.py:L "
        "(<module>). It waits for at most 300 s in all (`shutdown_timeout_seconds`)."
    )
    assert not second.err


def test_it_waits_for_nobody_who_is_lost():
    """Otherwise it would wait for 300 s, which is longer than the timeout of this test."""
    lost, first, second = stopped_until_waited_for(signal.SIGKILL)
    assert (first.status, second.status) == (0, -9), first
    assert lost < float(first.out.split()[-1])


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
