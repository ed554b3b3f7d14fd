"""The cases of a table that the everyday run takes; a sweep takes all.

    @pytest.mark.parametrize("name", everyday(NAMES, 12))
    @pytest.mark.parametrize(("name", "spec"), everyday(product(NAMES, SPECS), 20))
    @pytest.mark.sweep                                  # a test that only sweeps run

The choice is a function of the table alone: the same on every date, machine and worker. A case has
features (the elements of a tuple, the words of an expression), and the cases that add the most
pairs of features come first: an op with a dtype, a dtype with a placement. Cases that add equally
many are taken from all over the table. `always` names the cases that each run must have, such as
those of bugs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import Any, TypeVar
from zlib import crc32

T = TypeVar("T")

WORDS = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|==|[^\w\s(),.]")


class Run:
    """What is run: the everyday set, or everything. Set once, when pytest starts."""

    sweep = False


def everyday(
    cases: Iterable[T],
    count: float,
    of: str = "",
    always: Callable[[T], bool] = lambda case: False,
) -> list[T]:
    """`cases` in a sweep; otherwise `count` of them (below 1: that share of them), in their order.

    of: a name of the table, for several equal ones from which different cases should be chosen.
    always: whether a case is part of every run, in addition to the `count`.
    """
    found = list(cases)
    number = math.ceil(count * len(found)) if count < 1 else int(count)
    if Run.sweep or number >= len(found):
        return found
    fixed = {i for i, case in enumerate(found) if always(case)}
    chosen = fixed | set(_greedy([features(case) for case in found], number, fixed, of))
    return [found[i] for i in sorted(chosen)]


def features(case: object) -> list[Hashable]:
    """What a case has in common with others, in an order that does not depend on hashes."""
    if isinstance(case, str):
        words = WORDS.findall(case)
        return list(dict.fromkeys(words)) if len(words) > 1 else [case]
    if isinstance(case, dict):
        return [("key", str(k), _name(v)) for k, v in case.items()]
    if isinstance(case, tuple | list):
        found: list[Hashable] = []
        for i, element in enumerate(case):
            inner = features(element) if isinstance(element, str) else [_name(element)]
            found += [(i, feature) for feature in inner]
        return found
    return [_name(case)]


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or repr(value)


def _greedy(table: list[list[Hashable]], count: int, taken: set[int], of: str) -> list[int]:
    """The numbers of `count` cases, by how many features and pairs each adds to those before."""
    pairs = [{*map(frozenset, combinations(each, 2)), *each} for each in table]
    seen = {pair for i in taken for pair in pairs[i]}
    order = [i for i in _spread(len(table), crc32(of.encode())) if i not in taken]
    bound = {i: len(pairs[i]) for i in order}  # of what a case can still add
    chosen: list[int] = []
    while order and len(chosen) < count:
        best, most = order[0], -1
        for i in order:
            if bound[i] > most:
                bound[i] = len(pairs[i] - seen)
                if bound[i] > most:
                    best, most = i, bound[i]
        order.remove(best)
        chosen.append(best)
        seen |= pairs[best]
    return chosen


def _spread(n: int, start: int) -> list[int]:
    """All numbers below `n`, so that the first few are far from each other (bits reversed)."""
    bits = max(n - 1, 0).bit_length()
    reverse = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits)) if bits else iter([0])
    return [(i + start) % n for i in reverse if i < n]
