"""Progress on a terminal: the output of programs that run under a pty."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise._src.base import progress as module
from shardwise._src.base.progress import duration, progress

pty = pytest.importorskip("pty")
ROOT = Path(__file__).parents[2]

START = """
import sys, threading, time
from shardwise._src.base import progress as module
from shardwise._src.base.progress import progress
module.PATIENCE, module.TICK = 0.25, 0.125

def drawing():
    return [t for t in threading.enumerate() if t.name == "shardwise-progress"]

class Clock:
    # Time passes in `go` alone, which waits until all is drawn that is due.

    now, ends, changed = 0.0, -1.0, threading.Condition()

    def monotonic(self):
        return self.now

    def sleep(self, seconds):  # by the thread that draws
        with self.changed:
            self.ends = self.now + seconds
            self.changed.wait_for(lambda: self.now >= self.ends)

    def go(self, seconds):
        for _ in range(int(seconds * 16)):
            with self.changed:
                self.wait()
                self.now += 1 / 16
                self.changed.notify_all()
                self.wait()

    def wait(self):
        while drawing() and self.ends <= self.now:
            self.changed.wait(0.01)

module.time = clock = Clock()
"""


def on_terminal(program, columns=80, **environment):
    """The output of a program to a terminal, as its standard error, and to a pipe."""
    main, end = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment}
    env.pop("PYTEST_CURRENT_TEST", None)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", START + program],
        stderr=end,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=env,
        text=True,
    )
    os.close(end)
    seen = b""
    while True:
        try:
            got = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        seen += got
    os.close(main)
    out, _ = process.communicate(timeout=60)
    text = seen.decode()
    assert process.returncode == 0, text
    return text, out


def lines(text):
    """The successive contents of the line; "" is an empty line."""
    assert "\n" not in text, text
    first, *found = text.split("\r\x1b[2K")
    assert first == ""
    return found


def test_a_line_with_rate_and_remaining_time_that_vanishes():
    text, out = on_terminal("""
with progress("saving", total=100 << 20) as bar:
    for _ in range(10):
        clock.go(0.125)
        bar.add(10 << 20)
print(len(drawing()))
clock.go(0.5)
print(len(drawing()))
""")
    assert lines(text) == [
        f"saving: {n}0.0 MiB of 100.0 MiB ({n}0 %), {rate} MiB/s, {left} s left"
        for n, rate, left in [
            (1, "40.0", 2),
            (2, "53.3", 1),
            (3, "60.0", 1),
            (4, "64.0", 0),
            (5, "66.7", 0),
            (6, "68.6", 0),
            (7, "70.0", 0),
            (8, "71.1", 0),
            (9, "72.0", 0),
        ]
    ] + [""]
    assert out.split() == ["1", "0"]  # the thread ends if there is nothing to draw


def test_without_a_total_the_time_is_told():
    text, _ = on_terminal("""
with progress("compiling step"):
    clock.go(1.5)
""")
    assert lines(text) == ["compiling step: 0 s"] * 6 + ["compiling step: 1 s"] * 5 + [""]


def test_short_operations_show_nothing_and_share_a_thread():
    text, out = on_terminal("""
started = []
real = threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), real(self))[1]
with progress("short"):
    clock.go(0.0625)
for _ in range(200):
    with progress("short"):
        pass
clock.go(0.125)
with progress("short"):
    clock.go(0.1875)
print(len(started))
""")
    assert text == ""
    assert int(out) == 1


@pytest.mark.parametrize(
    ("environment", "before"),
    [
        ({"SHARDWISE_SHOW_PROGRESS": "0"}, ""),
        ({"TERM": "dumb"}, ""),
        ({}, "import shardwise; shardwise.config.update('show_progress', False)\n"),
        ({}, "import os; os.environ['PYTEST_CURRENT_TEST'] = 'test'\n"),
        ({}, "real, sys.stderr = sys.stderr, open('/dev/null', 'w')\n"),
        ({}, "sys.stderr = None\n"),
        ({}, "sys.stderr = open('/dev/null', 'w'); sys.stderr.close()\n"),
    ],
)
def test_silent(environment, before):
    text, out = on_terminal(
        before
        + """
with progress("saving") as bar:
    clock.go(0.5)
    bar.add(3)
    print(len(drawing()))
""",
        **environment,
    )
    assert text == "" and out.strip() == "0"


def test_errors_take_the_line_away():
    text, _ = on_terminal("""
try:
    with progress("saving"):
        clock.go(0.5)
        raise ValueError
except ValueError:
    pass
""")
    assert lines(text) == ["saving: 0 s"] * 3 + [""]


def test_one_line_at_a_time():
    """The oldest one is shown, then the next."""
    text, _ = on_terminal("""
bars = [progress(name) for name in ("first", "second", "third")]
for bar in bars:
    bar.__enter__()
    clock.go(0.125)
bars[1].__exit__(None, None, None)
clock.go(0.125)
bars[0].__exit__(None, None, None)
clock.go(0.125)
bars[2].__exit__(None, None, None)
""")
    assert lines(text) == ["first: 0 s", "first: 0 s", "first: 0 s", "third: 0 s", ""]


def test_forty_at_once():
    text, out = on_terminal("""
def work(i):
    with progress(f"task {i}", total=100, unit="files") as bar:
        for _ in range(10):
            clock.go(0.0625)
            bar.add(10)
    return bar.done

done = []
threads = [threading.Thread(target=lambda i=i: done.append(work(i))) for i in range(40)]
for t in threads: t.start()
for t in threads: t.join()
print(set(done), len(module._SCREEN.bars))
""")
    found = lines(text)
    assert found[-1] == "" and found[0].startswith("task ")
    assert out.split() == ["{100}", "0"]


def test_adding_from_threads_loses_nothing():
    _, out = on_terminal("""
sys.setswitchinterval(1e-6)
with progress("saving", total=80_000, unit="files") as bar:
    def work():
        for _ in range(10_000):
            bar.add(1)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(bar.done)
""")
    assert out.strip() == "80000"


def test_narrow_terminals():
    text, _ = on_terminal(
        """
with progress("a long name of something that is going on", total=100) as bar:
    bar.add(1)
    clock.go(0.5)
""",
        columns=24,
    )
    assert lines(text) == ["a long name of somethin"] * 3 + [""]


def test_a_forked_child_draws_nothing():
    text, out = on_terminal("""
import os, warnings
warnings.simplefilter("ignore")
with progress("saving"):
    child = os.fork()
    if not child:
        print(len(drawing()), len(module._SCREEN.bars), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    clock.go(0.5)
""")
    assert out.split() == ["0", "0"]
    assert lines(text) == ["saving: 0 s"] * 3 + [""]


@pytest.mark.sweep
def test_compiling_is_shown():
    """The compiler lets other threads run, so that the line is updated."""
    text, _ = on_terminal(
        """
module.PATIENCE, module.TICK, module.time = 0.05, 0.02, time
import numpy as np, shardwise as sw
import shardwise.numpy as jnp

@sw.jit
def deep(x):
    for i in range(150):
        x = jnp.sin(x @ x) + i
    return x

deep(np.ones((4, 4), np.float32))
""",
        SHARDWISE_ENABLE_COMPILATION_CACHE="0",
    )
    found = lines(text)
    assert "compiling deep: 0 s" in found and found[-1] == ""


# ------------------------------------------------------------------------------------------- texts


def test_texts(monkeypatch):
    bar = progress("saving", total=1 << 32)
    bar.start, bar.samples = 100.0, module.deque([(100.0, 0)], module.SAMPLES)
    assert bar.text(102.0) == "saving: 0 B of 4.0 GiB (0 %), 0 B/s"
    bar.done = 1 << 30
    assert bar.text(104.0) == "saving: 1.0 GiB of 4.0 GiB (25 %), 256.0 MiB/s, 12 s left"
    files = progress("reading", total=3, unit="files")
    files.start, files.samples = 0.0, module.deque([(0.0, 0)], module.SAMPLES)
    files.done = 1
    assert files.text(10.0) == "reading: 1 of 3 files (33 %), 0.10/s, 20 s left"
    open_end = progress("reading")
    open_end.start, open_end.samples = 0.0, module.deque([(0.0, 0)], module.SAMPLES)
    assert open_end.text(65.0) == "reading: 1 min 05 s"
    open_end.done = 2048
    assert open_end.text(66.0).startswith("reading: 2.0 KiB, ")


def test_rates_are_of_the_last_seconds():
    bar = progress("saving", total=10_000, unit="files")
    bar.start, bar.samples = 0.0, module.deque([(0.0, 0)], module.SAMPLES)
    text = ""
    for tick in range(200):  # 1 a second, then 10
        bar.done += 1 if tick < 100 else 10
        text = bar.text(float(tick + 1))
    assert "10 files/s" in text
    assert text.endswith(f"{duration((10_000 - bar.done) / 10)} left")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59.9, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3660, "1 h 01 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_cost_where_nobody_looks():
    """Under pytest: no thread, and no lock is taken."""
    before = module._SCREEN.lock
    module._SCREEN.lock = None
    try:
        for _ in range(10):
            with progress("short") as bar:
                bar.add(1)
    finally:
        module._SCREEN.lock = before
    assert module._SCREEN.thread is None and not module._SCREEN.bars


# ----------------------------------------------------------------------- the library's own progress


def test_trees_that_are_put_somewhere():
    text, _ = on_terminal("""
import numpy as np, shardwise as sw
from shardwise._src.transfers import transfer

real = transfer.put_host
def slow(*args, **options):
    clock.go(0.125)
    return real(*args, **options)
transfer.put_host = slow
sw.device_put([np.ones(3)] * 10)
sw.device_put([np.ones(3)] * 10, [sw.devices()[0]] * 10)
""")
    found = [line for line in lines(text) if "compiling" not in line]
    pattern = r"device_put: (\d+) of 10 arrays \(\d+ %\), [\d.]+( arrays)?/s(, \d+ s left)?"
    matched = [re.fullmatch(pattern, line) for line in found if line]
    assert matched and all(matched), found
    counts = [int(m[1]) for m in matched if m]
    assert sum(b < a for a, b in itertools.pairwise(counts)) == 1  # there were two
    assert found[-1] == ""


def test_checkpoints(tmp_path):
    pytest.importorskip("tensorstore")
    text, _ = on_terminal(
        f"""
module.PATIENCE, module.TICK, module.time = 0.0, 0.01, time
import numpy as np
from shardwise import checkpoints

drawn, draw, leave = set(), module._Screen._draw, progress.__exit__

def leave_when_drawn(bar, *error):
    while bar.what.startswith(("saving", "restoring")) and bar.what not in drawn:
        time.sleep(0.001)
    leave(bar, *error)

module._Screen._draw = lambda self, bar, now: (draw(self, bar, now), drawn.add(bar.what))
progress.__exit__ = leave_when_drawn
values = [np.ones((256, 1024), np.float32) + i for i in range(20)]
checkpoints.save({str(tmp_path / "ckpt")!r}, values)
found = checkpoints.restore({str(tmp_path / "ckpt")!r})
assert all(np.array_equal(a, b) for a, b in zip(values, found))
""",
        columns=200,
    )
    found = lines(text)
    assert any(line.startswith(f"saving {tmp_path}/ckpt: ") for line in found), found
    assert any(line.startswith(f"restoring {tmp_path}/ckpt: ") for line in found), found
    assert all("of 20.0 MiB" in line for line in found if line.startswith(("saving", "restoring")))
    assert found[-1] == ""
