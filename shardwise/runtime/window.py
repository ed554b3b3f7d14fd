"""Bounds the collective programs in flight on CPU.

XLA's CPU backend deadlocks, then aborts, when more than 32 un-awaited multi-device programs with
collectives are queued (jaxlib 0.10 and 0.11). A launch therefore waits for the one that is
`LIMIT` launches older. Each set of devices has its own queue.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

LIMIT = 16

_queues: dict[tuple[Any, ...], Window] = {}
_lock = threading.Lock()


class Window:
    """The last launches on one set of devices."""

    def __init__(self) -> None:
        self._pending: deque[Any] = deque()

    def admit(self) -> None:
        """Waits until another program may be launched."""
        while len(self._pending) >= LIMIT:
            try:
                oldest = self._pending.popleft()
            except IndexError:  # another thread took it
                return
            if not oldest.is_deleted():
                oldest.block_until_ready()

    def record(self, output: Any) -> None:
        self._pending.append(output)


def window_for(devices: tuple[Any, ...]) -> Window:
    with _lock:
        return _queues.setdefault(devices, Window())
