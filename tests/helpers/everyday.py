"""The everyday run takes some cases of a table; a sweep takes all.

    @pytest.mark.parametrize("name", everyday(NAMES, 12))
    @pytest.mark.parametrize(("name", "spec"), everyday(product(NAMES, SPECS), 20))
    @pytest.mark.sweep                                  # a test that runs only in sweeps

The choice is a function of the table alone: the same on every date, machine and worker. A case has
features (the elements of a tuple, the words of an expression), and the cases that add the most
pairs of features come first: an op with a dtype, a dtype with a sharding. Cases that add equally
many are spread over the table. Features that differ between machines or processes, such as paths
or memory addresses, are rejected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

T = TypeVar("T")

ROOT = str(Path(__file__).resolve().parents[2])
ADDRESS = re.compile(r" at 0x[0-9a-f]+|\bid=\d{6,}")
WORDS = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|==|[^\w\s(),.]")


class Run:
    """Which cases run: the everyday set, or everything. Set once, when pytest starts."""

    sweep = False


def everyday(
    cases: Iterable[T], count: float, of: str = "", by: Callable[[T], object] = lambda case: case
) -> list[T]:
    """`cases` in a sweep; otherwise `count` of them (below 1: that fraction), in their order.

    of: a name for the table; equal tables with different names yield different cases.
    by: the property of a case that its features come from, such as its name.

    Raises:
      ValueError: if the choice would depend on this checkout or process.
    """
    found = list(cases)
    number = math.ceil(count * len(found)) if count < 1 else int(count)
    if Run.sweep or number >= len(found):
        return found
    table = [features(by(case)) for case in found]
    for text in [of, *(str(feature) for row in table for feature in row)]:
        if ROOT in text or ADDRESS.search(text):
            raise ValueError(
                f"everyday: {text!r} is not the same in every checkout and "
                "process; `by` says what to choose by"
            )
    return [found[i] for i in sorted(_greedy(table, number, of))]


def features(case: object) -> list[Hashable]:
    """The features of a case, in an order that does not depend on hashes."""
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


def _greedy(table: list[list[Hashable]], count: int, of: str) -> list[int]:
    """The indices of `count` cases, greedily by the features and pairs that each one adds."""
    pairs = [{*map(frozenset, combinations(each, 2)), *each} for each in table]
    seen: set[Hashable] = set()
    order = _spread(len(table), crc32(of.encode()))
    bound = {i: len(pairs[i]) for i in order}  # on the number of pairs that a case can still add
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
