"""What a process knows of others: failures, meetings, and launches over sets of processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.distributed.put_values import Put

RECENT = 40  # launches that a beat tells of: more than may be in flight


Wait = tuple[float, str, str]  # since when, of which kind, for what


class Failure(NamedTuple):
    """What the coordinator says of a failure.

    kind: lost, followed (by what failed before), differ, absent, timeout, broken, or coordinator.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str
    at: float


class Meeting:
    """A wait of this process for others of a set."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.met = False
        self.payloads: list[Any] = []  # what all came with, by rank
        self.withdrawn = ""  # who did not come in time, in words


class Launches:
    """The launches over one set of processes."""

    def __init__(self, ranks: Sequence[int]):
        self.ranks = frozenset(ranks)
        self.count = 0  # of launches
        self.meetings = 0
        self.known: dict[str, int] = {}  # programs that all have launched, by digest; a number each
        self.order = 0  # of all launches, as one number
        # number, digest, name, turn among the launches of all sets
        self.recent: deque[tuple[int, str, str, int]] = deque(maxlen=RECENT)
        self.sent = 0
        self.put = Put()  # by this process, since the last launch
