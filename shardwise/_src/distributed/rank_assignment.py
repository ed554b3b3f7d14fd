"""How many processes of a generation run on each machine: `Shares`, and which these are: `Share`.

    shares = Shares(4, nodes=1, least=2)
    shares.lose([3, 1])          # two processes were killed
    shares.of(0)                 # Share(first=0, count=2, total=2)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """What runs on one machine: so many processes from a rank on, of all."""

    first: int
    count: int
    total: int

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.count)


def share_of(counts: Sequence[int], node: int) -> Share:
    """That of a machine, by the processes of each."""
    return Share(sum(counts[:node]), counts[node], sum(counts))


class Shares:
    """The processes of each machine, of one generation after the other.

    full:  of each machine at the beginning.
    least: that are left in all; None for as many as there are at the beginning.
    """

    def __init__(self, full: int, nodes: int, least: int | None):
        self._full = full
        self.counts = [full] * nodes
        self._least = full * nodes if least is None else least
        self.left_out: set[int] = set()  # machines that were lost

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def may_shrink(self) -> bool:
        return self.total > self._least

    @property
    def words(self) -> str:
        """What is to be said of the next generation, if it is not one of all."""
        return with_processes(self.total, self._full * len(self.counts))

    def of(self, node: int) -> Share:
        return share_of(self.counts, node)

    def lose(self, ranks: Iterable[int]) -> None:
        """Goes on without processes, as far as enough are left."""
        nodes = [k for rank in ranks for k in range(len(self.counts)) if rank in self.of(k).ranks]
        for node in nodes[: self.total - self._least]:
            self.counts[node] -= 1

    def lose_nodes(self, nodes: Iterable[int]) -> None:
        """Goes on without machines, as far as enough processes are left; else they are awaited.

        One of which no process was left is never awaited.
        """
        for node in nodes:
            if self.total - self.counts[node] >= self._least:
                self.counts[node] = 0
                self.left_out.add(node)

    def take_back(self, missing: Collection[int]) -> None:
        """Machines that were lost and are there again take part again, with all they had."""
        for node in self.left_out.difference(missing):
            self.counts[node] = self._full
        self.left_out.intersection_update(missing)


def with_processes(total: int, full: int) -> str:
    """`" with 3 processes"`; nothing if these are all."""
    if total == full:
        return ""
    return f" with {total} {'process' if total == 1 else 'processes'}"
