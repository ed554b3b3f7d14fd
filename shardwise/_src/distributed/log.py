"""Failure messages for the user, on this process's standard error.

The caller continues even if standard error is closed or its reader does not read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from shardwise._src.runtime import threads

SAID_WITHIN = 5.0  # seconds


def say(text: str) -> None:
    """Prints a message in one write."""

    def write() -> None:
        sys.stderr.write(f"\nshardwise: {text}\n")
        sys.stderr.flush()

    _attempt(write)


def flush() -> None:
    """Flushes the program's standard output before this process is ended."""
    _attempt(lambda: sys.stdout.flush())


def _attempt(run: Callable[[], None]) -> None:
    def attempt() -> None:
        with suppress(Exception):  # a closed pipe, or any error of a replacement stream
            run()

    threads.start(attempt, "speech").join(SAID_WITHIN)
