"""Finds the processes of a launch, and all their descendants, by a mark, and kills them.

Each process of a launch has a mark in its environment, which its children inherit in whatever
session they run. As a script, this is the guard of a launcher: a process that waits for the end of
its standard input. If that comes without the "done" message, the launcher was killed, and the guard
kills all processes with its mark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "SHARDWISE_LAUNCH"
LONGEST = 10.0  # seconds of killing
DONE = b"done\n"


def marked(mark: str) -> list[Any]:
    """The processes with a mark, as psutil objects."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def kill(processes: list[Any]) -> None:
    import psutil

    for process in processes:
        with suppress(psutil.Error, OSError):
            process.kill()


def kill_marked(mark: str, looks: int = 3) -> None:
    """Kills all processes with a mark, until several scans find none: one may start another."""
    deadline, quiet = time.monotonic() + LONGEST, 0
    while quiet < looks and time.monotonic() < deadline:
        found = marked(mark)
        kill(found)
        quiet = 0 if found else quiet + 1
        if quiet < looks:
            time.sleep(0.03)


class Guard:
    """The guard of this process; `dismiss` ends it."""

    def __init__(self, mark: str):
        script = str(Path(__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._write(json.dumps({"mark": mark, "path": sys.path}).encode() + b"\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def dismiss(self) -> None:
        assert self._process.stdin is not None
        self._write(DONE)
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    stream = sys.stdin.buffer
    asked = json.loads(stream.readline() or b"{}")
    if stream.read() == DONE or not asked:
        return
    sys.path[:] = asked["path"]
    kill_marked(asked["mark"])


if __name__ == "__main__":
    main()
