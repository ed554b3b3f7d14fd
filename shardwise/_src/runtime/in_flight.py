"""Bounds the number of programs over several devices that are in flight on CPU.

XLA's CPU backend has as many threads as devices. A program with collectives needs all of them
simultaneously; and if 32 programs are in flight, launching another one waits on such a thread for
one of them. So programs that are not waited for deadlock, and XLA ends the process after 40 s
(jaxlib 0.10 and 0.11), if even one of them has collectives. The bound applies to the whole process,
regardless of the programs' devices: while programs with collectives are in flight, at most `LIMIT`
are. Others are recorded, since a process waits for them at its end. A launch that finds too many
older ones waits for the first half of these; so most launches check nothing. Launches of other
threads that find them wait for it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import RLock
from typing import Any

from shardwise._src.runtime import processes

LIMIT = 16
MANY = 48  # without collectives: more than XLA keeps in flight, so the older half has ended


class _Tokens(list[Any]):
    """Tokens that are waited for together."""

    def block_until_ready(self) -> None:
        """Waits for the last one first. Ignores errors, which users of the results will see."""
        for token in reversed(self):
            try:  # noqa: SIM105 (costs nothing, unlike `suppress`)
                token.block_until_ready()
            except RuntimeError:
                pass


class Window:
    """The tokens of the last launches, which are ready when these have ended.

    Results would not do: a later program that they are donated to deletes them.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Any, bool]] = deque()
        self._communicates = False  # whether any of them has collectives
        self._waiting = RLock()

    def admit(self, collectives: bool) -> None:
        """Waits until another program, with or without collectives, may be launched."""
        limit = LIMIT if collectives or self._communicates else MANY
        if len(self._pending) >= limit:
            self._wait_for_oldest(limit)

    def _wait_for_oldest(self, limit: int) -> None:
        """Leaves half as many. Waits for the last of the others first, as these usually have
        ended by then."""
        with self._waiting:
            if len(self._pending) < limit:  # another thread has waited
                return
            oldest = _Tokens([token for token, _ in list(self._pending)][: -limit // 2])
            processes.wait(oldest)
            with suppress(IndexError):  # another thread drains
                for _ in oldest:
                    self._pending.popleft()
            if not self._has_collectives():
                self._communicates = False
                self._communicates = self._has_collectives()  # others may record meanwhile

    def _has_collectives(self) -> bool:
        return any([collectives for _, collectives in list(self._pending)])

    def record(self, token: Any, collectives: bool) -> None:
        self._pending.append((token, collectives))
        if collectives:
            self._communicates = True

    def finish(self) -> None:
        """Waits for programs in flight; raises failures caused by another process."""
        for token, _ in list(self._pending):
            processes.wait(token)

    def settle(self) -> None:
        """Waits for programs in flight; ignores errors, which users of the results will see."""
        _Tokens([token for token, _ in list(self._pending)]).block_until_ready()

    def drain(self) -> BaseException | None:
        """Waits for all programs in flight; returns the first error of any of them."""
        first: BaseException | None = None
        while self._pending:
            try:
                processes.wait(self._pending.popleft()[0])
            except IndexError:  # another thread took the last one
                break
            except RuntimeError as error:
                first = first or error
        return first


CPU_WINDOW = Window()
