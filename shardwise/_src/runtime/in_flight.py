"""Bounds the collective programs in flight on CPU.

XLA's CPU backend deadlocks, then aborts, when more than 32 un-awaited multi-device programs with
collectives are queued (jaxlib 0.10 and 0.11). All devices share its threads, so the bound is one
for the process, whichever devices the programs run on. A launch waits for the one that is `LIMIT`
launches older.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from shardwise._src.runtime import processes

LIMIT = 16


class Window:
    """The last launches."""

    def __init__(self) -> None:
        self._pending: deque[Any] = deque()

    def admit(self) -> None:
        """Lets go of what has ended, and waits until another program may be launched."""
        pending = self._pending
        try:
            while pending and (pending[0].is_deleted() or pending[0].is_ready()):
                pending.popleft()
            while len(pending) >= LIMIT:
                oldest = pending.popleft()
                if not oldest.is_deleted():
                    processes.wait(oldest)
        except (IndexError, RuntimeError):
            return  # another thread took the last one, or its owner deleted it just now

    def record(self, output: Any) -> None:
        """Notes a launch by one of its results, which is kept until the launch has ended."""
        self._pending.append(output)

    def finish(self) -> None:
        """Waits for what is in flight; what fails is an error here, if another process is why."""
        for output in list(self._pending):
            if not output.is_deleted():
                processes.wait(output)

    def drain(self) -> None:
        """Waits for all that is in flight."""
        while self._pending:
            with suppress(IndexError, RuntimeError):
                self._pending.popleft().block_until_ready()


CPU_WINDOW = Window()
