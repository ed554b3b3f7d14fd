"""`shardwise top` alongside running launches."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from math import inf, nan

import psutil
import pytest

from shardwise._src.cli.top import table
from shardwise._src.distributed.status_files import LaunchStatus, write
from shardwise._src.launch import status_relay
from shardwise._src.launch.status_view import Launch as Launched
from shardwise._src.launch.status_view import Process
from tests.helpers import patience
from tests.helpers.everyday import everyday
from tests.helpers.joining import free_port
from tests.helpers.launching import Launch

pytestmark = pytest.mark.processes

TRAINS = """
    import os, sys, time
    import shardwise as sw
    import shardwise.numpy as snp
    from shardwise.distributed import report_progress
    from shardwise.experimental import multihost_utils
    from shardwise.sharding import NamedSharding, PartitionSpec as P

    mesh = sw.make_mesh((sw.device_count(),), ("x",))
    x = snp.ones((1024, 256), device=NamedSharding(mesh, P("x")))
    if os.environ["SHARDWISE_GENERATION"] == "0" and "fails" in sys.argv and sw.process_index():
        sys.exit("it went wrong")
    for step in range(10_000):
        report_progress(step, tokens=64, loss=0.5)
        time.sleep(0.01)
        if step == 30:
            print("thirty", flush=True)
        if step == 30 and "waits" in sys.argv and sw.process_index() == 1:
            multihost_utils.sync_global_devices("the others")
"""


@pytest.fixture
def place(tmp_path):
    return {"XDG_RUNTIME_DIR": str(tmp_path), "COLUMNS": "200"}


def top(place, *words):
    done = subprocess.run(
        [sys.executable, "-m", "shardwise", "top", *words],
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        env={**os.environ, **place},
    )
    return done.returncode, done.stdout, done.stderr


def record(place):
    status, out, err = top(place, "--json")
    assert (status, err) == (0, "")
    (launch,) = json.loads(out)
    return launch


def test_steps_rates_and_memory(place):
    with Launch("-n", "2", "{}", "--some", "word", source=TRAINS, env=place) as running:
        running.until(lambda: len(running.lines()) == 2)
        launch = record(place)
        status, table, _ = top(place, "--once")
        alone = top(place, "--once", str(launch["pid"]))
        none = top(place, "--once", "1")
        pids = [running.pid(0), running.pid(1)]
        running.signal(signal.SIGTERM)
        done = running.done()
        after = top(place)
    assert (done.left, launch["pid"]) == ([], running.process.pid)
    assert launch["command"][1:] == ["--some", "word"]
    assert (launch["processes"], launch["restarts"], launch["generation"]) == (2, 0, 0)
    for rank, process in enumerate(launch["workers"]):
        assert (process["rank"], process["pid"], process["state"]) == (rank, pids[rank], "runs")
        assert process["step"] >= 30 and process["facts"] == {"loss": 0.5}
        assert 0 < process["steps_per_second"] < 101
        rate = process["tokens_per_second"]
        assert rate == pytest.approx(64 * process["steps_per_second"], rel=1e-6)
        assert process["device_bytes"] == 2**20 // 2  # its shard of x
        assert process["resident_bytes"] > 2**24
        assert "program.py:" in process["line"]
    lines = table.splitlines()
    assert (status, len(lines)) == (0, 4)
    assert f"launcher {launch['pid']} on " in lines[0]
    assert lines[1].split() == "rank pid state step steps/s tokens/s memory devices".split()
    assert lines[2].split()[:3] == ["0", str(pids[0]), "runs"]
    assert lines[2].endswith("512.0 KiB  loss 0.5")
    assert alone[1].splitlines()[1] == lines[1]
    assert none == (1, "", "shardwise top: no launch of this user has a launcher with pid 1.\n")
    assert after == (
        1,
        "",
        (
            "shardwise top: no launch of this user is running on this machine (none in "
            f"{place['XDG_RUNTIME_DIR']}/shardwise). `shardwise launch -n 4 script.py` starts one.\n"
        ),
    )


def test_all_machines_of_a_launch(tmp_path):
    """Each machine has a separate folder."""
    places = [{"XDG_RUNTIME_DIR": str(tmp_path / str(k)), "COLUMNS": "200"} for k in range(3)]
    where = ["-n", "1", "--coordinator", f"127.0.0.1:{free_port()}", "--nodes", "3"]
    with ExitStack() as stack:
        nodes = []
        for rank, place in enumerate(places):
            (tmp_path / str(rank)).mkdir()
            words = [*where, "--node-rank", str(rank)]
            nodes.append(stack.enter_context(Launch(*words, source=TRAINS, env=place)))
        for node in nodes:
            node.until(node.lines)
        folders = [tmp_path / str(k) / "shardwise" / str(nodes[k].process.pid) for k in range(3)]
        assert not [path for folder in folders for path in folder.glob("*-*")]  # no viewer yet
        pids = [node.pid(rank) for rank, node in enumerate(nodes)]
        launch = record(places[2])
        assert (launch["node"], launch["silent_nodes"]) == (2, [])
        assert [p["rank"] for p in launch["workers"]] == [0, 1, 2]
        for process, pid in zip(launch["workers"], pids, strict=True):
            assert (process["pid"], process["state"]) == (pid, "runs")
            assert process["step"] >= 30 and process["facts"] == {"loss": 0.5}
            assert process["device_bytes"] >= 2**20 // 3
            assert process["host"] == launch["host"] and "program.py:" in process["line"]
        table = top(places[1], "--once")[1].splitlines()
        assert table[1].split()[:4] == ["rank", "host", "pid", "state"]
        assert [row.split()[:4] for row in table[2:]] == [
            [str(rank), launch["host"], str(pid), "runs"] for rank, pid in enumerate(pids)
        ]
        nodes[1].signal(signal.SIGSTOP)
        write(folders[0] / "node-1", {"at": 0.0, "complete": True, "workers": []})
        *rows, last = top(places[0], "--once")[1].splitlines()
        nodes[1].signal(signal.SIGCONT)
        assert [row.split()[0] for row in rows[2:]] == ["0", "2"]
        assert last == "No data from node 1."


def test_launchers_are_quiet_again_when_nobody_looks(tmp_path, monkeypatch):
    looking = patience.seconds(0.4)
    monkeypatch.setattr(status_relay, "LOOKING", looking)
    monkeypatch.setattr(status_relay, "PERIOD", 0.02)
    ends, sent, turns = [], [], {0: 0, 1: 0, 2: 0}
    touched = status_relay.StatusRelay._is_looked_at

    def look(end, path):
        turns[end._node] += 1
        return touched(end, path)

    def after_turns(count):
        """Waits until each launcher has checked for a viewer this many times."""
        begun = dict(turns)
        patience.until(lambda: all(turns[node] >= begun[node] + count for node in turns))

    monkeypatch.setattr(status_relay.StatusRelay, "_is_looked_at", look)
    for node in range(3):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / str(node)))
        (tmp_path / str(node)).mkdir()
        notice = LaunchStatus({"node": node, "nodes": 3})
        notice.show(workers={str(node): (os.getpid(), None)})

        def tell(message, nodes, node=node):
            for other in ends:
                to = other._node
                wanted = nodes if node == 0 else {0}
                if to != node and (wanted is None or to in wanted):
                    sent.append((node, to, message["op"]))
                    other.hear(node, json.loads(json.dumps(message)))

        ends.append(status_relay.StatusRelay(notice, node, tell))
    after_turns(3)
    assert not sent
    looked = ends[1]._notice.folder / "looked"
    looked.touch()
    patience.until(lambda: (0, 1, "shown") in sent)
    os.utime(looked, (0, 0))  # a viewer that has ended
    # Launchers keep checking for a while after a viewer's request, and then stop.
    patience.until(
        lambda: (
            not any(time.monotonic() - at < looking for end in ends for at in end._looks.values())
        )
    )
    after_turns(2)
    assert {*sent} == {
        (1, 0, "look"),
        (0, 1, "look"),
        (0, 2, "look"),
        (1, 0, "shown"),
        (2, 0, "shown"),
        (0, 1, "shown"),
    }
    sent.clear()
    after_turns(3)
    assert not sent
    for end in ends:
        names = sorted(path.name for path in end._notice.folder.iterdir())
        own = {0: ["node-1", "node-2"], 1: ["node-0", "node-2"], 2: []}[end._node]
        assert names == ["launch", "looked", *own]
        end.end()
        end._notice.remove()


def test_rows_of_other_machines_are_only_numbers_and_plain_texts():
    row = Process(3, 7, "runs\x1b[2J", 5, 1.5, None, 2, None, facts={"a\n": 1}, host="h" * 999)
    there = Process.of_another(json.loads(json.dumps(row._asdict())))
    assert there.state == "runs?[2J" and there.facts == {"a?": 1.0} and len(there.host) == 500
    assert there[3:8] == (5, 1.5, None, 2, None)
    for wrong in ({"rank": "x"}, {"step": []}, {"facts": 5}):
        with pytest.raises((ValueError, TypeError)):
            Process.of_another({**row._asdict(), **wrong})
    lost = Process.of_another({**row._asdict(), "facts": {"loss": nan, "norm": inf}})
    assert "loss nan  norm inf" in table(Launched({"nodes": 2}, [lost]))
    (worker,) = Launched({"nodes": 2}, [lost]).record()["workers"]
    assert worker["facts"] == {"loss": "nan", "norm": "inf"}  # JSON has no such numbers
    names = (
        "rank",
        "pid",
        "step",
        "steps_per_second",
        "tokens_per_second",
        "resident_bytes",
        "device_bytes",
        "waited",
    )
    for wrong in [{name: value} for name in names for value in (nan, inf, -inf)]:
        with pytest.raises(ValueError, match=r"^a number that is not finite: (nan|-?inf)$"):
            Process.of_another({**row._asdict(), **wrong})
    for wrong in ({"step": 10**400}, {"facts": {"loss": 10**400}}):
        with pytest.raises(OverflowError):
            Process.of_another({**row._asdict(), **wrong})


def a_process_that_waits(place):
    with Launch("-n", "2", "{}", "waits", source=TRAINS, env=place) as running:
        running.until(lambda: len(running.lines()) == 2)
        waits = running.until(
            lambda: [p for p in record(place)["workers"] if p["state"] == "waits"]
        )
        table = top(place, "--once")[1]
    (process,) = waits
    assert process["rank"] == 1 and process["waited"] > 1
    assert process["waits"].startswith("sync_global_devices('the others') at ")
    assert "  for sync_global_devices('the others') at " in table.splitlines()[3]


def a_process_that_is_stopped(place):
    with Launch("-n", "2", source=TRAINS, env=place) as running:
        running.until(lambda: len(running.lines()) == 2)
        psutil.Process(running.pid(1)).suspend()
        states = [p["state"] for p in record(place)["workers"]]
        psutil.Process(running.pid(1)).resume()
    assert states == ["runs", "stopped"]


def restarts(place):
    words = ["-n", "2", "--restarts", "3", "--min-processes", "1", "{}", "fails"]
    with Launch(*words, source=TRAINS, env=place) as running:
        running.said("[1] thirty")  # it gets this far the second time
        launch = record(place)
        table = top(place, "--once")[1]
        psutil.Process(running.pid(1)).kill()
        running.said("generation 2 starts with 1 process", "err")
        fewer = running.until(
            lambda: [line for line in top(place, "--once")[1].splitlines() if "restarts: 2" in line]
        )
    assert (launch["generation"], launch["restarts"]) == (1, 3)
    said = table.splitlines()[1]
    assert said.startswith("restarts: 1 of 3: process 1 (host ")
    assert said.endswith("failed with exit status 1")
    assert fewer[0].startswith("restarts: 2 of 3, with 1 of 2 processes: process 1 (host ")
    assert fewer[0].endswith("was killed by SIGKILL (the kernel does this when memory runs out)")


def programs_that_report_nothing(place):
    source = "import time\nprint('here', flush=True)\ntime.sleep(10**4)\n"
    with Launch("-n", "2", source=source, env=place) as running:
        running.until(lambda: len(running.lines()) == 2)
        launch = record(place)
        table = top(place, "--once")[1]
    for process in launch["workers"]:
        assert (process["state"], process["step"], process["device_bytes"]) == ("runs", None, None)
        assert process["resident_bytes"] > 2**20
    assert table.splitlines()[2].split()[2:6] == ["runs", "-", "-", "-"]


def a_launcher_that_was_killed(place):
    with Launch("-n", "1", source=TRAINS, env=place) as running:
        running.until(running.lines)
        running.signal(signal.SIGKILL)
        running.process.wait()
        assert top(place)[0] == 1
        assert os.listdir(f"{place['XDG_RUNTIME_DIR']}/shardwise") == [str(running.process.pid)]
    with Launch("-n", "1", source="print(1)", env=place) as running:
        running.done()
    assert os.listdir(place["XDG_RUNTIME_DIR"]) == []  # neither its files nor the folder


OTHERS = [
    a_process_that_waits,
    a_process_that_is_stopped,
    restarts,
    programs_that_report_nothing,
    a_launcher_that_was_killed,
]


@pytest.mark.parametrize("case", everyday(OTHERS, 2 / 5), ids=lambda case: case.__name__)
def test_others(case, place):
    case(place)
