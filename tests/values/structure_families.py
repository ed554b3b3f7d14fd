"""All families of cases, by name."""

from __future__ import annotations

from tests.values import structure_folding as _folding  # noqa: F401
from tests.values import structure_indexing as _indexing  # noqa: F401
from tests.values import structure_moving as _moving  # noqa: F401
from tests.values.structure import Case
from tests.values.structure_cases import FAMILIES as FAMILIES
from tests.values.structure_cases import MOST as MOST
from tests.values.structure_cases import cases_of as cases_of

PARTS = 136  # a few of each family in each, about five seconds


def part(number: int) -> list[Case]:
    every = [case for name in FAMILIES for case in cases_of(name)]
    return every[number::PARTS]
