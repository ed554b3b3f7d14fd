"""Caches that several threads use at once: what needs more than one step of the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def make_room(cache: dict[Any, Any], size: int) -> None:
    """Removes the oldest entries of a cache, so that it has fewer than `size`."""
    while len(cache) >= size:
        try:
            cache.pop(next(iter(cache)), None)
        except (RuntimeError, StopIteration):  # another thread added something, or emptied it
            continue


def snapshot(items: Iterable[Any]) -> list[Any]:
    """What is in a collection that other threads change."""
    while True:
        try:
            return list(items)
        except RuntimeError:  # it changed its size meanwhile
            continue
