"""The generators `threefry4x32`, `philox2x32` and `philox4x32`: hashes of counters, as in
`threefry.py`, but in one form only.

A counter has two or four words. Random bits use the index of each element as the first two words,
new keys an index or a number as the last two, so that they never use the same counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.barrier import kept
from shardwise._src.ops.logical import bitwise_xor
from shardwise._src.ops.random.hashes import philox2x32, philox4x32, threefry4x32
from shardwise._src.ops.random.threefry import (
    broadcast,
    halves,
    indices,
    join,
    narrowed,
    spread,
    words,
)

ZERO = np.uint32(0)


@dataclass(frozen=True)
class Counters:
    """The functions of a generator (bits.py), by a hash of `counter` words with `key` words of key.

    seeded: "key" if the first key is the hash of zeros with the seed as the key; otherwise it is
            the hash of the seed with zeros as the key.
    """

    hash: Op
    key: int
    counter: int
    seeded: str

    def seed(self, value: Any) -> Any:
        given, none = halves(value), (ZERO,) * (self.key + self.counter - 2)
        found = (
            self.hash(*given, *none)
            if self.seeded == "key"
            else self.hash(*none[: self.key], *given, *none[self.key :])
        )
        return join(*found[: self.key])

    def split(self, key: Any, shape: tuple[int, ...], partitionable: bool) -> Any:
        return self._keys(spread(key, shape), *indices(key, shape))

    def fold_in(self, key: Any, data: Any) -> Any:
        *parts, data = broadcast(*words(key), data)
        return self._keys(parts, ZERO, data)

    def _keys(self, parts: Any, high: Any, low: Any) -> Any:
        found = self.hash(*parts, *(ZERO,) * (self.counter - 2), high, low)
        return kept(join(*found[: self.key]))

    def bits(self, key: Any, shape: tuple[int, ...], width: int, partitionable: bool) -> Any:
        counter = (*indices(key, shape), *(ZERO,) * (self.counter - 2))
        high, low, *others = self.hash(*spread(key, shape), *counter)
        if others and (width < 64 or self.seeded == "key"):
            high, low = bitwise_xor(high, others[0]), bitwise_xor(low, others[1])
        return narrowed(high, low, width)


THREEFRY4 = Counters(threefry4x32, 4, 4, "key")
PHILOX2 = Counters(philox2x32, 1, 2, "counter")
PHILOX4 = Counters(philox4x32, 2, 4, "counter")
