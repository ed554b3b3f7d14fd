"""Bounds the programs over several devices that are in flight on CPU.

XLA's CPU backend runs the parts of all devices on as many threads as there are devices. A program
with collectives needs all of them at once; and the launch of a program when 32 are in flight waits
for one on such a thread. So un-awaited programs deadlock, and XLA ends the process after 40 s
(jaxlib 0.10 and 0.11), if but one of them has collectives. The bound is one for the process,
whichever devices the programs run on. A launch that finds `LIMIT` older ones waits for the first
half of these; so most launches ask nothing.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from shardwise._src.runtime import processes

LIMIT = 16
HALF = LIMIT // 2


def _is_deleted(output: Any) -> bool:
    asked = getattr(output, "is_deleted", None)  # tokens have none
    return asked is not None and asked()


def _has_ended(output: Any) -> bool:
    """Whether it is known that the launch has ended."""
    is_ready = getattr(output, "is_ready", None)
    return is_ready is not None and (output.is_deleted() or is_ready())


class Window:
    """The last launches."""

    def __init__(self) -> None:
        self._pending: deque[Any] = deque()

    def admit(self) -> None:
        """Waits until another program may be launched."""
        if len(self._pending) >= LIMIT:
            self._wait_for_some()

    def _wait_for_some(self) -> None:
        """Waits for the last of the older half first: as a rule the others have ended then."""
        oldest: list[Any] = []
        with suppress(IndexError):  # another thread took the last one
            for _ in range(HALF):
                oldest.append(self._pending.popleft())
        for output in reversed(oldest):
            with suppress(RuntimeError):  # of whoever wants the result, or it was deleted just now
                if not _is_deleted(output):
                    processes.wait(output)

    def record(self, output: Any) -> None:
        """Notes a launch by one of its results, which is kept until the launch has ended, or by
        its token, which says only when asked to wait."""
        self._pending.append(output)

    def finish(self) -> None:
        """Waits for what is in flight; what fails is an error here, if another process is why."""
        for output in list(self._pending):
            if not _has_ended(output):
                processes.wait(output)

    def settle(self) -> None:
        """Waits for what is in flight, and leaves errors to those that want the results."""
        for output in list(self._pending):
            with suppress(RuntimeError):
                output.block_until_ready()

    def drain(self) -> BaseException | None:
        """Waits for all that is in flight; gives the first error that it ends with."""
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
