"""Shards of multi-process arrays after a loss: which processes have them, and which need them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.distributed import host_exchange
from shardwise._src.distributed.tiles import is_spread
from shardwise._src.runtime import backend
from shardwise._src.transfers.regions import Bounds, bounds_of, extent
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.sharding import NamedSharding


def what_is_wrong(x: Any) -> str:
    """Why an array cannot be recovered from its remaining shards; "" if it can."""
    if not is_spread(x):
        return ""
    if x.is_deleted():
        return "its memory was deleted or donated"
    if isinstance(x.dtype, ExtendedDType):
        return "it is a key array: pass its random.key_data"
    if not isinstance(x.sharding, NamedSharding):
        return f"it has a {type(x.sharding).__name__}, not a NamedSharding"
    try:
        x.block_until_ready()
    except RuntimeError:
        return "the program that computes it failed"
    return ""


def spans_of(sharding: Any, shape: tuple[int, ...]) -> list[tuple[Any, Bounds]]:
    """The span of the shard on each device."""
    indices = sharding.devices_indices_map(shape)
    return [(device, bounds_of(index, shape)) for device, index in indices.items()]


def _slices(span: Bounds) -> tuple[slice, ...]:
    return tuple([slice(*ends) for ends in span])


def words(span: Bounds, shape: tuple[int, ...]) -> str:
    parts = [
        ":" if ends == (0, n) else f"{ends[0]}:{ends[1]}"
        for ends, n in zip(span, shape, strict=True)
    ]
    return f"[{', '.join(parts)}]"


def parts_for(
    x: Array, target: NamedSharding, left: Sequence[int], turned: Callable[[Any], Any]
) -> Callable[[Bounds], np.ndarray]:
    """A function that returns the shards that this process needs for another sharding.

    Shards are sent if a process needs any that it does not have. left: the surviving processes,
    which all call this; turned: puts devices in an order in which they can be connected.
    """
    shape, me = x.shape, backend.process_index()
    mine = {bounds_of(s.index, shape): np.asarray(s.data) for s in x.addressable_shards}
    holders: dict[Bounds, list[int]] = {}
    for device, span in spans_of(x.sharding, shape):
        if device.process_index in left:
            holders.setdefault(span, []).append(device.process_index)
    needs = [(d.process_index, span) for d, span in spans_of(target, shape)]
    if all(process in holders.get(span, ()) for process, span in needs):
        return mine.__getitem__
    sent = {p: [span for span in holders if min(holders[span]) == p] for p in left}
    own = b"".join([mine[span].tobytes() for span in sent[me]])
    rows = _all_rows(own, max(_size(spans, x) for spans in sent.values()), left, turned)
    whole = np.empty(shape, x.dtype)
    for process, spans in sent.items():
        offset, row = 0, rows[left.index(process)].tobytes()
        for span in spans:
            size = _size([span], x)
            part = np.frombuffer(row[offset : offset + size], x.dtype)
            whole[_slices(span)] = part.reshape(extent(span))
            offset += size
    return lambda span: whole[_slices(span)]


def _size(spans: Sequence[Bounds], x: Array) -> int:
    return sum([math.prod(extent(span)) for span in spans]) * x.dtype.itemsize


def _all_rows(
    own: bytes, size: int, left: Sequence[int], turned: Callable[[Any], Any]
) -> np.ndarray:
    """Gathers the bytes of each process: u8[processes, size]."""
    first = {d.process_index: d for d in reversed(backend.devices())}
    devices = turned(np.array([first[p] for p in left]))
    row = np.zeros(size, np.uint8)
    row[: len(own)] = np.frombuffer(own, np.uint8)
    rows = host_exchange.all_rows(row, Mesh(devices, ("process",)))
    order = [d.process_index for d in devices]
    return rows[[order.index(p) for p in left]]
