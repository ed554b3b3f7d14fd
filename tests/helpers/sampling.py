"""All cases in a sweep; in every other run some of them, others each day.

    @pytest.mark.parametrize("name", sampled(NAMES, 1 / 3))
    @pytest.mark.parametrize("group", sampled(range(8), 2))     # of examples: see `searched`
    @pytest.mark.turns(3)                                       # runs every third day

What each run must see is not `sampled`. The choice walks through a fixed shuffle of the cases: of n
cases, k a day, each has its turn within n / k days. The day is read once, when pytest starts, and
holds for all worker processes: see tests/conftest.py.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")


class Choice:
    """What this run takes: everything, or what has its turn on a day."""

    sweep = False
    day = 0


def choose(sweep: bool, seed: str) -> None:
    """Settles the choice for this process; `seed` is a day as YYYYMMDD."""
    Choice.sweep = sweep
    Choice.day = datetime.datetime.strptime(seed, "%Y%m%d").toordinal()


def today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")


def sampled(cases: Iterable[T], share: float, of: str = "") -> list[T]:
    """`cases` in a sweep; otherwise a number (or share, below 1) of them, in their order.

    of: a name of the cases, for several lists of equal length that should not be shuffled alike.
    """
    found = list(cases)
    count = share if share >= 1 else math.ceil(share * len(found))
    if Choice.sweep or count >= len(found):
        return found
    shuffled = list(range(len(found)))
    random.Random(f"{len(found)} {of}").shuffle(shuffled)
    first = Choice.day * int(count)
    turn = {shuffled[(first + i) % len(found)] for i in range(int(count))}
    return [case for i, case in enumerate(found) if i in turn]


def has_its_turn(days: int, name: str) -> bool:
    """Whether a test (`pytest.mark.turns(days)`) runs: in a sweep, and otherwise every so many
    days."""
    return Choice.sweep or (Choice.day + crc32(name.encode())) % days == 0
