"""Selecting elements of sequences by flags: which arguments are linear, which results have a
tangent, ….

picked("abc", (True, False, True)) == ["a", "c"]
spread("ac", (True, False, True)) == ["a", None, "c"]
merge((True, False, True), "ac", "b") == ["a", "b", "c"]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def given(values: Iterable[Any]) -> list[Any]:
    """The values that are not None."""
    return [v for v in values if v is not None]


def picked(values: Iterable[Any], marks: Iterable[Any]) -> list[Any]:
    """The values that are marked."""
    return [v for v, m in zip(values, marks, strict=True) if m]


def partition(values: Sequence[Any], marks: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values that are not marked, and those that are."""
    return [v for v, m in zip(values, marks, strict=True) if not m], picked(values, marks)


def spread(values: Iterable[Any], marks: Iterable[Any]) -> list[Any]:
    """One of the values for each mark that is set, in order, and None for the others."""
    rest = iter(values)
    return [next(rest) if m else None for m in marks]


def merge(marks: Iterable[Any], marked: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """One of the values for each mark: of `marked` if it is set, of `others` if not."""
    first, second = iter(marked), iter(others)
    return [next(first) if m else next(second) for m in marks]
