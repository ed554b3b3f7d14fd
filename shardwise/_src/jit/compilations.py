"""Listeners that are notified when programs of jitted functions are compiled.

    with compilations.notifying(found.append):
        step(state, batch)          # found: the `Lowered` of each that was new

Programs that are found in memory by their key are not reported again. Only commands that run a
program to see what it compiles register listeners; without any, this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Compilations:
    """The tuple of listeners is replaced, not mutated: others may be iterating over it."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[Any], Any], ...] = ()

    @contextmanager
    def notifying(self, listener: Callable[[Any], Any]) -> Iterator[None]:
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple([other for other in self._listeners if other is not listener])

    def tell(self, lowered: Any) -> None:
        for listener in self._listeners:
            listener(lowered)


compilations = _Compilations()
