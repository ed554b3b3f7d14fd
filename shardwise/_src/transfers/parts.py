"""Arrays assembled from per-device parts, and index arithmetic of a process's share of an array.

A part is logical: the elements at an index. Its buffer has the size of a full shard, with padding
if the part is smaller (uneven shards).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.out_of_memory import naming
from shardwise._src.arrays.signature import Signature, padding_value, signature
from shardwise._src.base.caches import cached
from shardwise._src.base.errors import DtypeError
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import pluralize
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.shape import pad
from shardwise._src.runtime import buffers, host_memory
from shardwise._src.runtime.host import from_view
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.transfers import transfer
from shardwise._src.transfers.between_devices import of_shards
from shardwise._src.transfers.from_host import is_large
from shardwise._src.transfers.regions import bounds_of
from shardwise._src.transfers.transfer_guards import guarded
from shardwise._src.types.array_type import array_type
from shardwise._src.types.sharding import SingleDeviceSharding
from shardwise._src.types.tiling import Index

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an array that devices of this process hold: its index, shape and devices."""

    index: Index
    shape: Shape
    devices: tuple[Any, ...]


@cached(1024)
def distinct_parts(sharding: Any, shape: Shape) -> tuple[Part, ...]:
    """The parts of an array that this process holds, each distinct index once."""
    found: dict[tuple[tuple[Any, Any], ...], tuple[Index, list[Any]]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        key = tuple([(s.start, s.stop) for s in index])
        found.setdefault(key, (index, []))[1].append(device)
    return tuple([Part(i, extent(i, shape), tuple(on)) for i, on in found.values()])


def extent(index: Index, shape: Shape) -> Shape:
    """The shape of the elements that an index selects from an array of this shape."""
    return tuple([len(range(*s.indices(n))) for s, n in zip(index, shape, strict=True)])


def local_devices(sharding: Any) -> list[Any]:
    """The sharding's devices that belong to this process, in its order."""
    return [sharding.devices[i] for i in sharding.addressable_positions]


# ------------------------------------------------------------------------------ parts to arrays


def put_together(
    values: Mapping[Any, np.ndarray], shape: Shape, dtype: Any, sharding: Any
) -> Array:
    """The array made of NumPy arrays by device, in one call; a missing part is empty.

    Parts with different indices share no memory.
    """
    sig = signature(array_type(shape, dtype), sharding, True)
    devices = local_devices(sharding)
    none = np.empty((0,) * len(shape), dtype)
    count = len(distinct_parts(sharding, shape))
    apart = all(shape) and len(values) == len(devices) and count in (1, len(devices))
    with naming(sig), guarded(sig):
        return transfer.put_parts(sig, [values.get(d, none) for d in devices], devices, apart)


def shards(
    part: Any, shape: Shape, dtype: Any, sharding: Any, devices: Sequence[Any]
) -> dict[Any, Any]:
    """The raw buffers of an array's shards on devices that hold the same part.

    part: a NumPy array, which is copied, or an `Array`, which is not copied if it is on the device
    and has the full size.
    """
    sigs = [_shard_signature(shape, dtype, sharding, d) for d in devices]
    if part.__class__ is not Array:
        whole = signature(array_type(shape, dtype), sharding, True)
        with naming(whole), guarded(whole):
            raws = _from_host(np.asarray(part, dtype=sigs[0].physical.dtype), sigs)
    else:
        with eval_context():
            if part.dtype != dtype:
                part = convert_element_type(part, dtype=dtype)
            raws = [_from_array(part, sig)._live() for sig in sigs]
    return dict(zip(devices, raws, strict=True))


def _from_host(host: np.ndarray, sigs: Sequence[Signature]) -> list[Any]:
    """One buffer of the same part for each signature; CPU devices share it if it is large."""
    stored = sigs[0].stored
    if is_large(sigs[0]):
        (whole,) = host_memory.blocks(1, stored.shape, stored.dtype)
        if host.shape != stored.shape:
            whole[...] = padding_value(stored.dtype)
        host_memory.copy_all([(whole[tuple([slice(n) for n in host.shape])], host)])
        return [from_view(s.physical, s.placement, whole, s.devices[0]) for s in sigs]
    if host.shape != stored.shape:
        host = _filled(sigs[0], host)
    host = np.asarray(host, order="C")
    return [buffers.put(s.physical, s.placement, (host,), s.devices) for s in sigs]


def _is_shard(part: Array, sig: Signature) -> bool:
    """Whether an array can be the shard without conversion."""
    held = part._sig
    same = held.sharding is sig.sharding and held.layout is None and held.stored is sig.stored
    return same and held.type.dtype == sig.type.dtype


def _from_array(part: Array, sig: Signature) -> Array:
    return _padded(transfer.relayout(transfer.move(part, sig.sharding), None), sig)


@cached(4096)
def _shard_signature(shape: Shape, dtype: Any, sharding: Any, device: Any) -> Signature:
    there = SingleDeviceSharding(device, sharding.memory_kind)
    return signature(array_type(sharding.shard_shape(shape), dtype), there, True)


def _filled(sig: Signature, host: np.ndarray | None) -> np.ndarray:
    """A full shard with a part in its first corner."""
    whole = np.full(sig.stored.shape, padding_value(sig.stored.dtype), sig.stored.dtype)
    if host is not None:
        whole[tuple([slice(n) for n in host.shape])] = host
    return whole


def _padded(part: Array, sig: Signature) -> Array:
    """A part, padded to the size of a shard, on its device."""
    stored = signature(part._sig.stored, sig.sharding, True)
    if stored.stored.shape == sig.stored.shape:
        return part
    plain = wrap(buffers.rewrap(part._live(), stored.physical, stored.placement), stored)
    pairs = zip(stored.stored.shape, sig.stored.shape, strict=True)
    fill = padding_value(sig.stored.dtype)
    padded = pad(plain, np.asarray(fill), padding_config=tuple([(0, n - m, 0) for m, n in pairs]))
    return transfer.move(padded, sig.sharding)  # back to its memory kind


def aliased(host: np.ndarray, sharding: Any, committed: bool) -> Array:
    """An array that aliases the memory of a NumPy array if possible; otherwise a copy."""
    t = type_of(host)
    sig = signature(t, sharding, committed)
    devices = local_devices(sharding)
    fits = host.dtype == t.dtype and sig.even and t.size
    if not fits or not all(platform_of(d).shares_memory for d in devices):
        return transfer.put_host(host, sharding, committed)
    raws = {}
    for part in distinct_parts(sharding, t.shape):
        view = host[part.index]
        for device in part.devices:
            one = _shard_signature(t.shape, t.dtype, sharding, device)
            raws[device] = from_view(one.physical, one.placement, view, device)
    return of_shards(sig, [raws[d] for d in devices])


def joined(raws: Mapping[Any, Any], shape: Shape, dtype: Any, sharding: Any) -> Array:
    """The array made of raw buffers by device; without a buffer, the shard is only padding."""
    parts = []
    for device in local_devices(sharding):
        raw = raws.get(device)
        if raw is None:
            one = _shard_signature(shape, dtype, sharding, device)
            raw = buffers.put(one.physical, one.placement, (_filled(one, None),), (device,))
        parts.append(raw)
    return _in_order(parts, shape, dtype, sharding)


def _in_order(raws: Sequence[Any], shape: Shape, dtype: Any, sharding: Any) -> Array:
    """The array made of raw buffers in the order of the sharding."""
    sig = signature(array_type(shape, dtype), sharding, True)
    return wrap(buffers.assemble(sig.physical, sig.placement, raws), sig)


def assemble(shape: Shape, sharding: Any, arrays: Sequence[Array], dtype: Any, what: str) -> Array:
    """The array made of single-device arrays in any order, which are checked but not copied.

    Raises:
      TypeError, ValueError: if their dtypes, number, devices or shapes do not match an array of
        this shape and dtype (None: the first one's) under the sharding.
    """
    dtype = _common_dtype(arrays, dtype, shape, what)
    by_device = _by_device(shape, sharding, arrays, what)
    raws = []
    for device, held in _extents(sharding, shape):
        x = by_device[device]
        if x.shape != held:
            whole = sharding.shard_shape(shape)
            wanted = f"{held}" if held == whole else f"{held}, the end of an uneven dimension"
            raise ValueError(
                f"{what}: the array on device {device.id} has shape {x.shape}; the shard of an "
                f"array of shape {shape} there has shape {wanted}, under {sharding}."
            )
        if _is_shard(x, _shard_signature(shape, dtype, sharding, device)):
            raws.append(x._live())
        else:
            raws += shards(x, shape, dtype, sharding, [device]).values()
    return _in_order(raws, shape, dtype, sharding)


@cached(1024)
def _extents(sharding: Any, shape: Shape) -> list[tuple[Any, Shape]]:
    """The devices of this process, in order, with the shapes of their parts."""
    local = sharding.addressable_devices_indices_map(shape)
    return [(device, extent(index, shape)) for device, index in local.items()]


def _common_dtype(arrays: Sequence[Array], dtype: Any, shape: Shape, what: str) -> Any:
    if not arrays and dtype is None:
        raise ValueError(
            f"{what}: this process has no parts of an array of shape {shape}, so the dtype is "
            "unknown. Pass `dtype`."
        )
    first = dtype if dtype is not None else arrays[0].dtype
    for i, x in enumerate(arrays):
        if x.dtype != first:
            whose = "dtype is" if dtype is not None else "arrays[0] is"
            raise DtypeError(
                f"{what}: arrays[{i}] is {x.aval.str_short(True)}, of dtype {x.dtype}, but {whose} "
                f"{first}. All parts of an array must have the same dtype: convert them with "
                "`astype`."
            )
    return first


def _by_device(shape: Shape, sharding: Any, arrays: Sequence[Array], what: str) -> dict[Any, Array]:
    wanted = local_devices(sharding)
    spread = [i for i, x in enumerate(arrays) if len(x._sig.devices) > 1]
    if spread:
        x = arrays[spread[0]]
        raise ValueError(
            f"{what}: arrays[{spread[0]}] of type {x.aval.str_short(True)} is on "
            f"{len(x._sig.devices)} devices; each part must be on one. Pass the "
            "data of its `addressable_shards`."
        )
    if len(arrays) != len(wanted):
        raise ValueError(
            f"{what}: got {pluralize(len(arrays), 'array')} for an array of shape {shape}, but "
            f"{sharding} has {pluralize(len(wanted), 'device')} of this process. Pass one array "
            "for each."
        )
    found = {x._sig.devices[0]: x for x in arrays}
    if found.keys() != set(wanted):
        ours = sorted(d.id for d in wanted)
        theirs = sorted(x._sig.devices[0].id for x in arrays)
        raise ValueError(
            f"{what}: the arrays are on devices {theirs}, but {sharding} has devices {ours} of "
            "this process. Move them with `device_put`, one to each device."
        )
    return found


# ---------------------------------------------------------------------- what one process holds

Held = list[tuple[int, int]]  # a process's parts of a dimension: start and stop


@cached(1024)
def _held(sharding: Any, shape: Shape) -> list[Held]:
    """For each dimension, the ranges that the devices of this process hold, in order."""
    local = sharding.addressable_devices_indices_map(shape).values()
    along: list[set[tuple[int, int]]] = [set() for _ in shape]
    for index in local:
        for dim, (start, stop) in enumerate(bounds_of(index, shape)):
            if start < stop:
                along[dim].add((start, stop))
    return [sorted(pieces) for pieces in along]


def _total(held: Held) -> int:
    return sum(stop - start for start, stop in held)


def global_shape(sharding: Any, local: Shape, given: Sequence[int | None] | None) -> Shape:
    """The global shape: the given sizes, and inferred ones for None.

    A process that holds m of the k tiles of a dimension has m/k of its elements.
    """
    asked = (None,) * len(local) if given is None else tuple(given)
    if len(asked) != len(local):
        raise ValueError(
            f"global_shape {asked} has {pluralize(len(asked), 'dimension')}, the data "
            f"{pluralize(len(local), 'dimension')}."
        )
    tiles = sharding.tiling(len(local)).dims
    mine = [len(held) for held in _held(sharding, tiles)]  # one element per tile
    rows = zip(asked, local, tiles, mine, strict=True)
    shape = tuple([n if n is not None else size * k // max(m, 1) for n, size, k, m in rows])
    sizes = [_total(held) for held in _held(sharding, shape)]
    for dim, n in enumerate(asked):
        if n is None and sizes[dim] != local[dim]:
            raise ValueError(
                f"the global size of dimension {dim} cannot be inferred from {local[dim]} elements "
                f"on {mine[dim]} of {tiles[dim]} shards: for size {shape[dim]}, these shards would "
                f"have {sizes[dim]}. Pass global_shape."
            )
    return shape


def local_offsets(sharding: Any, local: Shape, shape: Shape) -> list[dict[int, int] | None]:
    """For each dimension, global start → local start of the ranges that this process holds.

    None if the local data has the global size, so that indices are the same.
    """
    out: list[dict[int, int] | None] = []
    for dim, held in enumerate(_held(sharding, shape)):
        if local[dim] == shape[dim]:
            out.append(None)
            continue
        if local[dim] != _total(held):
            raise ValueError(
                f"dimension {dim} has size {local[dim]}; expected {shape[dim]}, the global size, "
                f"or {_total(held)}, what the devices of this process hold under {sharding}."
            )
        offsets, at = {}, 0
        for start, stop in held:
            offsets[start] = at
            at += stop - start
        out.append(offsets)
    return out


def local_slice(index: slice, offsets: dict[int, int] | None, size: int) -> slice:
    """The position of a global slice in the local data."""
    start, stop, _ = index.indices(size)
    if offsets is None or start >= stop:
        return slice(start, stop) if offsets is None else slice(0, 0)
    return slice(offsets[start], offsets[start] + stop - start)
