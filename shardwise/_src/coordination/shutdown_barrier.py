"""Tracks which processes want to exit, and which processes still need them.

If a process that has finished its part of a program exits before others have finished theirs, the
kernel may discard data that it has sent, and they wait forever. So it may exit only when all others
have launched the same programs and have the results. At most one question is pending for each
process, and covers all processes that want to exit by then.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ShutdownBarrier:
    """Leaves are numbered; processes are identified by rank."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}  # leave numbers of processes that want to exit
        self._since: dict[int, float] = {}  # when they requested it
        self._late: set[int] = set()  # processes whose long wait was reported
        self._launched: dict[str, int] = {}  # by processes that want to exit, by set
        self._count = 0
        self._asked: set[int] = set()  # processes that have not answered yet
        self._settled: dict[int, int] = {}  # the last leave that a process has confirmed

    def begin(self, rank: int, launched: Mapping[str, int], now: float = 0.0) -> None:
        self._count += 1
        self.waiting[rank], self._since[rank] = self._count, now
        for key, count in launched.items():
            self._launched[key] = max(count, self._launched.get(key, 0))

    def questions(self, alive: Iterable[int]) -> Iterator[tuple[int, dict[str, object]]]:
        """The ranks to query, with the messages."""
        for rank in alive:
            if rank not in self._asked and self._settled.get(rank, 0) < self._count:
                self._asked.add(rank)
                yield rank, {"op": "leaving", "number": self._count, "sets": self._launched}

    def answer(self, rank: int, number: int) -> None:
        self._asked.discard(rank)
        self._settled[rank] = number

    def late(
        self, alive: Iterable[int], now: float, patience: float
    ) -> Iterator[tuple[int, float, list[int]]]:
        """Ranks that have waited longer than `patience`, how long, and for which ranks; each
        once."""
        for rank, number in self.waiting.items():
            waited = now - self._since[rank]
            if waited > patience and rank not in self._late:
                self._late.add(rank)
                yield rank, waited, [r for r in alive if self._settled.get(r, 0) < number]

    def dismissed(self, alive: Iterable[int]) -> list[int]:
        """The ranks that may exit now."""
        least = min([self._settled.get(rank, 0) for rank in alive], default=self._count)
        found = [rank for rank, number in self.waiting.items() if number <= least]
        for rank in found:
            del self.waiting[rank]
        return found
