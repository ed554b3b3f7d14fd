"""A process's records about others: failures, meetings, and launches over sets of processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.distributed.put_values import Put

RECENT = 40  # launches that a heartbeat reports: more than may be in flight


Wait = tuple[float, str, str]  # start time, kind, description


class Failure(NamedTuple):
    """A failure, as reported by the coordinator.

    kind: lost, followed (caused by an earlier failure), differ, absent, timeout, broken, or
      coordinator.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str
    at: float


class Meeting:
    """A wait of this process for the others of a set."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.payloads: list[Any] = []  # of all processes, by rank
        self.withdrawn = ""  # a message that names the processes that did not arrive in time


class Launches:
    """The launches over one set of processes."""

    def __init__(self, ranks: Sequence[int]):
        self.ranks = frozenset(ranks)
        self.count = 0  # of launches
        self.meetings = 0
        self.known: dict[str, int] = {}  # numbers of programs that all have launched, by digest
        self.order = 0  # a hash of the order of all launches
        # number, digest, name, turn among the launches of all sets
        self.recent: deque[tuple[int, str, str, int]] = deque(maxlen=RECENT)
        self.sent = 0
        self.put = Put()  # by this process, since the last launch
