"""`shardwise top` beside running launches."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.helpers.launching import Launch
from tests.helpers.sampling import sampled

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
        [sys.executable, "-m", "shardwise", "top", *words], capture_output=True, text=True,
        timeout=60, env={**os.environ, **place},
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
        assert 5 < process["steps_per_second"] < 101
        rate = process["tokens_per_second"]
        assert rate == pytest.approx(64 * process["steps_per_second"], rel=1e-6)
        assert process["device_bytes"] == 2**20 // 2  # its part of x
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
    assert after == (1, "", (
        "shardwise top: no launch of this user is running on this machine (none in "
        f"{place['XDG_RUNTIME_DIR']}/shardwise). `shardwise launch -n 4 script.py` starts one.\n"
    ))


def a_process_that_waits(place):
    with Launch("-n", "2", "{}", "waits", source=TRAINS, env=place) as running:
        running.until(lambda: len(running.lines()) == 2)
        waits = running.until(lambda: [
            p for p in record(place)["workers"] if p["state"] == "waits"
        ])
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
    with Launch("-n", "2", "--restarts", "3", "{}", "fails", source=TRAINS, env=place) as running:
        running.said("[1] thirty")  # it gets there the second time
        launch = record(place)
        table = top(place, "--once")[1]
    assert (launch["generation"], launch["restarts"]) == (1, 3)
    said = table.splitlines()[1]
    assert said.startswith("restarts: 1 of 3: process 1 (host ")
    assert said.endswith("failed with exit status 1. The last that it wrote:")


def programs_that_report_nothing(place):
    source = "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
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
    assert os.listdir(f"{place['XDG_RUNTIME_DIR']}/shardwise") == []


OTHERS = [
    a_process_that_waits, a_process_that_is_stopped, restarts, programs_that_report_nothing,
    a_launcher_that_was_killed,
]


@pytest.mark.parametrize("case", sampled(OTHERS, 2 / 5), ids=lambda case: case.__name__)
def test_others(case, place):
    case(place)
