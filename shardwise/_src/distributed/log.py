"""What this process says to people of failures, on its standard error.

Whoever says it goes on where nobody can read it any more, or nobody does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from shardwise._src.runtime import threads

SAID_WITHIN = 5.0  # seconds


def say(text: str) -> None:
    """Prints in one piece."""

    def write() -> None:
        sys.stderr.write(f"\nshardwise: {text}\n")
        sys.stderr.flush()

    _attempt(write)


def flush() -> None:
    """Lets go of what the program has printed, before this process is ended."""
    _attempt(lambda: sys.stdout.flush())


def _attempt(run: Callable[[], None]) -> None:
    def attempt() -> None:
        with suppress(Exception):  # a closed pipe, or whatever stands in its place
            run()

    threads.start(attempt, "speech").join(SAID_WITHIN)
