"""Who wants to end, and who still needs a process that does.

A process that has its part of a program may end before others have theirs: the kernel may then
throw away what it has sent, and they wait for ever. So it is let go when all others have launched
what it has launched, and have the results. One question is on the way to each process at a time, of
all that want to end by then.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ShutdownBarrier:
    """Leaves are numbered; processes are known by their ranks."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}  # who wants to end: the number of the leave
        self._since: dict[int, float] = {}  # when they said so
        self._late: set[int] = set()  # whose wait takes long, and was told of
        self._launched: dict[str, int] = {}  # by those that want to end, by set
        self._count = 0
        self._asked: set[int] = set()  # who has not answered yet
        self._settled: dict[int, int] = {}  # the last leave that a process agrees with

    def begin(self, rank: int, launched: Mapping[str, int], now: float = 0.0) -> None:
        self._count += 1
        self.waiting[rank], self._since[rank] = self._count, now
        for key, count in launched.items():
            self._launched[key] = max(count, self._launched.get(key, 0))

    def questions(self, alive: Iterable[int]) -> Iterator[tuple[int, dict[str, object]]]:
        """Whom to ask, and what."""
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
        """Who has waited for longer than that, how long, and for whom; each once."""
        for rank, number in self.waiting.items():
            waited = now - self._since[rank]
            if waited > patience and rank not in self._late:
                self._late.add(rank)
                yield rank, waited, [r for r in alive if self._settled.get(r, 0) < number]

    def dismissed(self, alive: Iterable[int]) -> list[int]:
        """Who may end now."""
        least = min([self._settled.get(rank, 0) for rank in alive], default=self._count)
        found = [rank for rank, number in self.waiting.items() if number <= least]
        for rank in found:
            del self.waiting[rank]
        return found
