"""Detects contradictory launch orders of processes.

A program over several processes needs all of them, and each runs its programs one after another: if
one runs A before B, another B before C, and a third C before A, all wait forever.
"""

from __future__ import annotations

import graphlib
import itertools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Launch = tuple[str, int, str]  # the set of processes, the number among its launches, the program


def contradiction(
    orders: Mapping[int, Mapping[int, Launch]], later: Mapping[int, Sequence[Launch]]
) -> list[tuple[int, str, str]]:
    """A cycle in the launch orders of processes; an empty list if none.

    orders: by rank and turn. later: by rank, launches that must wait for its last launch to end.
    Returns (rank, first program, second program) for each pair of launches in the cycle.
    """
    graph: graphlib.TopologicalSorter[tuple[str, int]] = graphlib.TopologicalSorter()
    names: dict[tuple[str, int], str] = {}
    ranks: dict[tuple[tuple[str, int], tuple[str, int]], list[int]] = {}  # with that order
    for rank, order in sorted(orders.items()):  # not in the order in which they joined
        launches = [order[turn] for turn in sorted(order)]
        names.update({launch[:2]: _words(launch) for launch in (*launches, *later.get(rank, ()))})
        pairs = [*itertools.pairwise(launches)]
        pairs += [(launches[-1], launch) for launch in later.get(rank, ()) if launches]
        for first, second in pairs:
            graph.add(second[:2], first[:2])
            ranks.setdefault((first[:2], second[:2]), []).append(rank)
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
    else:
        return []
    found: list[tuple[int, tuple[str, int], tuple[str, int]]] = []
    for first, second in itertools.pairwise(cycle):
        those = ranks[first, second]
        if found and found[-1][0] in those:
            rank, begin, _ = found.pop()
            found.append((rank, begin, second))
        else:
            found.append((those[0], first, second))
    return [(rank, names[first], names[second]) for rank, first, second in found]


def _words(launch: Launch) -> str:
    key, number, name = launch
    return f"{name!r} (launch {number} of processes {key.partition('#')[0]})"
