"""Deadlines of tests, scaled by the load of this machine.

    until(lambda: path.exists())              # polls; raises TimeoutError after 60 s
    subprocess.run(line, timeout=seconds(60))

Tests wait for events; a deadline only ends a test that hangs. `seconds(n)` estimates the duration
here of work that takes n seconds on an idle machine: n times the ratio of the start-up time of a
process, now and there. Tests that need short library timeouts (heartbeats, waits) scale them, too.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

START = "import shardwise.numpy as jnp; float(jnp.ones(3).sum())"
QUIET = 1.5  # seconds: an upper bound for START on an idle machine
AGAIN = 120  # seconds between measurements

_measured: list[tuple[float, float]] = []  # when, and how slow


def measure() -> float:
    """The start-up time of a process relative to that on an idle machine; at least 1."""
    slow = _start()
    if slow > 2:  # another program may have interfered, or the files were not in memory
        slow = min(slow, _start())
    _measured[:] = [(time.monotonic(), max(1.0, slow))]
    return max(1.0, slow)


def _start() -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", START], check=True, capture_output=True)
    return (time.monotonic() - begin) / QUIET


def seconds(n: float) -> float:
    """The time for n seconds of work on an idle machine; an integer if this one is busy."""
    if not _measured or time.monotonic() - _measured[0][0] > AGAIN:
        measure()
    slow = _measured[0][1]
    return n if slow == 1.0 else math.ceil(n * slow)


class Deadline:
    """A deadline of n seconds of an idle machine.

    It adds up intervals of elapsed time, each divided by the load of the machine at that time:
    a machine that was busy and is idle at the end had less time than the clock says.
    """

    def __init__(self, n: float):
        self.n, self.last = n, time.monotonic()
        self.spent = 0.0  # idle-machine seconds until `last`
        self.slow = _measured[0][1] if _measured else 1.0
        self.next = self.last + n  # it cannot be over before, on any machine

    def is_over(self) -> bool:
        now = time.monotonic()
        if now < self.next:
            return False
        slow = measure()  # the time of this call counts for the next interval
        self.spent += (now - self.last) / max(self.slow, slow)
        self.last, self.slow = now, slow
        self.next = now + max((self.n - self.spent) * slow / 2, self.n / 4)
        return self.spent >= self.n


def until(
    condition: Callable[[], Any], n: float = 60, about: Callable[[], str] = lambda: ""
) -> Any:
    """Polls until a condition returns something true, and returns it.

    Raises:
      TimeoutError: if that takes too long, with the result of `about`.
    """
    deadline = Deadline(n)
    while not (found := condition()):
        if deadline.is_over():
            raise TimeoutError(f"not within {n} s of a quiet machine\n{about()}")
        time.sleep(0.02)
    return found
