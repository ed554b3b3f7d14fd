"""Caches that several threads use at once: what needs more than one step of the interpreter.

Every table of the library that lives as long as the process is one of these: bounded (`make_room`,
`functools.lru_cache`), weak (`Interned`, the tables of `weakref`), or finite by its nature, which a
comment beside it says.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

import numpy as np

T = TypeVar("T")


def exact(value: Any) -> Any:
    """What a key holds beside a value, so that only the same one is found, and not an equal one.

        key = (value, exact(value))

    Equal are 1, 1.0 and True, and 0.0 and -0.0, also as parts of complex numbers and of tuples. A
    NaN equals nothing, so that a key which is to find it holds a number as `repr(value)` instead.
    """
    kind: Any = value.__class__
    if kind is float:
        return kind if value else repr(value)
    if kind is tuple:
        return kind, *map(exact, value)
    if isinstance(value, _NUMBERS) and (not value or isinstance(value, _COMPLEX)):
        return kind, repr(value)
    return kind


_COMPLEX: Any = (complex, np.complexfloating)
_NUMBERS: Any = (float, complex, np.generic)


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


class Interned(Generic[T]):
    """The one object for each key, so that equality is identity.

        found = table.recent.get(key)           # the quick way: one look-up
        if found is None:
            found = table.find(key) or table.keep(key, make(key))

    An object is in the table as long as anything holds it: forgetting it sooner would allow a
    second one that is not the same. The last `size` are held here too, as `recent`.
    Several keys may lead to one object. Objects take weak references.
    """

    __slots__ = ("recent", "_size", "_held", "__weakref__")

    def __init__(self, size: int):
        self.recent: dict[Any, T] = {}
        self._size = size
        self._held: WeakValueDictionary[Any, T] = WeakValueDictionary()
        _tables.add(self)

    def find(self, key: Hashable) -> T | None:
        """What there is for a key."""
        with _LOCK:
            found = self._held.get(key)
            return None if found is None else self._remembered(key, found)

    def keep(self, key: Hashable, new: T) -> T:
        """The object for a key from now on: `new`, unless another thread was faster."""
        with _LOCK:
            found = self._held.get(key)
            if found is None:
                found = self._held[key] = new
            return self._remembered(key, found)

    def _remembered(self, key: Any, found: T) -> T:
        if len(self.recent) >= self._size:
            self.recent.clear()
        self.recent[key] = found
        return found

    def values(self) -> list[T]:
        with _LOCK:
            return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


# One lock for all tables, which are made of each other; a finalizer may come back while it is held.
_LOCK = threading.RLock()
_tables: WeakSet[Interned[Any]] = WeakSet()


def release_recent() -> None:
    """Lets go of all interned objects that nothing else holds."""
    for table in snapshot(_tables):
        table.recent.clear()
