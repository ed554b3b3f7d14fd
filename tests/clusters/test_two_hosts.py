"""Three processes on two hosts, which are network namespaces, joined by Slurm's variables."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.test_clusters import PROGRAM, environment, said
from tests.distributed import recorded

pytestmark = pytest.mark.processes
NETNS = Path("/etc/netns")


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts():
    """Two namespaces with a virtual cable between them, each with its own /etc/hosts."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    names = [f"sw{os.getpid()}{letter}" for letter in "ab"]
    # As on Debian, the first host's own name resolves to loopback on that host.
    tables = ["127.0.0.1 localhost\n127.0.1.1 nodea\n", "127.0.0.1 localhost\n192.168.77.1 nodea\n"]
    try:
        for name, table in zip(names, tables, strict=True):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces cannot be made: {error.stderr.decode().strip()}")
            (NETNS / name).mkdir(parents=True)
            (NETNS / name / "hosts").write_text(table)
        ends = [f"v{name}" for name in names]
        ip(
            "link",
            "add",
            ends[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            ends[1],
            "netns",
            names[1],
        )
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", f"192.168.77.{i + 1}/24", "dev", ends[i])
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", ends[i], "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
            shutil.rmtree(NETNS / name, ignore_errors=True)


def test_a_host_whose_name_is_loopback_on_itself(hosts):
    """Of two processes, Gloo lets the one with the smaller address listen. Addresses here are above
    loopback addresses, so that the first host would listen at an unreachable address.
    """
    first, second = hosts
    running = []
    try:
        for rank, name in enumerate((first, second, first)):
            slurm = recorded.SLURM | {
                "SLURM_STEP_NODELIST": "node[a,b]",
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(rank // 2),
                "SLURM_NODEID": str(rank % 2),
                "SLURM_STEP_NUM_TASKS": "3",
                "SLURM_STEP_TASKS_PER_NODE": "2,1",
            }
            running.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, str(PROGRAM)],
                    env=environment(**slurm),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    text=True,
                )
            )
        ended = [process.communicate(timeout=40) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    found = sorted(line for out, _ in ended for line in said(out))
    assert found == [f"slurm: {rank} of 3: 140.0" for rank in range(3)], ended
