"""Arrays built on the host: each device's shard is assembled from pieces of NumPy arrays.

Large arrays on CPU devices are built in memory that the devices adopt (`runtime.host_memory`), with
replicas sharing a shard. All other arrays are passed to the runtime, which copies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import SMALL, Array, wrap
from shardwise._src.arrays.interchange import SUBBYTE, is_subbyte
from shardwise._src.arrays.signature import Signature, padding_value, signature
from shardwise._src.lowering.layouts_and_memory import stated_kind
from shardwise._src.runtime import buffers, guards, host, host_memory
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.transfers.between_devices import of_shards
from shardwise._src.transfers.regions import holders, regions
from shardwise._src.transfers.transfer_guards import copy_between_devices, is_host_operand
from shardwise._src.types.array_type import array_type
from shardwise._src.types.sharding import SingleDeviceSharding
from shardwise._src.types.tiling import Index

LARGE = 1 << 20  # bytes; smallest array worth building on the host

# The extent of a device's shard, without padding, and the pieces that fill it, with their indices.
ShardPieces = tuple[tuple[int, ...], Sequence[tuple[Index, np.ndarray]]]


def is_large(sig: Signature) -> bool:
    """Whether arrays of this signature use memory allocated here, which CPU devices adopt."""
    t = sig.physical
    return (
        t.size * t.dtype.itemsize >= LARGE
        and platform_of(sig.devices[0]).shares_memory
        and t.dtype.name not in SUBBYTE
        and stated_kind(sig.sharding) is None
    )


def from_host(sig: Signature, value: np.ndarray) -> Array:
    """A host value, of the stored shape, with the sharding of the signature."""
    return _out_of(sig, SingleDeviceSharding(sig.devices[0]), {0: value})


def by_host(x: Array, target: Any) -> Array:
    """`x` under another sharding, each element copied once on the host. Waits for `x`.

    This process must hold everything its devices get. `x` caches nothing on the host.
    """
    if guards.used and not is_host_operand(x):
        with copy_between_devices(x.sharding, target):
            return _by_host(x, target)
    return _by_host(x, target)


def _by_host(x: Array, target: Any) -> Array:
    sig = signature(x.aval, target, True)
    if x._host is not None or is_subbyte(x) or _is_small(x):
        return from_host(sig, x._fetch() if x._host is None else x._host)
    distinct, _ = regions(x.sharding, target, sig.stored.shape)
    used = sorted({piece.tile for region in distinct for piece in region.pieces})
    here = set(x.sharding.addressable_positions)
    rows = holders(x.sharding, sig.stored.ndim)
    positions = [next(p for p in rows[tile] if p in here) for tile in used]
    parts = dict(zip(used, x._host_parts(positions) if used else (), strict=True))
    return _out_of(sig, x.sharding, parts)


def _is_small(x: Array) -> bool:
    """Whether reading all of it costs less than splitting it into the pieces needed."""
    t = x._sig.stored
    return x.is_fully_addressable and t.size * t.dtype.itemsize < SMALL


def _out_of(sig: Signature, source: Any, parts: Mapping[int, np.ndarray]) -> Array:
    """An array made from the tiles of another sharding, given by number."""
    distinct, which = regions(source, sig.sharding, sig.stored.shape)
    shard_pieces = [
        (region.shape, [(p.at, parts[p.tile][(*p.inside, ...)]) for p in region.pieces])
        for region in distinct
    ]
    return build(sig, shard_pieces, which)


def build(sig: Signature, shard_pieces: Sequence[ShardPieces], which: Sequence[int]) -> Array:
    """An array whose shards are assembled by recipes.

    which: for each of `sig.sharding.addressable_positions`, the number of its recipe.
    """
    on = [sig.devices[p] for p in sig.sharding.addressable_positions]
    if is_large(sig):
        return _adopted(sig, shard_pieces, which, on)
    parts = [_put_together(sig, shape, pieces) for shape, pieces in shard_pieces]
    return put_parts(sig, [parts[i] for i in which], on)


def _adopted(
    sig: Signature, shard_pieces: Sequence[ShardPieces], which: Sequence[int], on: Sequence[Any]
) -> Array:
    full = sig.sharding.tile_shape(sig.stored.shape)
    tiles = host_memory.blocks(len(shard_pieces), full, sig.stored.dtype)
    pairs = []
    for tile, (shape, pieces) in zip(tiles, shard_pieces, strict=True):
        if shape != full:
            tile[...] = padding_value(sig.stored.dtype)
        inner = tile[(*[slice(n) for n in shape], ...)]
        pairs += [(inner[(*at, ...)], piece) for at, piece in pieces]
    host_memory.copy_all(pairs)
    parts = []
    for device, i in zip(on, which, strict=True):
        there = SingleDeviceSharding(device, sig.sharding.memory_kind)
        one = signature(array_type(full, sig.stored.dtype), there, True)
        parts.append(host.from_view(one.physical, one.placement, tiles[i], device))
    return of_shards(sig, parts)


def _put_together(
    sig: Signature, shape: tuple[int, ...], pieces: Sequence[tuple[Index, np.ndarray]]
) -> np.ndarray:
    if len(pieces) == 1 and pieces[0][1].shape == shape:
        return pieces[0][1]
    part = np.empty(shape, sig.stored.dtype)
    for at, piece in pieces:
        part[at] = piece
    return part


def put_parts(
    sig: Signature, parts: Sequence[np.ndarray], on: Sequence[Any], apart: bool = False
) -> Array:
    """An array from the shards of this process's devices, without padding.

    parts: in the stored dtype; `on`: their devices; apart: see `buffers.put`.
    """
    if not sig.even:
        parts, apart = _padded_parts(sig, parts), False
    return wrap(buffers.put(sig.physical, sig.placement, parts, on, apart), sig)


def _padded_parts(sig: Signature, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The parts, padded if they are smaller than a shard."""
    full = sig.sharding.tile_shape(sig.stored.shape)
    fill = padding_value(sig.stored.dtype)
    done: dict[int, np.ndarray] = {}  # replicas share one part
    for part in parts:
        if part.shape != full and id(part) not in done:
            whole = np.full(full, fill, part.dtype)
            whole[tuple([slice(n) for n in part.shape])] = part
            done[id(part)] = whole
    return [done.get(id(part), part) for part in parts]
