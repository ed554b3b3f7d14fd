"""Children that one of several processes creates with `os.fork` do not count as processes."""

import os
import subprocess
import sys

import psutil

from tests.helpers import patience
from tests.helpers.joining import free_port
from tests.helpers.processes import run_processes

PROGRAM = """
import os, sys, time, warnings
import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import multihost_utils
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

warnings.simplefilter("ignore")
x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
total = sw.jit(lambda x: x.sum())
float(total(x))
mode = sys.argv[1]
if sw.process_index() == 1:
    child = os.fork()
    if not child:
        if mode == "raises":
            raise ValueError("of the child alone")
        if mode == "stays":
            time.sleep(10**4)
        sys.exit(3)
    if mode == "stays":
        os.kill(os.getpid(), 9)
    _, status = os.waitpid(child, 0)
    print("the child", os.waitstatus_to_exitcode(status), sw.distributed.is_initialized())
multihost_utils.sync_global_devices("what the child said was heard")
print(float(total(x)))
"""


def test_a_child_says_nothing_for_its_parent():
    for mode, status in (("ends", 3), ("raises", 1)):
        first, second = run_processes(PROGRAM, 2, args=[mode])
        assert first.out == "28.0\n" and first.err == ""
        assert second.out == f"the child {status} True\n28.0\n"


def test_a_child_does_not_hide_that_its_parent_has_died():
    first, second = run_processes(PROGRAM, 2, args=["stays"], expect=None, heartbeat=15)
    assert (first.status, second.status) == (1, -9)
    assert "process 1 (host " in first.err
    assert "its connection closed: it was killed" in first.err


def test_a_child_does_not_keep_the_coordinator():
    program = f"""
import os, sys, time, warnings
import psutil
import shardwise as sw
warnings.simplefilter("ignore")
sw.distributed.initialize("127.0.0.1:{free_port()}", 1, 0)
[coordinator] = psutil.Process().children()
child = os.fork()
if not child:
    os.close(1)
    time.sleep(10**4)
print(coordinator.pid, child, flush=True)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=patience.seconds(60),
        start_new_session=True,
    )
    coordinator, child = map(int, ended.stdout.split())
    try:
        patience.until(lambda: not psutil.pid_exists(coordinator))
    finally:
        os.kill(child, 9)
