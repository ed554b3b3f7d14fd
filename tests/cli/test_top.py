"""The live screen of `shardwise top`, on a terminal; launches are tested in tests/processes."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time

import pytest

from shardwise._src.cli import top as command
from shardwise._src.distributed.status_files import LAUNCH, folder, make_private, write
from tests.helpers.patience import Deadline, seconds

pty = pytest.importorskip("pty")
pytest.importorskip("rich")
ENDS = "Ctrl-C ends this view, not the programs."


class Shown:
    """A fake launch: this process is the launcher and all its workers."""

    def __init__(self, count):
        make_private(folder())
        self.at = folder() / str(os.getpid())
        self.at.mkdir(mode=0o700)
        workers = {str(rank): [os.getpid(), None] for rank in range(count)}
        facts = {"pid": os.getpid(), "host": "here", "command": ["train.py"]}
        write(self.at / LAUNCH, {**facts, "started": time.time() - 75, "workers": workers})
        self.cards = [self.at / f"rank-{rank}" for rank in range(count)]
        self.step(5)

    def step(self, number):
        about = {"pid": os.getpid(), "at": time.time() + 3600, "steps_per_second": 2.5}
        for card in self.cards:
            write(card, {**about, "step": number, "facts": {"loss": 0.5}})

    def end(self):
        (self.at / LAUNCH).unlink()


class Screen:
    """`shardwise top` on a terminal of so many lines and columns."""

    def __init__(self, lines, columns):
        import termios

        self.main, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shardwise", "top", "--interval", "0.1"],
            stdin=end,
            stdout=end,
            stderr=end,
            env={**env, "TERM": "xterm"},
        )
        os.close(end)
        self.seen = ""

    def read(self, seconds):
        """Whether there was something to read."""
        if not select.select([self.main], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self.main, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += got.decode()
        return bool(got)

    def until(self, text):
        """The displayed lines, once they contain a text."""
        deadline = Deadline(60)
        while not deadline.is_over():
            self.read(1.0)
            if "\x1b[H" in self.seen:
                *_, whole, _ = ["", *self.seen.split("\x1b[H")]
                lines = [line.rstrip() for line in whole.replace("\r", "").split("\n")]
                if text in whole:
                    return lines[: max(i for i, line in enumerate(lines) if line) + 1]
        raise TimeoutError(self.seen[-3000:])

    def ended(self, number):
        """The exit status after a signal; asserts that the terminal is restored."""
        self.process.send_signal(number)
        status = self.process.wait(seconds(60))
        while self.read(0.2):
            pass
        assert self.seen.startswith("\x1b[?1049h")
        assert self.seen.endswith("\x1b[?25h\x1b[?1049l")  # cursor and screen are restored
        return status

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = []

    def of(count, lines, columns):
        launch = Shown(count)
        found.append(Screen(lines, columns))
        return launch, found[-1]

    yield of
    for one in found:
        one.close()


def test_it_is_kept_up_to_date(opened, tmp_path):
    launch, screen = opened(2, 24, 150)
    head, columns, *rows, empty, last = screen.until("      5      2.5")
    assert re.fullmatch(rf"train\.py   launcher {os.getpid()} on here, for 1:\d\d", head)
    assert columns.split() == "rank pid state step steps/s tokens/s memory devices".split()
    assert [row.split()[:5] for row in rows] == [
        [str(rank), str(os.getpid()), "runs", "5", "2.5"] for rank in range(2)
    ]
    assert rows[0].endswith("loss 0.5") and (empty, last) == ("", ENDS)
    launch.step(6)
    screen.until("      6      2.5")
    launch.end()
    *words, empty, last = screen.until("no launch of this user")
    assert " ".join(words) == (
        "shardwise top: no launch of this user is running on this machine (none in "
        f"{tmp_path}/shardwise). `shardwise launch -n 4 script.py` starts one."
    )
    assert (empty, last) == ("", ENDS)
    assert screen.ended(signal.SIGINT) == 0


def test_a_small_terminal_and_sigterm(opened):
    _, screen = opened(12, 10, 40)
    lines = screen.until(ENDS)
    assert len(lines) == 10 and all(len(line) <= 40 for line in lines)
    assert [line.split()[0] for line in lines[2:7]] == list("01234")  # one line each
    assert lines[6].endswith("…")
    assert lines[7:] == ["… and 7 lines that do not fit", "", ENDS]
    assert screen.ended(signal.SIGTERM) == 143


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--interval", "0"],
            "argument --interval: it must be a positive number of seconds; got '0'.",
        ),
        (
            ["--interval", "x"],
            "argument --interval: it must be a positive number of seconds; got 'x'.",
        ),
        (["here"], "argument pid: it must be an integer; got 'here'."),
    ],
)
def test_bad_usage(words, told, capsys):
    with pytest.raises(SystemExit) as end:
        command.run(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"shardwise top: error: {told}"
