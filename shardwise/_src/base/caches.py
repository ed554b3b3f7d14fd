"""Thread-safe caches: operations that need more than one step of the interpreter.

Every table of the library that lives for the whole process is bounded (`make_room`,
`functools.lru_cache`), weak (`Interned`, the tables of `weakref`), or inherently finite, as noted
in a comment.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

import numpy as np

T = TypeVar("T")


def exact(value: Any) -> Any:
    """A component for cache keys that distinguishes equal but different values.

        key = (value, exact(value))

    1, 1.0 and True are equal, and so are 0.0 and -0.0, also inside complex numbers and tuples. A
    NaN equals nothing, so a key that must match NaNs uses `repr(value)` instead of the number.
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
    """A list of the items of a collection that other threads modify."""
    while True:
        try:
            return list(items)
        except RuntimeError:  # its size changed during the iteration
            continue


class Interned(Generic[T]):
    """A table with a unique object for each key, so that equality is identity.

        found = table.recent.get(key)           # the fast path: one look-up
        if found is None:
            found = table.find(key) or table.keep(key, make(key))

    An object is in the table as long as anything references it: evicting it sooner would allow a
    second, different one. The last `size` objects are also referenced here, as `recent`.
    Several keys may map to one object. Objects must support weak references.
    """

    __slots__ = ("recent", "_size", "_held", "__weakref__")

    def __init__(self, size: int):
        self.recent: dict[Any, T] = {}
        self._size = size
        self._held: WeakValueDictionary[Any, T] = WeakValueDictionary()
        _tables.add(self)

    def find(self, key: Hashable) -> T | None:
        """The object for a key; None if absent."""
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


# One lock for all tables, which depend on each other; reentrant, as a finalizer may use a table.
_LOCK = threading.RLock()
_tables: WeakSet[Interned[Any]] = WeakSet()


def release_recent() -> None:
    """Releases all interned objects that nothing else references."""
    for table in snapshot(_tables):
        table.recent.clear()
