"""The shards of an array over the devices of several processes, as bytes that each can send.

Each distinct tile is sent by one process: the first that holds it. All processes send the same
number, as a collective requires; those with fewer tiles pad with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.arrays.interchange import SUBBYTE, is_subbyte
from shardwise._src.core.eval_context import eval_context
from shardwise._src.distributed.host_exchange import Leaf, on_host
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.runtime import backend, host_memory
from shardwise._src.transfers import transfer
from shardwise._src.transfers.regions import Bounds, bounds_of


def is_spread(x: Any) -> bool:
    """Whether a value is an array with shards in other processes."""
    return isinstance(x, Array) and not x.is_fully_addressable


class Tiles:
    """leaf: the tiles that this process sends, of shape (tiles, *tile), with the array's type."""

    def __init__(self, name: str, x: Array):
        self._dtype = None
        with eval_context():
            if x.sharding.partial_axes[0]:  # unreduced: send the reduced value
                spec = x.sharding.spec.update(unreduced=frozenset())
                x = transfer.move(x, x.sharding.with_spec(spec))
            if is_subbyte(x):
                self._dtype = x.dtype
                x = convert_element_type(x, dtype=np.dtype(SUBBYTE[x.dtype.name]))
        self._array = x
        self._stored = x._sig.stored
        self._full = x.sharding.tile_shape(self._stored.shape)
        self._owned: list[list[tuple[Any, int]]] = []  # by process: index and position
        if x.is_fully_replicated:
            value = np.empty(0, self._stored.dtype)
        else:
            self._find_owners()
            value = self._block()
        self.leaf = Leaf(name, value, self._dtype or x.dtype, x.shape)

    def _find_owners(self) -> None:
        here, shape = self._array.sharding, self._stored.shape
        by_process: dict[int, list[tuple[Any, int]]] = {}
        replicas = here.replica_ids(shape)
        for position, index in enumerate(here.indices(shape)):
            if not replicas[position]:
                process = here.devices[position].process_index
                by_process.setdefault(process, []).append((index, position))
        for tiles in by_process.values():
            tiles.sort(key=lambda tile: _starts(tile[0]))
        self._owned = [by_process.get(i, []) for i in range(max(by_process) + 1)]

    def _block(self) -> np.ndarray:
        """The tiles of this process, stacked."""
        rank = backend.process_index()
        mine = self._owned[rank] if rank < len(self._owned) else []
        count = max(map(len, self._owned))
        shape, dtype = (count, *self._full), self._stored.dtype
        parts = self._array._host_parts([position for _, position in mine]) if mine else []
        if len(parts) == count and all(part.shape == self._full for part in parts):
            flat = host_memory.whole(parts, (count * self._full[0], *self._full[1:]), dtype)
            if flat is not None:
                return flat.reshape(shape)
        (block,) = host_memory.blocks(1, shape, dtype)
        pairs = []
        for i in range(count):
            part = parts[i] if i < len(parts) else None
            if part is None or part.shape != self._full:
                block[i] = np.zeros((), dtype)
            if part is not None:
                pairs.append((block[(i, *[slice(n) for n in part.shape])], part))
        host_memory.copy_all(pairs)
        return block

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """The full array, as stored, from the blocks of all processes: (processes, *block)."""
        if not self._owned:
            value = on_host("process_allgather", self.leaf.name, self._array).value
        elif self._is_in_order(rows):
            value = rows.reshape(self._stored.shape)
        else:
            value = np.empty(self._stored.shape, self._stored.dtype)
            pairs = []
            for rank, tiles in enumerate(self._owned):
                for i, (index, _) in enumerate(tiles):
                    to = value[index]
                    pairs.append((to, rows[(rank, i, *[slice(n) for n in to.shape])]))
            host_memory.copy_all(pairs)
        return value if self._dtype is None else value.astype(self._dtype)

    def _is_in_order(self, rows: np.ndarray) -> bool:
        """Whether the concatenated tiles have the memory layout of the full array."""
        if rows.size != self._stored.size or self._full[1:] != self._stored.shape[1:]:
            return False
        starts = [_starts(index) for tiles in self._owned for index, _ in tiles]
        return starts == sorted(starts)

    def held(self) -> dict[str, tuple[tuple[int, ...], np.ndarray]]:
        """The shards of this process, by index string: the ranks that have it, and the value."""
        x, shape = self._array, self._stored.shape
        positions: dict[Bounds, list[int]] = {}
        for position, index in enumerate(x.sharding.indices(shape)):
            positions.setdefault(bounds_of(index, shape), []).append(position)
        devices, rank = x.sharding.devices, backend.process_index()
        found: dict[str, tuple[tuple[int, ...], int]] = {}
        for span, those in positions.items():
            ranks = [devices[i].process_index for i in those]
            if rank in ranks:
                text = f"[{', '.join([f'{a}:{b}' for a, b in span])}]"
                found[text] = (tuple(sorted({*ranks})), those[ranks.index(rank)])
        parts = x._host_parts([position for _, position in found.values()]) if found else []
        rows = zip(found.items(), parts, strict=True)
        return {text: (holders, part) for (text, (holders, _)), part in rows}


def _starts(index: Any) -> tuple[int, ...]:
    return tuple([s.start or 0 for s in index])
