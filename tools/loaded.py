"""Runs tests alongside busy loops, as on a shared machine, and always stops the loops at the end.

    python tools/loaded.py --times 3 -- tests/processes -q     # pytest's arguments follow --

The exit status is that of the first failing run, or 0. A busy loop ends with this process, even if
it is killed: the loop reads a pipe, and this process holds the other end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUSY = """
import os
os.set_blocking(0, False)
while True:
    for _ in range(10**5):
        pass
    try:
        if not os.read(0, 1):
            break
    except BlockingIOError:
        pass
"""


@contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts `count` processes that only consume CPU time."""
    end, ours = os.pipe()  # not inherited, so that it is closed when this process ends
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, "-c", BUSY], stdin=end))
        os.close(end)
        yield loops
    finally:
        os.close(ours)
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs tests alongside busy loops.")
    parser.add_argument("--times", type=int, default=1, help="runs, one after another")
    parser.add_argument("--loops", type=int, default=4, help="busy loops")
    parser.add_argument("arguments", nargs="*", help="of pytest, after --")
    asked = parser.parse_args()
    with busy(asked.loops):
        for run in range(asked.times):
            print(f"run {run + 1} of {asked.times} alongside {asked.loops} busy loops", flush=True)
            line = [sys.executable, "-m", "pytest", *asked.arguments]
            if status := subprocess.run(line, cwd=ROOT).returncode:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
