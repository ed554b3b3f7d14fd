"""Resharding across processes: sends each process the tiles that its devices need and it lacks.

Data moves between processes only in programs, which run on all of their devices. So the tiles of an
array are stacked, one on each device of both sides, with zeros on the devices that have none; and a
program that only changes the order of the devices moves each tile to its target, by a collective
permute of bytes:

    f32[6] on 2 devices of process 0 → 2 devices of process 1
        f32[12] on all 4, tiles [a, b, 0, 0]; in the order [2, 3, 0, 1]: [0, 0, a, b]

Both sides first get the same tiles, by resharding among their own devices. If several devices need
a tile, the devices that have it pass it on, so that n copies take log2(n) programs.

An array without shards in this process is a *handle* here: shape, dtype and sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.core.eval_context import eval_context
from shardwise._src.ops.basis import reshape
from shardwise._src.runtime import buffers
from shardwise._src.transfers.between_devices import of_shards
from shardwise._src.transfers.regions import holders, within_processes
from shardwise._src.types.array_type import array_type
from shardwise._src.types.devices import is_addressable
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding, SingleDeviceSharding
from shardwise._src.types.tiling import Tiling

Move = Callable[[Array, Any], Array]
Step = dict[int, int]  # from → to, positions among all devices of both sides


def handle(sig: Signature) -> Array:
    """An array that has no devices in this process."""
    return wrap(buffers.put(sig.physical, sig.placement, (), ()), sig)


def between_processes(x: Array, target: Any, move: Move) -> Array:
    """`x` under a sharding for which some processes do not hold what their devices get.

    Called in all processes that have devices of either sharding. move: reshards an array, if the
    devices are the same or each process holds what it needs.
    """
    if isinstance(x.dtype, ExtendedDType):
        return _as_stored(x, target, move)
    here, there = stops(x._sig, target)
    x = move(x, here)
    return move(x if there is None else _sent(x, there, move), target)


def stops(sig: Signature, target: Any) -> tuple[Any, Any]:
    """The intermediate shardings of a numeric array, with equal tiles: sent from and sent to.

    The second is None if each process holds what it needs under the first.
    """
    ndim, shape = sig.type.ndim, sig.type.shape
    here = _tiled(sig.sharding, _common_dims(sig.sharding, target, ndim))
    if sig.type.size and within_processes(here, target, shape):
        return here, None
    return here, _tiled(target, here.tiling(ndim).dims)


def _as_stored(keys: Array, target: Any, move: Move) -> Array:
    """`between_processes` for an array of keys, through the integers that store them."""
    plain, there = as_stored(keys._sig, target)
    sig = signature(keys.aval, target, True)
    x = wrap(buffers.rewrap(keys._live(), plain.physical, plain.placement), plain)
    moved = between_processes(x, there, move)
    return wrap(buffers.rewrap(moved._live(), sig.physical, sig.placement), sig)


def as_stored(keys: Signature, target: Any) -> tuple[Signature, Any]:
    """The signature of the integers that store the keys, and their target sharding."""
    t = keys.stored
    here, there = [GSPMDSharding(s.devices, s.tiling(t.ndim)) for s in (keys.sharding, target)]
    return signature(t, here, True), there


def _common_dims(source: Any, target: Any, ndim: int) -> tuple[int, ...]:
    """Numbers of tiles that both sides support: the target's, the source's, or one."""
    for one, other in ((target, source), (source, target)):
        dims = one.tiling(ndim).dims
        if other.num_devices % one.tiling(ndim).num_tiles == 0:
            return dims
    return (1,) * ndim


def _tiled(sharding: Any, dims: tuple[int, ...]) -> Any:
    """The sharding, if it has these numbers of tiles; else one that has, on the same devices."""
    if sharding.tiling(len(dims)).dims == dims and sharding.memory_kind is None:
        return sharding
    n = sharding.num_devices
    tiles = int(np.prod(dims))
    tiling = Tiling(dims, (n,), (0,), tiles < n, assignment=tuple(range(n)))
    return GSPMDSharding(sharding.devices, tiling)


def _sent(x: Array, there: Any, move: Move) -> Array:
    """`x` under a sharding over other devices that has the same tiles."""
    t = x._sig.stored
    sig = signature(x.aval, there, True)
    shape = there.tile_shape(t.shape)
    tile = array_type(shape or (1,), t.dtype)
    devices = both_sides(x._sig, there)
    tiles = {d: _reshaped(part, tile.shape) for d, part in _tiles(x).items()}
    if any(map(is_addressable, devices)) and t.size:
        for step in steps(devices, x._sig, there):
            tiles |= _permuted(tiles, step, devices, tile, move)
    on = [there.devices[p] for p in there.addressable_positions]
    if not on:
        return handle(sig)
    raws = [_reshaped(tiles[d] if d in tiles else _zeros(tile, d), shape)._live() for d in on]
    return of_shards(sig, raws)


def both_sides(sig: Signature, there: Any) -> list[Any]:
    """The source and target devices of an array, in the order in which its tiles are stacked."""
    return list(dict.fromkeys((*sig.devices, *there.devices)))


def steps(devices: Sequence[Any], sig: Signature, there: Any) -> list[Step]:
    """The moves of tiles in each step, until all requested tiles have arrived."""
    number = {d: i for i, d in enumerate(devices)}
    held, wanted = [holders(s, sig.stored.ndim) for s in (sig.sharding, there)]
    have = [[number[sig.devices[p]] for p in row] for row in held]
    need = [
        [i for i in (number[there.devices[p]] for p in row) if i not in has]
        for row, has in zip(wanted, have, strict=True)
    ]
    found: list[Step] = []
    while any(need):
        step: Step = {}
        taken: dict[int, list[int]] = {}
        for has, lacks in zip(have, need, strict=True):
            pairs = list(zip(tuple(has), tuple(lacks), strict=False))
            step.update(pairs)
            del lacks[: len(pairs)]
            has += [to for _, to in pairs]
            taken |= dict.fromkeys([to for _, to in pairs], has)
        for has in have:  # arriving tiles overwrite the previous ones
            has[:] = [i for i in has if i not in taken or taken[i] is has]
        found.append(step)
    return found


def _permuted(
    tiles: Mapping[Any, Array], step: Step, devices: Sequence[Any], tile: Any, move: Move
) -> dict[Any, Array]:
    """The tiles that arrive in a step, by device, for the devices of this process."""
    sig, after = stack(step, devices, tile)
    here = [tiles[d] if d in tiles else _zeros(tile, d) for d in devices if is_addressable(d)]
    raw = buffers.assemble(sig.physical, sig.placement, [part._live() for part in here])
    moved = move(wrap(raw, sig), after)
    arrived = {devices[to] for to in step.values()}
    return {s.device: s.data for s in moved.addressable_shards if s.device in arrived}


def stack(step: Step, devices: Sequence[Any], tile: Any) -> tuple[Signature, Any]:
    """Tiles of all devices as one array, and the sharding that carries out a step."""
    count = len(devices)
    idle = [i for i in range(count) if i not in step]
    free = [i for i in range(count) if i not in set(step.values())]
    order = {**step, **dict(zip(idle, free, strict=True))}  # from → to, for zeros as well
    stacked = array_type((count * tile.shape[0], *tile.shape[1:]), tile.dtype)
    after = _stack_over([devices[order[i]] for i in range(count)])
    return signature(stacked, _stack_over(devices), True), after


def _stack_over(devices: Sequence[Any]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices, object), ("part",)), PartitionSpec("part"))


def _tiles(x: Array) -> dict[Any, Array]:
    """The tiles of an array in this process, with their padding, by device."""
    if not x.sharding.has_addressable_devices:
        return {}
    sig = signature(x._sig.physical, x.sharding, True)
    plain = wrap(buffers.rewrap(x._live(), sig.physical, sig.placement), sig)
    return {shard.device: shard.data for shard in plain.addressable_shards}


def _zeros(tile: Any, device: Any) -> Array:
    sig = signature(tile, SingleDeviceSharding(device), True)
    none = np.zeros(tile.shape, tile.dtype)
    return wrap(buffers.put(sig.physical, sig.placement, (none,), (device,)), sig)


def _reshaped(tile: Array, shape: tuple[int, ...]) -> Array:
    if tile.shape == shape:
        return tile
    with eval_context():
        return reshape(tile, shape=shape)
