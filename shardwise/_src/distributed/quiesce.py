"""Determines when this process no longer needs another one that wants to exit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from shardwise._src.runtime.in_flight import CPU_WINDOW

PAUSE = 0.01  # seconds between looks


class Launches(Protocol):
    """What `Watch` knows of the launches and waits of this process."""

    def launched(self) -> Mapping[str, int]: ...
    def waiting(self) -> Iterable[tuple[float, str, Any]]: ...
    def goes_on(self) -> bool: ...
    def settled(self, number: int) -> None: ...


def answer(watch: Launches, message: dict[str, Any]) -> None:
    """Answers once this process has launched the programs that others have, and has the results.

    message: `sets` has the number of launches of other processes, by set of processes.
    """
    sets: dict[str, int] = message["sets"]

    def is_behind() -> bool:
        mine = watch.launched()
        return any(key in mine and mine[key] < count for key, count in sets.items())

    def waits_since(then: float) -> bool:
        return any(kind == "launch" and since <= then for since, kind, _ in watch.waiting())

    while is_behind() and watch.goes_on():
        time.sleep(PAUSE)
    now = time.monotonic()
    CPU_WINDOW.settle()
    while waits_since(now) and watch.goes_on():
        time.sleep(PAUSE)
    watch.settled(message["number"])
