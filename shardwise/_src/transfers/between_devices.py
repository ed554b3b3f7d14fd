"""Resharding between any two sets of devices of one process, from device to device.

Each device slices out of its shard what other devices need, with one program for all of its pieces;
the pieces are copied to their target devices in one batch; there a program assembles them. Nothing
passes through the host, and no element is copied to a device that has it already. On the target,
pieces and shard briefly exist at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.signature import Signature, padding_value, signature
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.fused import fused
from shardwise._src.ops.shape import concatenate, pad, slice_
from shardwise._src.runtime import buffers
from shardwise._src.transfers.regions import Piece, Region, Shape, holders, regions
from shardwise._src.types.array_type import array_type
from shardwise._src.types.sharding import SingleDeviceSharding

Limits = tuple[Shape, Shape]  # starts and limits of a slice
Cut = tuple[int, Limits]  # a position in the source, and a slice of the shard there


def by_pieces(x: Array, target: Any) -> Array:
    """`x` under a sharding over devices of the same platform; both in default device memory.

    This process must hold everything its devices get (see `regions.within_processes`).
    """
    sig = signature(x.aval, target, True)
    shape = sig.stored.shape
    plan, wanted, places = sources(x._sig, target)
    cut = _cut_all(x, list(dict.fromkeys([c for cuts in plan for c in cuts])))
    there = _sent([(cut[c], place) for cuts, place in zip(plan, places, strict=True) for c in cuts])
    arrived = iter(there)
    tile = target.tile_shape(shape)
    parts = [
        _joined([next(arrived) for _ in cuts], region, tile, sig, place)
        for cuts, region, place in zip(plan, wanted, places, strict=True)
    ]
    return of_shards(sig, [part._live() for part in parts])


def of_shards(sig: Signature, raws: Sequence[Any]) -> Array:
    """The array of these buffers, one for each device of this process."""
    if len(sig.devices) == 1:
        return wrap(buffers.rewrap(raws[0], sig.physical, sig.placement), sig)
    return wrap(buffers.assemble(sig.physical, sig.placement, raws), sig)


def sources(sig: Signature, target: Any) -> tuple[list[list[Cut]], list[Region], list[Any]]:
    """The slices for each device of this process, the region they form, and these devices."""
    distinct, which = regions(sig.sharding, target, sig.stored.shape)
    places = [target.devices[p] for p in target.addressable_positions]
    wanted = [distinct[i] for i in which]
    pairs = zip(wanted, places, strict=True)
    return [_sources(sig, region, place) for region, place in pairs], wanted, places


def _sources(sig: Signature, region: Region, place: Any) -> list[Cut]:
    """For each piece of a region, the shard to slice: preferably one on the target device."""
    rows = holders(sig.sharding, sig.stored.ndim)
    here = set(sig.sharding.addressable_positions)
    turn = place.id  # replicas take turns
    cuts = []
    for piece in region.pieces:
        held = [p for p in rows[piece.tile] if p in here]
        near = [p for p in held if sig.devices[p] == place]
        cuts.append((near[0] if near else held[turn % len(held)], _limits(piece)))
    return cuts


def _limits(piece: Piece) -> Limits:
    starts, stops = [s.start for s in piece.inside], [s.stop for s in piece.inside]
    return tuple(starts), tuple(stops)


def _cut_all(x: Array, cuts: list[Cut]) -> dict[Cut, Array]:
    """All pieces, each on the device of its shard. A piece that is a full shard is not copied."""
    by_position: dict[int, list[Limits]] = {}
    for position, limits in cuts:
        by_position.setdefault(position, []).append(limits)
    full_shape = x.sharding.tile_shape(x._sig.stored.shape)
    raws = x._single_buffers(list(by_position)) if by_position else []
    out: dict[Cut, Array] = {}
    for position, raw in zip(by_position, raws, strict=True):
        sig = _single(full_shape, x._sig.stored.dtype, x._sig.devices[position])
        shard = wrap(buffers.rewrap(raw, sig.physical, sig.placement), sig)
        whole = ((0,) * len(full_shape), full_shape)
        limits = [box for box in by_position[position] if box != whole]
        with eval_context():
            pieces = _cut(shard, limits=tuple(limits)) if limits else []
        out |= {(position, box): piece for box, piece in zip(limits, pieces, strict=True)}
        out[position, whole] = shard
    return out


def _single(shape: Shape, dtype: Any, device: Any) -> Signature:
    return signature(array_type(shape, dtype), SingleDeviceSharding(device), True)


def _sent(wanted: list[tuple[Array, Any]]) -> list[Array]:
    """The arrays on their target devices, copied in one batch if not already there."""
    sigs = [_single(x.shape, x.dtype, place) for x, place in wanted]
    moving = [i for i, (x, place) in enumerate(wanted) if x._sig.devices[0] != place]
    raws = buffers.copy_each(
        [wanted[i][0]._live() for i in moving],
        [buffers.device_list(sigs[i].devices) for i in moving],
        [sigs[i].placement for i in moving],
    )
    out = [x for x, _ in wanted]
    for i, raw in zip(moving, raws, strict=True):
        out[i] = wrap(buffers.rewrap(raw, sigs[i].physical, sigs[i].placement), sigs[i])
    return out


def _joined(pieces: list[Array], region: Region, tile: Shape, sig: Signature, place: Any) -> Array:
    """A shard assembled from its pieces, padded to the size of the tile, on its device."""
    if len(pieces) == 1 and pieces[0].shape == tile:
        return pieces[0]
    if not pieces:
        there = _single(tile, sig.stored.dtype, place)
        empty = np.full(tile, padding_value(sig.stored.dtype), sig.stored.dtype)
        return wrap(buffers.put(there.physical, there.placement, (empty,), (place,)), there)
    with eval_context():
        return _join(*pieces, grid=region.grid, tile=tile)


@fused(arrays=1)
def _cut(shard: Any, limits: tuple[Limits, ...]) -> list[Any]:
    return [slice_(shard, start_indices=low, limit_indices=high) for low, high in limits]


@fused(arrays=1)
def _join(*pieces: Any, grid: Shape, tile: Shape) -> Any:
    parts = list(pieces)
    for dim in reversed(range(len(grid))):
        n = grid[dim]
        rows = [parts[i : i + n] for i in range(0, len(parts), n)]
        parts = [concatenate(*row, dimension=dim) if n > 1 else row[0] for row in rows]
    joined = parts[0]
    if joined.shape == tile:
        return joined
    fill = np.asarray(padding_value(joined.dtype))
    gaps = tuple([(0, n - m, 0) for n, m in zip(tile, joined.shape, strict=True)])
    return pad(joined, fill, padding_config=gaps)
