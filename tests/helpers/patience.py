"""Deadlines of tests, which grow with how busy this machine is.

    until(lambda: path.exists())              # polls; raises TimeoutError after 60 s
    subprocess.run(line, timeout=seconds(60))

Tests wait for events; a deadline only ends what hangs. `seconds(n)` is what takes n seconds on a
quiet machine: n times as long as the start of a process takes now, over what it takes there. Time
limits of the library (heartbeats, waits) are set from it, too, where a test needs short ones.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

START = "import shardwise.numpy as jnp; float(jnp.ones(3).sum())"
QUIET = 1.5  # seconds that START takes at most on a quiet machine
AGAIN = 120  # seconds after which it is measured again

_measured: list[tuple[float, float]] = []  # when, and how slow


def measure() -> float:
    """How many times as long as on a quiet machine the start of a process takes; at least 1."""
    slow = _start()
    if slow > 2:  # something else may have come between, or the files were not in memory
        slow = min(slow, _start())
    _measured[:] = [(time.monotonic(), max(1.0, slow))]
    return max(1.0, slow)


def _start() -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", START], check=True, capture_output=True)
    return (time.monotonic() - begin) / QUIET


def seconds(n: float) -> float:
    """What takes n seconds on a quiet machine; a whole number of them if this one is busy."""
    if not _measured or time.monotonic() - _measured[0][0] > AGAIN:
        measure()
    slow = _measured[0][1]
    return n if slow == 1.0 else math.ceil(n * slow)


class Deadline:
    """Over after what takes n seconds on a quiet machine.

    It adds up parts of the time that has passed, each divided by how busy the machine was in it:
    a machine that was busy and is quiet at the end had less time than the clock says.
    """

    def __init__(self, n: float):
        self.n, self.last = n, time.monotonic()
        self.spent = 0.0  # seconds of a quiet machine until `last`
        self.slow = _measured[0][1] if _measured else 1.0
        self.next = self.last + n  # before that it is not over on any machine

    def is_over(self) -> bool:
        now = time.monotonic()
        if now < self.next:
            return False
        slow = measure()  # what this takes counts for the next part
        self.spent += (now - self.last) / max(self.slow, slow)
        self.last, self.slow = now, slow
        self.next = now + max((self.n - self.spent) * slow / 2, self.n / 4)
        return self.spent >= self.n


def until(
    condition: Callable[[], Any], n: float = 60, about: Callable[[], str] = lambda: ""
) -> Any:
    """Polls until a condition gives something true, and returns it.

    Raises:
      TimeoutError: if that takes too long, with what `about` gives.
    """
    deadline = Deadline(n)
    while not (found := condition()):
        if deadline.is_over():
            raise TimeoutError(f"not within {n} s of a quiet machine\n{about()}")
        time.sleep(0.02)
    return found
