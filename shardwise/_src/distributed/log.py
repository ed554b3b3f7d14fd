"""Failure messages for the user, on this process's standard error.

The caller continues even if standard error is closed or blocked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from shardwise._src.runtime import threads

SAID_WITHIN = 5.0  # seconds


def say(text: str) -> None:
    """Prints a message in one write."""

    _write(lambda: sys.stderr, f"\nshardwise: {text}\n")


def flush() -> None:
    """Flushes the program's standard output before this process is ended."""
    _write(lambda: sys.stdout, "")


def _write(stream: Callable[[], TextIO], text: str) -> None:
    def attempt() -> None:
        with suppress(Exception):  # a closed pipe, or any error of a replacement stream
            stream().write(text)
            stream().flush()

    threads.start(attempt, "speech").join(SAID_WITHIN)
