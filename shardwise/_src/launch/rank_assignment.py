"""How many processes of a generation run on each machine: `Shares`, and which these are: `Share`.

For example:

    shares = Shares(4, nodes=1, least=2)
    shares.lose([3, 1])          # two processes were killed
    shares.of(0)                 # Share(first=0, count=2, total=2)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """The processes of one machine: `count` of them from rank `first` on, out of `total`."""

    first: int
    count: int
    total: int

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.count)


def share_of(counts: Sequence[int], node: int) -> Share:
    """The share of a machine, given the process count of each."""
    return Share(sum(counts[:node]), counts[node], sum(counts))


class Shares:
    """The process count of each machine, over successive generations.

    full:  processes of each machine at the beginning.
    least: minimum total; None for the total at the beginning.
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
        """A phrase for messages about the next generation, if it is not a full one."""
        return with_processes(self.total, self._full * len(self.counts))

    def of(self, node: int) -> Share:
        return share_of(self.counts, node)

    def lose(self, ranks: Iterable[int]) -> None:
        """Continues without some processes, as long as enough remain."""
        nodes = [k for rank in ranks for k in range(len(self.counts)) if rank in self.of(k).ranks]
        for node in nodes[: self.total - self._least]:
            self.counts[node] -= 1

    def lose_nodes(self, nodes: Iterable[int]) -> None:
        """Continues without machines if enough processes remain; else they are awaited.

        A machine with no processes left is never awaited.
        """
        for node in nodes:
            if self.total - self.counts[node] >= self._least:
                self.counts[node] = 0
                self.left_out.add(node)

    def take_back(self, missing: Collection[int]) -> None:
        """Readmits machines that were lost and have returned, with all their processes."""
        for node in self.left_out.difference(missing):
            self.counts[node] = self._full
        self.left_out.intersection_update(missing)


def with_processes(total: int, full: int) -> str:
    """`" with 3 processes"`; empty if these are all."""
    if total == full:
        return ""
    return f" with {total} {'process' if total == 1 else 'processes'}"
