"""The values of the host that this process has put on devices of several processes, a while back.

Their checksums go along with launches. Where these differ, the coordinator asks for more
(`runtime.differing`): first for checksums of blocks, then for the elements of the first block that
differs. For that, the last values are cached here, as far as their checksums count: of a large
value, blocks all over it.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.messages.source import Site, describe
from shardwise._src.types.dtypes import short_name

WHOLE = 1 << 20  # bytes of a value up to which all count
BLOCK, BLOCKS = 1 << 12, 256  # of a larger one, so many parts of so many bytes
CACHED = 8 << 20  # bytes of values


class Value(NamedTuple):
    """One that was put. blocks: those that count, and where they begin, in bytes."""

    site: Site | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: list[tuple[int, bytes]]

    @property
    def nbytes(self) -> int:
        return sum([len(data) for _, data in self.blocks])

    def checksum(self, before: int) -> int:
        """Of this value and those before it; not 0."""
        for _, data in self.blocks:
            before = zlib.crc32(data, before)
        return before or 1

    def about(self) -> list[Any]:
        """Where it was put, its type, and checksums of its blocks."""
        at = describe(self.site) if self.site else "?"
        sums = [zlib.crc32(data) for _, data in self.blocks]
        return [at, short_name(self.dtype), list(self.shape), sums]

    def elements(self, block: int) -> dict[str, Any]:
        """Of a block: the number of its first element, and of each a text and the bytes."""
        start, data = self.blocks[block]
        values = np.frombuffer(data, self.dtype)
        texts = [str(value) for value in values]
        return {"first": start // self.dtype.itemsize, "texts": texts, "bytes": data.hex()}


def value_of(array: np.ndarray, site: Site | None) -> Value:
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if data.size <= WHOLE:
        starts: Any = range(0, data.size, BLOCK)
    else:
        starts = (np.linspace(0, data.size - BLOCK, BLOCKS) // BLOCK * BLOCK).astype(np.int64)
    blocks = [(int(start), data[start : start + BLOCK].tobytes()) for start in starts]
    return Value(site, array.shape, array.dtype, blocks)


class Values:
    """The last values, by the set of processes and the number of the launch after them."""

    def __init__(self) -> None:
        self._rows: deque[tuple[str, int, list[Value]]] = deque()
        self._nbytes = 0

    def add(self, key: str, number: int, values: list[Value]) -> None:
        self._rows.append((key, number, values))
        self._nbytes += sum([value.nbytes for value in values])
        while self._nbytes > CACHED and len(self._rows) > 1:
            _, _, oldest = self._rows.popleft()
            self._nbytes -= sum([value.nbytes for value in oldest])

    def answer(self, key: str, number: int, place: Sequence[int] | None) -> dict[str, Any]:
        """What the coordinator asks: of all values, or of the elements at value and block."""
        found = [values for at, n, values in tuple(self._rows) if (at, n) == (key, number)]
        values = found[-1] if found else []
        if place is None:
            return {"about": [value.about() for value in values]}
        value, block = place
        return values[value].elements(block)
