"""The host values that this process has recently put on the devices of several processes.

Their checksums are sent with launches. If these differ, the coordinator requests more
(`coordination.value_differences`): first the checksums of blocks, then the elements of the first
block that differs. For that, the checksummed parts of the last values are cached here: for a large
value, blocks spread over it. If the values do not all fit, the first are cached.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.messages.source import Site, describe
from shardwise._src.types.dtypes import short_name

WHOLE = 1 << 20  # bytes of a value up to which it is checksummed in full
BLOCK, BLOCKS = 1 << 12, 256  # for a larger value: bytes of a block, number of blocks
CACHED = 8 << 20  # bytes of values
SUMS, COUNT = 1 << 16, 1 << 12  # checksums and values between two launches: limits of a message


class Value(NamedTuple):
    """A value that was put on devices.

    sums: checksums of the sampled blocks; blocks: their byte offsets and contents, if cached.
    """

    site: Site | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sums: np.ndarray
    blocks: list[tuple[int, bytes]]

    @property
    def nbytes(self) -> int:
        return sum([len(data) for _, data in self.blocks])

    def about(self) -> list[Any]:
        """Where it was put, its type, and checksums of its blocks."""
        at = describe(self.site) if self.site else "?"
        return [at, short_name(self.dtype), list(self.shape), self.sums.tolist()]

    def elements(self, block: int) -> dict[str, Any]:
        """For a block: the index of its first element, each element as a string, and the bytes."""
        if not self.blocks:
            return NOT_CACHED
        start, data = self.blocks[block]
        values = np.frombuffer(data, self.dtype)
        texts = [str(value) for value in values]
        return {"first": start // self.dtype.itemsize, "texts": texts, "bytes": data.hex()}


NOT_CACHED: dict[str, Any] = {"first": 0, "texts": [], "bytes": ""}


def value_of(array: np.ndarray, site: Site | None) -> Value:
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if data.size <= WHOLE:
        starts: Any = range(0, data.size, BLOCK)
    else:
        starts = (np.linspace(0, data.size - BLOCK, BLOCKS) // BLOCK * BLOCK).astype(np.int64)
    blocks = [(int(start), data[start : start + BLOCK].tobytes()) for start in starts]
    sums = np.asarray([zlib.crc32(data) for _, data in blocks], np.uint32)
    return Value(site, array.shape, array.dtype, sums, blocks)


class Put:
    """The values that were put since the last launch.

    checksum: of all of them; 0 if there are none.
    """

    def __init__(self) -> None:
        self.checksum = 0
        self.nbytes = 0
        self.values: list[Value] = []
        self._sums = 0

    def add(self, value: Value) -> None:
        self.checksum = zlib.crc32(value.sums.tobytes(), self.checksum) or 1
        self._sums += len(value.sums)
        if self._sums <= SUMS and len(self.values) < COUNT:
            is_cached = self.nbytes + value.nbytes <= CACHED
            self.values.append(value if is_cached else value._replace(blocks=[]))
            self.nbytes += value.nbytes if is_cached else 0


class Values:
    """The last values, by the set of processes and the number of the launch after them."""

    def __init__(self) -> None:
        self._rows: deque[tuple[str, int, Put]] = deque()
        self._nbytes = 0

    def add(self, key: str, number: int, put: Put) -> None:
        self._rows.append((key, number, put))
        self._nbytes += put.nbytes
        while self._nbytes > CACHED and len(self._rows) > 1:
            _, _, oldest = self._rows.popleft()
            self._nbytes -= oldest.nbytes

    def answer(self, key: str, number: int, place: Sequence[int] | None) -> dict[str, Any]:
        """Answers the coordinator's query about all values, or the elements of one block.

        place: the index of the value, and of its block; None for all values.
        """
        found = [put.values for at, n, put in tuple(self._rows) if (at, n) == (key, number)]
        values = found[-1] if found else []
        if place is None:
            return {"about": [value.about() for value in values]}
        value, block = place
        return values[value].elements(block) if values else NOT_CACHED
