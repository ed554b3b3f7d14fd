"""Moving values: host to devices, and arrays from one sharding to another.

Sharded arrays are resharded on the devices, by a compiled identity program. Host values are cut
into shards and put in one call.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.config import default_device
from shardwise.base.context import current
from shardwise.core.infer import type_of
from shardwise.core.program import Program, Var
from shardwise.engine.array import Array, Gone, is_narrow, wrap
from shardwise.engine.compiled import compiled_for
from shardwise.engine.module import module_text
from shardwise.engine.signature import Signature, padding_value, signature
from shardwise.engine.storage import stated_kind, storage_of
from shardwise.runtime import backend
from shardwise.runtime.program import Compiled
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dtypes import canonicalize, too_large
from shardwise.types.extended import ExtendedDType
from shardwise.types.layout import AutoLayout, Format
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.sharding import GSPMDSharding, NamedSharding, SingleDeviceSharding
from shardwise.types.tiling import Tiling

_SCALAR_CACHE_SIZE = 4096
_scalars: dict[tuple, Array] = {}


def default_single() -> Any:
    """The device of values that nobody placed."""
    chosen = default_device.value
    if chosen is None or isinstance(chosen, str):
        return backend.local_devices(chosen)[0]
    return chosen


def put_host(value: Any, sharding: Any, committed: bool, t: ArrayType | None = None) -> Array:
    """A NumPy array or scalar on devices. Each addressable device gets its own slice."""
    if t is None and value.__class__ is np.ndarray:
        sig, indices, apart = _plan(value.shape, value.dtype, sharding, committed, current().key)
    else:
        sig, indices, apart = _plan_of(t or type_of(value), sharding, committed)
    try:
        host = np.asarray(value, dtype=sig.physical.dtype, order="C")
    except OverflowError:
        raise too_large(value, sig.physical.dtype) from None
    if indices is None:
        return wrap(backend.put(sig.physical, sig.placement, (host,), sig.devices), sig)
    return put_parts(sig, [host[index] for index in indices.values()], list(indices), apart)


def put_parts(
    sig: Signature, parts: Sequence[np.ndarray], on: Sequence[Any], apart: bool = False
) -> Array:
    """An array from what each device of this process is to hold, without padding.

    parts: of the stored dtype; `on`: their devices; apart: see `backend.put`.
    """
    if not sig.even:
        parts, apart = _padded_parts(sig, parts), False
    return wrap(backend.put(sig.physical, sig.placement, parts, on, apart), sig)


def _padded_parts(sig: Signature, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The parts with padding where they are smaller than a shard."""
    full = sig.sharding.shard_shape(sig.stored.shape)
    fill = padding_value(sig.stored.dtype)
    done: dict[int, np.ndarray] = {}  # replicas share a part
    for part in parts:
        if part.shape != full and id(part) not in done:
            whole = np.full(full, fill, part.dtype)
            whole[tuple([slice(n) for n in part.shape])] = part
            done[id(part)] = whole
    return [done.get(id(part), part) for part in parts]


@functools.lru_cache(8192)
def _plan(shape: tuple, dtype: Any, sharding: Any, committed: bool, key: Any) -> tuple:
    """`_plan_of` a NumPy array's type, which flags in the context's key decide."""
    return _plan_of(array_type(shape, canonicalize(dtype)), sharding, committed)


def _plan_of(t: ArrayType, sharding: Any, committed: bool) -> tuple[Signature, Any, bool]:
    """The signature of a value on its devices, and what each of them gets (None: all of it).

    The last result says whether no two devices get the same, or all do (see `backend.put`).
    """
    sig = signature(t, sharding, committed)
    if len(sig.devices) == 1:
        return sig, None, True
    indices = sharding.addressable_devices_indices_map(t.shape)
    distinct = {tuple((s.start, s.stop) for s in index) for index in indices.values()}
    return sig, indices, t.size > 0 and len(distinct) in (1, len(indices))


def scalar(value: Any, near: Signature | None = None) -> Array:
    """A Python or NumPy scalar as an uncommitted array, for use as an operand.

    near: the signature of an array in whose place it is wanted. Equal scalars in one place share
    a buffer, so the array must not get into the hands of users, who could delete it.
    """
    held = _scalars if near is None else near.ints
    key = (value.__class__, _exact(value), current().key)
    found = held.get(key)
    if found is not None and found._impl.__class__ is not Gone:
        return found
    if near is None:
        sharding = SingleDeviceSharding(default_single())
    else:
        sharding = whole_beside(near)
    if len(held) >= _SCALAR_CACHE_SIZE:
        held.clear()
    held[key] = new = put_host(value, sharding, False)
    return new


def _exact(value: Any) -> Any:
    """What tells a scalar from all others of its class: the signs of zeros count."""
    if isinstance(value, complex | np.complexfloating):
        return repr(value)
    return value or repr(value)


def whole_beside(sig: Signature) -> Any:
    """The sharding that puts a whole value on each device of a signature."""
    if isinstance(sig.sharding, NamedSharding):
        return sig.sharding.with_spec(PartitionSpec())
    if isinstance(sig.sharding, SingleDeviceSharding):
        return sig.sharding
    return GSPMDSharding.get_replicated(sig.devices)


def move(x: Any, target: Any) -> Array:
    """`x` under another sharding, or in another `Format`, committed to it.

    Over the same devices the data never visits the host; nor does it between accelerators. Where
    the target is no Format, the layout of an array stays only if its sharding does.
    """
    if target.__class__ is Format:
        return relayout(move(x, target.sharding), target.layout)
    if not isinstance(x, Array):
        return put_host(x, target, True)
    sig = x._sig
    if sig.sharding is target:
        return x if sig.committed else _relabelled(x, target)
    if sig.layout is not None:
        return move(relayout(x, None), target)
    if sig.devices == target.devices or sig.sharding.device_set == target.device_set:
        return _on_same_devices(x, target)
    if _same_tiles(x, target):
        return _copy(x, target)
    if x._is_on_cpu() and target.devices[0].platform == "cpu":
        return _by_host(x, target)
    if len(sig.devices) == 1:
        return _spread(x, target)
    return _from_parts(x, target)


# ---------------------------------------------------------------------------------- layouts


def relayout(x: Array, layout: Any) -> Array:
    """The array with its elements in another order in memory; None: in the default one."""
    if isinstance(layout, AutoLayout):
        raise ValueError(
            "Layout.AUTO is the compiler's choice for a program, and here there is none. Give a "
            "Layout, or leave it out for the default one."
        )
    if isinstance(x.dtype, ExtendedDType):
        if layout is None:
            return x
        raise TypeError(f"{layout} is for arrays of numbers; this one has dtype {x.dtype}.")
    wanted = None if layout is None else layout.for_rank(x.ndim)
    if x._sig.layout is wanted:
        return x
    if stated_kind(x.sharding) is not None:  # programs work in the devices' own memory
        near = _copy(x, x.sharding.with_memory_kind(None))
        return _copy(relayout(near, layout), x.sharding)
    sig = signature(x.aval, x.sharding, x._sig.committed, wanted)
    (raw,) = _resharder(x._sig, sig).launch([x._live()], [sig.handler])
    return wrap(raw, sig)


# ------------------------------------------------------------------------ the same devices


def _on_same_devices(x: Array, target: Any) -> Array:
    here, ndim = x.sharding, x._sig.physical.ndim
    there = aligned(target, here.devices, ndim).with_memory_kind(None)
    if not here.with_memory_kind(None).is_equivalent_to(there, ndim):
        working = here.with_memory_kind(None)  # programs run on the default kind of memory
        x = _reshard(x if here is working else _copy(x, working), there)
    kind = x.sharding.memory_kind
    if kind == target.memory_kind:
        return _relabelled(x, target)
    return _copy(_relabelled(x, target.with_memory_kind(kind)), target)


def aligned(sharding: Any, devices: tuple, ndim: int) -> Any:
    """The sharding that gives each device what `sharding` does, with the devices in this order."""
    if sharding.devices == devices:
        return sharding
    tiling = sharding.tiling(ndim)
    position = {d: i for i, d in enumerate(devices)}
    place = [position[d] for d in sharding.devices]
    order = tuple(place[p] for p in tiling.tile_assignment().ravel().tolist())
    same = Tiling(tiling.dims, (len(devices),), (0,), tiling.replicated, assignment=order)
    return GSPMDSharding(devices, same, sharding.memory_kind)


def _relabelled(x: Array, target: Any) -> Array:
    """The same buffers under a sharding that puts the same data on each device."""
    sig = signature(x.aval, target, True, x._sig.layout)
    raw = x._live()
    if x._sig.devices != target.devices:
        raw = backend.reorder(raw, sig.placement)
    return wrap(backend.rewrap(raw, sig.physical, sig.placement), sig)


@functools.lru_cache(1024)
def _resharder(sig: Signature, target: Signature) -> Compiled:
    """A compiled identity between two places over the same devices, in one order."""
    var = Var(sig.type)
    program = Program([var], [var], [], name="reshard")
    several = len(sig.devices) > 1
    ins, outs = [sig.sharding if several else None], [target.sharding if several else None]
    storage = storage_of(ins, [sig.layout], outs, [target.layout])
    text = module_text(program, sig.devices, [], ins, outs, storage=storage)
    return compiled_for(text, sig.devices, (False,))


def _reshard(x: Array, target: Any) -> Array:
    sig = signature(x.aval, target, True)
    (raw,) = _resharder(x._sig, sig).launch([x._live()], [sig.handler])
    return wrap(raw, sig)


# ----------------------------------------------------------------------------- other devices


def _same_tiles(x: Array, target: Any) -> bool:
    """Whether the shards may go from device i to device i."""
    ndim = x._sig.physical.ndim
    mine, theirs = x.sharding.tiling(ndim), target.tiling(ndim)
    return len(x._sig.devices) == len(target.devices) and mine.dims == theirs.dims and (
        mine.tile_assignment().tolist() == theirs.tile_assignment().tolist()
    )


def copy(x: Array) -> Array:
    """The same value in new memory, on the same devices."""
    return _copy(x, x.sharding)


def _copy(x: Array, target: Any) -> Array:
    sig = signature(x.aval, target, True, x._sig.layout)
    impl = backend.copy_to_devices(x._live(), backend.device_list(target.devices), sig.placement)
    return wrap(backend.rewrap(impl, sig.physical, sig.placement), sig)


def _by_host(x: Array, target: Any) -> Array:
    """Between CPU devices, whose memory the host reads: each shard is copied once."""
    sig = signature(x.aval, target, True)
    wanted = target.addressable_devices_indices_map(x.shape)
    held = _positions(x)
    if x._host is None and all(_key(i) in held for i in wanted.values()) and not is_narrow(x):
        keys = [_key(i) for i in wanted.values()]
        distinct = list(dict.fromkeys(keys))
        views = dict(zip(distinct, x._host_parts([held[k] for k in distinct]), strict=True))
        shards = [views[k] for k in keys]
        return put_parts(sig, shards, list(wanted))
    if x._host is not None or is_narrow(x) or not x.is_fully_addressable:
        return put_host(x._value(), target, True, x.aval)
    indices, positions = x._distinct()
    bounds = [_bounds(i, x.shape) for i in indices]
    parts = list(zip(bounds, x._host_parts(positions), strict=True))
    keys = [_bounds(i, x.shape) for i in wanted.values()]
    cut = {key: _cut_out(key, parts) for key in dict.fromkeys(keys)}
    shards = [cut[key] for key in keys]
    return put_parts(sig, shards, list(wanted))


def _bounds(index: tuple, shape: tuple) -> tuple:
    """An index as a (start, stop) pair for each dimension."""
    return tuple([s.indices(n)[:2] for s, n in zip(index, shape, strict=True)])


def _cut_out(wanted: tuple, parts: list[tuple[tuple, np.ndarray]]) -> np.ndarray:
    """What an index, as (start, stop) pairs, picks from parts of an array at such indices."""
    example = parts[0][1]
    shape = tuple([stop - start for start, stop in wanted])
    whole = np.empty(shape + example.shape[len(wanted) :], example.dtype)
    for held, part in parts:
        both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, held, strict=True)]
        if any(low >= high for low, high in both):
            continue
        pairs = [*zip(both, held, strict=True)]
        piece = part[tuple([slice(low - c, high - c) for (low, high), (c, _) in pairs])]
        if piece.shape == whole.shape:
            return piece
        pairs = [*zip(both, wanted, strict=True)]
        whole[tuple([slice(low - a, high - a) for (low, high), (a, _) in pairs])] = piece
    return whole


def _positions(x: Array) -> dict[tuple, int]:
    """Where in the sharding of `x` an index is held, for those that this process holds."""
    indices, positions = x._distinct()
    return {_key(index): p for index, p in zip(indices, positions, strict=True)}


def _key(index: tuple) -> tuple:
    return tuple([(s.start, s.stop) for s in index])


def _spread(x: Array, target: Any) -> Array:
    """From one device to several: the whole value goes to each, which then keeps its part."""
    replicated = GSPMDSharding.get_replicated(target.devices)
    sig = signature(x.aval, replicated, True)
    copies = []
    for device in target.devices:
        copies.append(_copy(x, SingleDeviceSharding(device))._impl)
    return move(wrap(backend.assemble(sig.physical, sig.placement, copies), sig), target)


def _from_parts(x: Array, target: Any) -> Array:
    """From several devices to others: as shards where the source has them, else as a whole."""
    wanted = target.addressable_devices_indices_map(x.shape)
    if not all(_key(i) in _positions(x) for i in wanted.values()):
        whole = move(x, GSPMDSharding.get_replicated(x._sig.devices))
        return move(whole.addressable_data(0), target)
    held = _positions(x)
    shards = {s._position: s for s in x.addressable_shards}
    parts = [move(shards[held[_key(i)]].data, SingleDeviceSharding(d)) for d, i in wanted.items()]
    sig = signature(x.aval, target, True)
    return wrap(backend.assemble(sig.physical, sig.placement, [p._impl for p in parts]), sig)


# ---------------------------------------------------------------------------------- pickling


def _reduced(x: Array) -> tuple:
    return _restored, (np.array(x._value()), x.dtype, x.shape, x.aval.weak_type)


def _restored(value: np.ndarray, dtype: Any, shape: tuple, weak: bool) -> Array:
    """A pickled array: value and type survive, its place does not."""
    t = array_type(shape, dtype, weak)
    return put_host(value, SingleDeviceSharding(default_single()), False, t)


copyreg.pickle(Array, _reduced)
