"""Bounds the number of programs over several devices that are in flight on CPU.

XLA's CPU backend has as many threads as devices. A program with collectives needs all of them
simultaneously; and if 32 programs are in flight, launching another one waits on such a thread for
one of them. So programs that are not waited for deadlock, and XLA ends the process after 40 s
(jaxlib 0.10 and 0.11), if even one of them has collectives. The bound applies to the whole process,
regardless of the programs' devices. A launch that finds `LIMIT` older ones waits for the first half
of these; so most launches check nothing. Launches of other threads that find them wait for it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import RLock
from typing import Any

from shardwise._src.runtime import processes

LIMIT = 16
HALF = LIMIT // 2


def _is_deleted(output: Any) -> bool:
    asked = getattr(output, "is_deleted", None)  # tokens do not have it
    return asked is not None and asked()


def _has_ended(output: Any) -> bool:
    """Whether the launch is known to have ended."""
    is_ready = getattr(output, "is_ready", None)
    return is_ready is not None and (output.is_deleted() or is_ready())


class Window:
    """The last launches."""

    def __init__(self) -> None:
        self._pending: deque[Any] = deque()
        self._waiting = RLock()

    def admit(self) -> None:
        """Waits until another program may be launched."""
        if len(self._pending) >= LIMIT:
            self._wait_for_some()

    def _wait_for_some(self) -> None:
        """Waits for the last of the older half first: usually the others have ended by then."""
        with self._waiting:
            if len(self._pending) < LIMIT:  # another thread has waited
                return
            oldest = [self._pending[i] for i in range(HALF)]
            for output in reversed(oldest):
                with suppress(RuntimeError):  # raised for users of the result; or just deleted
                    if not _is_deleted(output):
                        processes.wait(output)
            with suppress(IndexError):  # another thread drains
                for _ in oldest:
                    self._pending.popleft()

    def record(self, output: Any) -> None:
        """Records a launch by one of its results, which is kept until the launch has ended, or by
        its token, which can only be waited for."""
        self._pending.append(output)

    def finish(self) -> None:
        """Waits for programs in flight; raises failures caused by another process."""
        for output in list(self._pending):
            if not _has_ended(output):
                processes.wait(output)

    def settle(self) -> None:
        """Waits for programs in flight; ignores errors, which users of the results will see."""
        for output in list(self._pending):
            with suppress(RuntimeError):
                output.block_until_ready()

    def drain(self) -> BaseException | None:
        """Waits for all programs in flight; returns the first error of any of them."""
        first: BaseException | None = None
        while self._pending:
            try:
                processes.wait(self._pending.popleft())
            except IndexError:  # another thread took the last one
                break
            except RuntimeError as error:
                first = first or error
        return first


CPU_WINDOW = Window()
