"""Determines when this process no longer needs another one that wants to exit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shardwise._src.runtime.in_flight import CPU_WINDOW

if TYPE_CHECKING:
    from shardwise._src.distributed.watch import Watch

PAUSE = 0.01  # seconds between looks


def quiesce(watch: Watch, sets: dict[str, int]) -> None:
    """Waits until this process has launched the programs that others have, and has the results.

    sets: the number of launches of other processes, by set of processes.
    """

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


def answer(watch: Watch, message: dict[str, Any]) -> None:
    quiesce(watch, message["sets"])
    watch.settled(message["number"])
