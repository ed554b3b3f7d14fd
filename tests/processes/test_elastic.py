"""Programs that resume from their last checkpoint: after kills, after a stop, on fewer processes.

The program is the one in docs/processes.md. Its values are exact: the final result does not
depend on where the program was stopped, or on how many processes it ran.
"""

import itertools
import random
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from shardwise import checkpoints
from tests.helpers.everyday import Run
from tests.helpers.launching import Launch
from tests.helpers.patience import until

pytest.importorskip("tensorstore")
pytestmark = pytest.mark.processes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "processes.md"
EVERY = 10


def program(steps, pause=0.0, holds=()):
    """The program of the page, with this many steps; it prints each step.

    holds: for each generation, the step at which it waits until it is killed.
    """
    hold = f"    if (int(os.environ['SHARDWISE_GENERATION']), step + 1) in {[*enumerate(holds)]}:\n"
    source = re.findall(r"^```python train\.py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)[0]
    for old, new in (
        ("400, 10", f"{steps}, {EVERY}"),
        (
            "    report_progress(step + 1)\n",
            f"    print('at step', step + 1, flush=True); time.sleep({pause})\n"
            f"{hold}        time.sleep(10**4)\n",
        ),
        ("import sys\n", "import os, sys, time\n"),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


def expected(steps):
    w = np.arange(24, dtype=np.int32)
    for step in range(steps):
        w = (5 * w + step) % 1009
    return w


def numbers(lines, text, rank=0):
    return [int(m[1]) for x in lines if (m := re.fullmatch(rf"\[{rank}\] {text} (\d+)", x))]


def final(path, steps):
    """Finishes the program in one process, checks its checkpoint, and returns its first step."""
    with Launch("-n", "1", "{}", str(path), source=program(steps)) as running:
        done = running.done()
    assert (done.status, done.err) == (0, [])
    state = checkpoints.restore(path)
    assert state["step"] == steps
    np.testing.assert_array_equal(state["w"], expected(steps))
    return numbers(done.out, "from step")[0]


def generations(lines):
    """For each generation, from rank 0: its start step, the last step done, the last step saved."""
    rows = []
    for line in lines:
        if m := re.fullmatch(r"\[0\] (from|at|saved) step (\d+)", line):
            if m[1] == "from":
                rows.append({"from": int(m[2]), "at": int(m[2]), "saved": int(m[2])})
            elif rows:
                rows[-1][m[1]] = int(m[2])
    return rows


def so_far(running):
    return generations((running.path / "out").read_text().splitlines())


def nothing_is_lost(rows):
    """Except for the work after the last checkpoint."""
    for before, after in itertools.pairwise(rows):
        assert before["saved"] <= after["from"] <= before["at"] + 1, rows
        assert before["at"] - after["from"] <= EVERY, rows


@pytest.mark.sweep
def test_a_killed_worker(tmp_path):
    path = tmp_path / "run"
    source = program(60, holds=(24,))
    with Launch("-n", "2", "--restarts", "2", "{}", str(path), source=source) as running:
        running.said("[0] at step 24")
        psutil.Process(running.pid(1)).kill()
        done = running.done()
    assert (done.status, done.left) == (0, [])
    rows = generations(done.out)
    assert rows[0]["from"] == 0 and rows[-1]["saved"] == 60
    assert len(rows) == 2 and rows[1]["from"] >= 20
    nothing_is_lost(rows)
    state = checkpoints.restore(path)
    np.testing.assert_array_equal(state["w"], expected(60))


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def killed(running, text, *ranks):
    """Kills processes after a text is written; for the launcher, all die at the same time."""
    running.said(text)
    processes = [psutil.Process(running.pid(rank)) for rank in ranks]
    launcher = psutil.Process(running.process.pid)
    running.signal(signal.SIGSTOP)
    until(lambda: launcher.status() == psutil.STATUS_STOPPED)
    for process in processes:
        process.kill()
    until(lambda: all(map(has_ended, processes)))
    running.signal(signal.SIGCONT)


def test_as_many_processes_less_as_were_killed(tmp_path):
    path = tmp_path / "run"
    words = ["-n", "4", "--restarts", "3", "--min-processes", "2", "{}", str(path)]
    with Launch(*words, source=program(60, holds=(14, 34))) as running:
        killed(running, "[0] at step 14", 3, 1)
        running.said("generation 1 starts", "err")
        killed(running, "[0] at step 34", 0)  # two is the minimum
        done = running.done()
    assert (done.status, done.left) == (0, [])
    nothing_is_lost(generations(done.out))
    said = "\n".join(done.err)
    for rank, count in enumerate([3, 3, 1, 1]):
        assert len(numbers(done.out, "from step", rank)) == count, said
    how = r"was killed by SIGKILL \(the kernel does this when memory runs out\)"
    host = r"\(host [^,]+, pid \d+\)"
    said = [line for line in done.err if line.startswith("shardwise launch: ")]
    assert len(said) == 2
    assert re.fullmatch(
        rf"shardwise launch: process [13] {host} {how}, process [13] {host} {how}; generation 1 "
        r"starts with 2 processes \(restart 1 of 3\)",
        said[0],
    )
    assert re.fullmatch(
        rf"shardwise launch: process 0 {host} {how}; generation 2 starts with 2 processes "
        r"\(restart 2 of 3\)",
        said[1],
    )
    state = checkpoints.restore(path)
    np.testing.assert_array_equal(state["w"], expected(60))


@pytest.mark.sweep
def test_sigterm_saves_first_and_fewer_processes_go_on(tmp_path):
    path = tmp_path / "run"
    words = ["-n", "2", "--grace", "30", "--restarts", "2", "{}", str(path)]
    with Launch(*words, source=program(10_000, 0.02)) as running:
        running.said("[1] at step 13")
        running.signal(signal.SIGTERM)
        done = running.done()
    assert (done.status, done.left) == (143, [])
    (row,) = generations(done.out)
    assert row["saved"] >= row["at"] > 12  # the very last step, whether or not it ends an interval
    assert numbers(done.out, "saved step")[-1] == numbers(done.out, "saved step", 1)[-1]
    assert "shardwise launch: stopped by SIGTERM" in done.err
    assert final(path, row["saved"] + 7) == row["saved"]


def run_with_failures(count, path, seed):
    """Resumes after this many failures, one every few seconds; returns the output of rank 0."""
    dice = random.Random(seed)
    words = ["-n", "2", "--grace", "30", "--restarts", "1000", "{}", str(path)]
    failures = 0
    with Launch(*words, source=program(10**6, 0.02)) as running:
        while failures < count:
            running.until(lambda failures=failures: so_far(running)[failures:])
            time.sleep(dice.uniform(0.0, 2.0))
            number = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
            with suppress(psutil.Error):
                psutil.Process(running.pid(dice.randrange(2))).send_signal(number)
                failures += 1
        running.until(lambda: so_far(running)[failures:])
        running.signal(signal.SIGTERM)
        done = running.done()
    assert (done.status, done.left) == (143, [])
    return generations(done.out)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [7, 11])
def test_a_day_with_a_failure_every_few_seconds(seed, tmp_path, record_property):
    path = tmp_path / "run"
    failures = 10 if Run.sweep else 1
    rows = run_with_failures(failures, path, seed)
    assert len(rows) >= failures + 1
    nothing_is_lost(rows)
    record_property("failures that a program went on after", failures)
    assert final(path, rows[-1]["saved"] + 3) == rows[-1]["saved"]
