"""The caches of this process: `caches` lists them, `clear_caches` clears them."""

from __future__ import annotations

from shardwise._src.base.caches import CacheInfo, clear_registered, registered_caches
from shardwise._src.messages.formatting import columns


def clear_caches() -> None:
    """Clears all traces and compiled programs of this process.

    Functions are traced and compiled again at their next call; results of `lower(...).compile()`
    stay valid. Programs on disk remain, see `compilation_cache_dir`. Cached types, meshes and
    shardings are cleared, too, unless something else references them.
    """
    clear_registered()


class Caches(tuple[CacheInfo, ...]):
    """Rows of `CacheInfo`, printed as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        rows = [("cache", "entries", "limit", "hits", "misses"), *map(_cells, self)]
        return "\n".join(columns(rows, "<>>>>"))

    __repr__ = __str__


def caches() -> Caches:
    """The caches of this process that are not empty, largest first.

    Returns:
      A tuple of rows (name, entries, limit, hits, misses), which prints as a table. limit is None
      for caches that belong to other objects, such as jitted functions; hits and misses are None
      where look-ups are not counted.
    """
    rows = [row for row in registered_caches() if row.entries]
    return Caches(sorted(rows, key=lambda row: (-row.entries, row.name)))


def _cells(row: CacheInfo) -> tuple[str, ...]:
    return row.name, *["-" if n is None else str(n) for n in row[1:]]
