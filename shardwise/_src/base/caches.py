"""Caches, which register themselves: `registered_caches` lists, `clear_registered` clears them.

    @cached(256)                                   # a function that caches its last 256 results
    def plan(shape): ...

    _programs = Table(__name__, "programs", 1024)  # a bounded dict
    _specs = Interned(__name__, "specs", 512)      # unique objects, so that equality is identity
    register(__name__, "traces", len, clear)       # caches that belong to other objects

Every cache that lives for the entire process is one of these. `functools.cache` is for functions
with few different arguments (a dtype, a platform) or none; these caches are not cleared.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import numpy as np

T = TypeVar("T")


def exact(value: Any) -> Any:
    """A component for cache keys that distinguishes equal but different values.

        key = (value, exact(value))

    1, 1.0 and True are equal, and so are 0.0 and -0.0, also inside complex numbers and tuples. A
    NaN equals nothing, so a key that must match NaNs uses `repr(value)` instead of the number.
    """
    kind: Any = value.__class__
    if kind in PLAIN:
        return kind
    if kind is float:
        return kind if value else repr(value)
    if kind is tuple:
        return kind, *map(exact, value)
    if isinstance(value, _NUMBERS) and (not value or isinstance(value, _COMPLEX)):
        return kind, repr(value)
    return kind


PLAIN = frozenset((int, bool, str, type(None)))  # equal values of one class are the same
SIGNED = frozenset((  # classes of numbers whose zeros have signs, which `==` ignores
    float, complex, np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128,
    np.clongdouble,
))  # fmt: skip
_COMPLEX: Any = (complex, np.complexfloating)
_NUMBERS: Any = (float, complex, np.generic)


class CacheInfo(NamedTuple):
    """The state of a cache. limit: of entries; None if it depends on other objects.

    hits, misses: look-ups since the last clearing; None if they are not counted.
    """

    name: str
    entries: int
    limit: int | None = None
    hits: int | None = None
    misses: int | None = None


_registered: list[tuple[Callable[[], CacheInfo], Callable[[], None]]] = []


def register(
    module: str,
    name: str,
    entries: Callable[[], int],
    clear: Callable[[], None],
    limit: int | None = None,
) -> None:
    """Registers a cache. module, name: where it is, and what it contains."""
    full = _full_name(module, name)
    _registered.append((lambda: CacheInfo(full, entries(), limit), clear))


def registered_caches() -> list[CacheInfo]:
    """The state of all caches of this process, by name."""
    return sorted([info() for info, _ in snapshot(_registered)])


def clear_registered() -> None:
    """Clears all registered caches."""
    for _, clear in snapshot(_registered):
        clear()


def _full_name(module: str, name: str) -> str:
    return f"{module.removeprefix('shardwise._src.')}: {name}"


def cached(
    limit: int, typed: bool = False
) -> Callable[[Callable[..., T]], functools._lru_cache_wrapper[T]]:  # pyright: ignore[reportPrivateUsage]
    """`functools.lru_cache`, registered."""

    def decorate(fun: Callable[..., T]) -> Any:
        found = functools.lru_cache(limit, typed)(fun)
        name = _full_name(fun.__module__, fun.__qualname__)

        def info() -> CacheInfo:
            hits, misses, _, entries = found.cache_info()
            return CacheInfo(name, entries, limit, hits, misses)

        _registered.append((info, found.cache_clear))
        return found

    return decorate


class Table(Generic[T]):
    """A dict of at most `limit` entries; the oldest are evicted. Fast paths read `entries`."""

    __slots__ = ("entries", "limit", "hits", "misses")

    def __init__(self, module: str, name: str, limit: int):
        self.entries: dict[Any, T] = {}
        self.limit, self.hits, self.misses = limit, 0, 0
        full = _full_name(module, name)

        def info() -> CacheInfo:
            return CacheInfo(full, len(self.entries), limit, self.hits or None, self.misses)

        _registered.append((info, self.clear))

    def find(self, key: Hashable) -> T | None:
        """The value for a key; None if absent. Counts hits, which look-ups in `entries` do not."""
        found = self.entries.get(key)
        self.hits += found is not None
        return found

    def put(self, key: Hashable, value: T) -> T:
        make_room(self.entries, self.limit)
        self.misses += 1
        self.entries[key] = value
        return value

    def __len__(self) -> int:
        return len(self.entries)

    def clear(self) -> None:
        self.entries.clear()
        self.hits = self.misses = 0


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

    def __init__(self, module: str, name: str, size: int):
        self.recent: dict[Any, T] = {}
        self._size = size
        self._held: WeakValueDictionary[Any, T] = WeakValueDictionary()
        register(module, name, self.__len__, self.recent.clear, size)

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
