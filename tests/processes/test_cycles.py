"""Programs that start and end repeatedly leave no process, port, file or shared memory."""

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.helpers import patience
from tests.helpers.everyday import everyday
from tests.helpers.launching import Launch

pytestmark = pytest.mark.processes

ENDS = ("well", "failing", "stopped", "killed")  # in this order: 200 in a sweep
JOINS = """
    import os, sys, time
    import shardwise as sw
    print("joined", sw.process_index(), os.environ["SHARDWISE_COORDINATOR_ADDRESS"], flush=True)
    how = sys.argv[1]
    if how == "failing" and sw.process_index() == 1:
        os._exit(5)
    if how != "well":
        time.sleep(10**4)
"""


def shared_memory():
    """The names in shared memory, except those of Open MPI, which other tests may use."""
    names = {path.name for path in Path("/dev/shm").iterdir()}
    return {name for name in names if not name.startswith("vader_segment")}


def of_others(names):
    """The names that a process still has open: all of our processes have ended."""
    found = set()
    for process in psutil.process_iter():
        try:
            opened = {m.path for m in process.memory_maps()} | {
                f.path for f in process.open_files()
            }
        except (psutil.Error, OSError):
            continue
        found |= {Path(path).name for path in opened if path.startswith("/dev/shm/")}
    return names & found


def listens(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def cycle(how, folder):
    """Runs a launch that ends in this way; returns the addresses at which it listened."""
    env = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": ""}
    with Launch("-n", "2", "{}", how, source=JOINS, env=env) as running:
        wanted = 1 if how == "failing" else 2  # the failing process may end first
        running.until(lambda: len(running.lines()) >= wanted)
        addresses = {line.split()[-1] for line in running.lines()}
        ports = set()
        for process in running.left():
            try:
                found = process.net_connections(kind="tcp")
            except psutil.Error:
                continue
            ports |= {c.laddr.port for c in found if c.status == "LISTEN"}
        if how in ("stopped", "killed"):
            running.signal(signal.SIGTERM if how == "stopped" else signal.SIGKILL)
        status = running.process.wait(patience.seconds(60))
        running.until(lambda: not running.left())
    assert status == {"well": 0, "failing": 5, "stopped": 143, "killed": -9}[how]
    return addresses | {f"127.0.0.1:{port}" for port in ports}


@pytest.mark.sweep
@pytest.mark.parametrize("batch", everyday(range(50), 1))
def test_nothing_is_left(tmp_path, batch):
    before = shared_memory()
    for how in ENDS:
        addresses = cycle(how, tmp_path)
        assert addresses
        # The system closes the sockets of a killed process.
        patience.until(lambda addresses=addresses: not any(map(listens, addresses)))
        left = [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")]
        # The status files of a killed launcher remain until the next launch.
        assert set(left) == ({f"shardwise-{os.getuid()}"} if how == "killed" else set())
    cycle("well", tmp_path)
    assert list(tmp_path.iterdir()) == []
    new = shared_memory() - before
    assert new - of_others(new) == set()
