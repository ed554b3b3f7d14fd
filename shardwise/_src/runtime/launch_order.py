"""Orders in which processes launch programs, which may contradict each other.

A program over several processes needs all of them, and each runs its programs one after the other:
if one runs A before B, another B before C, and a third C before A, all wait for ever.
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
    """A cycle in what processes launch; an empty list if there is none.

    orders: by rank and turn. later: by rank, what it cannot launch before its last has ended.
    Gives who launches what before what: (rank, first program, second program).
    """
    graph: graphlib.TopologicalSorter[tuple[str, int]] = graphlib.TopologicalSorter()
    names: dict[tuple[str, int], str] = {}
    ranks: dict[tuple[tuple[str, int], tuple[str, int]], list[int]] = {}  # who does both so
    for rank, order in sorted(orders.items()):  # not as they have joined
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
