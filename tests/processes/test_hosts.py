"""Processes on several machines, which network namespaces with separate addresses represent."""

import os
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress

import pytest

from tests.helpers.patience import seconds, until

PORT = 23456
PROGRAM = """
import sys, time
import numpy as np
import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

rank, beat = int(sys.argv[1]), float(sys.argv[2])
sw.config.update("num_cpu_devices", 2)
sw.distributed.initialize("10.77.0.1:23456", 2, rank, heartbeat_timeout_seconds=beat,
                          initialization_timeout=300)
x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
f = sw.jit(lambda x: (x**2).sum())
print(float(f(x)), flush=True)
if len(sys.argv) > 3:
    while True:
        float(f(x))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=seconds(10))


def may_have_hosts():
    return os.name == "posix" and shutil.which("ip") and os.geteuid() == 0


@pytest.fixture
def hosts():
    """Two network namespaces, at 10.77.0.1 and 10.77.0.2, connected only to each other."""
    if not may_have_hosts():
        pytest.skip("needs root and the command ip (iproute2)")
    mark = uuid.uuid4().hex[:6]
    names = [f"sw-{mark}-{i}" for i in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        ends = [f"sw{mark}{i}" for i in range(2)]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for i, (name, end) in enumerate(zip(names, ends, strict=True)):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", end)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", end, "up")
        yield names, ends
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], timeout=seconds(10), check=False)


def started(tmp_path, names, *arguments):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, str(path), str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"SHARDWISE_FLIGHT_RECORDER_DIR": str(tmp_path)},
        )
        for rank, name in enumerate(names)
    ]


def ended(running):
    """(status, output, errors) of each process."""
    with suppress(TimeoutError):
        until(lambda: all(process.poll() is not None for process in running))
    late = [i for i, process in enumerate(running) if process.poll() is None]
    for i in late:
        running[i].kill()
    results = [(process.returncode, *process.communicate()) for process in running]
    assert not late, "".join([f"process {i} does not end: {results[i][2]}" for i in late])
    return results


def test_two_hosts_compute_together(hosts, tmp_path):
    first, second = ended(started(tmp_path, hosts[0], str(seconds(20))))
    assert first[0] == second[0] == 0, first[2] + second[2]
    assert "140.0" in first[1] and "140.0" in second[1]
    warning = "reachable from other machines, without TLS"
    assert warning in first[2] and warning not in second[2]


def test_a_cut_cable_is_told_of_by_both(hosts, tmp_path):
    names, ends = hosts
    running = started(tmp_path, names, str(seconds(4)), "on")
    printed = running[1].stdout
    assert printed is not None
    while (line := printed.readline()) != "140.0\n":
        assert line, ended(running)
    ip("-n", names[1], "link", "set", ends[1], "down")
    first, second = ended(running)
    assert "process 1 (host " in first[2] and "no heartbeat from it for" in first[2]
    assert "there was no heartbeat from the coordinator for" in second[2]
    assert first[0] == second[0] == 1  # both through ProcessFailureError, not through XLA
