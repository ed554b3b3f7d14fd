"""Raw buffers: transfers between host and devices, and tracking of shared memory.

A *raw buffer* is a jaxlib array: one logical array over the devices of its placement. All other
packages treat raw buffers as opaque.

Several raw buffers may share memory: shards of an array, views, the same bytes under another type.
A `Memory` represents it, so that deleting one of them deletes all. A raw buffer without
the attribute `MARK` shares no memory with another one, and no array caches its value. NumPy views
that users hold need no mark: XLA copies a buffer that has any, if it is donated.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.runtime import forks, host, processes
from shardwise._src.runtime.backend import RuntimeFailure, clients
from shardwise._src.runtime.in_flight import CPU_WINDOW
from shardwise._src.runtime.platforms import named, platform_of

# Attribute of raw buffers: a weak reference to the array that caches its value, or None.
MARK = "_shardwise_reader"
_COPY_DURING_CALL = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL


def put(
    aval: Any,
    placement: _jax.GSPMDSharding,
    shards: Sequence[np.ndarray],
    on: Sequence[_jax.Device],
    apart: bool = False,
) -> _jax.ArrayImpl:
    """One raw buffer of type `aval` from a NumPy array for each local device in `on`.

    The bytes are copied before the call returns: later writes to `shards` have no effect.
    apart: the caller guarantees that no shards share memory, or that all do.
    """
    if len(on) > 1 and not placement._internal_device_list.is_fully_addressable:
        shards = _apart(shards, not_all=True)
    elif not apart and len(on) > 1:
        shards = _apart(shards)
    return _jax.batched_device_put(
        aval,
        placement,
        shards,
        on,
        True,
        False,
        host_buffer_semantics=_COPY_DURING_CALL,
        enable_x64=True,
    )


def putter(
    aval: Any, placement: _jax.GSPMDSharding, on: Sequence[_jax.Device]
) -> Callable[[Sequence[np.ndarray]], _jax.ArrayImpl]:
    """`put` of arrays that share no memory, or all the same. Forked children must not call it."""
    place = _jax.batched_device_put
    return lambda shards: place(aval, placement, shards, on, True, False, _COPY_DURING_CALL, True)


def _apart(shards: Sequence[np.ndarray], not_all: bool = False) -> Sequence[np.ndarray]:
    """The shards, copied so that no two share memory, unless all do.

    jaxlib 0.10 to 0.12 fails ("bad_function_call") if some shards share memory, and (not_all) also
    if all do and the array has further shards in other processes.
    """
    if not shards[0].size:
        return [np.empty(s.shape, s.dtype) for s in shards]
    places = [s.__array_interface__["data"][0] for s in shards]
    if len(set(places)) == len(places) or (len(set(places)) == 1 and not not_all):
        return shards
    seen: set[int] = set()
    out: list[np.ndarray] = []
    for shard, place in zip(shards, places, strict=True):
        out.append(shard.copy() if place in seen else shard)
        seen.add(place)
    return out


def assemble(
    aval: Any, placement: _jax.GSPMDSharding, parts: Sequence[_jax.ArrayImpl]
) -> _jax.ArrayImpl:
    """One raw buffer from single-device raw buffers, in the order of the devices. No copy."""
    parts = list(parts)
    raw = _jax.ArrayImpl(aval, placement, parts, committed=True, _skip_checks=True)
    return _sharing(raw, parts)


def rewrap(raw: _jax.ArrayImpl, aval: Any, placement: _jax.GSPMDSharding) -> _jax.ArrayImpl:
    """The same bytes under another type and placement. No copy."""
    return _sharing(raw._rewrap_with_aval_and_sharding(aval, placement), (raw,))


def reorder(raw: _jax.ArrayImpl, placement: _jax.GSPMDSharding) -> _jax.ArrayImpl:
    """The same buffers, with the devices in the order of another placement. No copy."""
    new = _jax.reorder_shards(raw, placement, _jax.ArrayCopySemantics.REUSE_INPUT)
    return _sharing(new, (raw,))


class Memory(list[weakref.ref[_jax.ArrayImpl]]):
    """Memory that several raw buffers share: a list of weak references to them.

    why: the caller's reason for freeing it, if known.
    related: the memories of its parts, or the memory that contains it.
    parts: the memories of its parts by address.
    views: raw buffers that alias a part (`host`).
    """

    why: object = None
    related: tuple[Memory, ...] = ()
    parts: dict[int, Memory] | None = None
    views: dict[tuple[Any, Any], _jax.ArrayImpl] | None = None

    def add(self, raw: _jax.ArrayImpl) -> None:
        if len(self) > 8:
            self[:] = [r for r in self if r() is not None]
        self.append(weakref.ref(raw))

    def drop_views(self, why: object) -> None:
        """Ends the views of the memory before it is reused."""
        for r in self:
            drop_value(r())
        views, self.views = self.views, None
        for view in (views or {}).values():
            delete(view, why)

    def end(self, raw: _jax.ArrayImpl, why: object) -> None:
        """Marks the memory as freed together with `raw`, and the other buffers as deleted.

        XLA crashes or hangs on a program if an input lacks some shards. The other shards may be in
        use elsewhere: each buffer is replaced by a throwaway, which is deleted.
        """
        self.why, self.views = self.why or why, None
        others = [found for r in self if (found := r()) is not None and found is not raw]
        self.clear()
        for other in others:
            with suppress(RuntimeFailure):  # jaxlib rejects deleted buffers
                drop_value(other)
                other._replace_with(_throwaway(other))
                other.delete()


def _throwaway(like: _jax.ArrayImpl) -> _jax.ArrayImpl:
    """A raw buffer of the same type and sharding as another one, with almost no memory."""
    devices = list(like._sharding._internal_device_list)
    local = [d for d in devices if d.process_index == d.client.process_index()]
    place = _jax.GSPMDSharding(_jax.DeviceList(tuple(devices)), xc.HloSharding.replicate())
    none = np.zeros((), np.bool_)
    t = SimpleNamespace(shape=(), dtype=none.dtype, weak_type=False)
    small = put(t, place, (none,) * len(local), local, True)
    return small._rewrap_with_aval_and_sharding(like.aval, like._sharding)


def _sharing(new: Any, raws: Sequence[_jax.ArrayImpl]) -> _jax.ArrayImpl:
    """`new`, marked as sharing the memory of `raws`."""
    one = len(raws) == 1
    marks = _marks(raws[0]) if one else (Memory(), *[m for raw in raws for m in _marks(raw)])
    for memory in marks:
        memory.add(new)
    _mark(new, marks)
    return new


def _mark(raw: Any, memories: tuple[Memory, ...]) -> None:
    raw._shardwise_memory = memories
    if not hasattr(raw, MARK):
        raw._shardwise_reader = None


def _marks(raw: Any) -> tuple[Memory, ...]:
    found = getattr(raw, "_shardwise_memory", None)
    if found is None:
        memory = Memory()
        memory.append(weakref.ref(raw))
        found = (memory,)
        _mark(raw, found)
    return found


def _mark_parts(raw: _jax.ArrayImpl, parts: Sequence[Any]) -> None:
    """Marks the parts of a raw buffer; jaxlib returns new part objects for each request."""
    whole = _marks(raw)[0]
    known = whole.parts = whole.parts or {}
    for part in parts:
        place = part.unsafe_buffer_pointer()
        memory = known.get(place)
        if memory is None:
            memory = known[place] = Memory()
            memory.related = (whole,)
            whole.related += (memory,)
        memory.add(part)
        _mark(part, (memory,))


def view_of(raw: _jax.ArrayImpl, aval: Any, placement: Any) -> _jax.ArrayImpl | None:
    """The view of a part of a raw buffer that was stored by `cache_view`; None if absent."""
    marks = getattr(raw, "_shardwise_memory", None)
    views = None if marks is None else marks[0].views
    found = None if views is None else views.get((aval, placement))
    return None if found is None or is_gone(found) else found


def cache_view(raw: _jax.ArrayImpl, view: _jax.ArrayImpl) -> None:
    """Caches a raw buffer that views a part of another's memory, until that memory is donated.

    XLA never writes to a view, and deleting a view does not delete the full buffer.
    """
    whole = _marks(raw)[0]
    views = whole.views = whole.views or {}
    views[view.aval, view._sharding] = view
    _marks(view)


def memories(raw: _jax.ArrayImpl) -> Sequence[_jax.ArrayImpl | Memory]:
    """Objects that identify the memory of a raw buffer: the buffer itself, unless it is shared."""
    marks = getattr(raw, "_shardwise_memory", None)
    if marks is None:
        return (raw,)
    parts = [part for m in marks if m.parts for part in m.parts.values()]
    views = [mark for m in marks if m.views for v in m.views.values() for mark in _marks(v)]
    return [*marks, *parts, *views]


def shared(raws: Sequence[_jax.ArrayImpl]) -> list[_jax.ArrayImpl]:
    """The raw buffers whose memory is, or was, shared with others."""
    return [raw for raw in raws if getattr(raw, "_shardwise_memory", None) is not None]


def are_apart(raws: Sequence[_jax.ArrayImpl], shared: Sequence[_jax.ArrayImpl]) -> bool:
    """Whether no two raw buffers share memory. shared: the result of `shared` for them."""
    if len(set(map(id, raws))) < len(raws):
        return False
    found = [id(memory) for raw in shared for memory in memories(raw)]
    return len(set(found)) == len(found)


def drop_views(raws: Sequence[_jax.ArrayImpl], why: object) -> None:
    """Drops the views cached here of memory that is about to be donated to a program.

    XLA copies memory that still has external references, such as NumPy views held by users.
    """
    for raw in raws:
        for memory in getattr(raw, "_shardwise_memory", ()):
            memory.drop_views(why)
    _jax.collect_garbage()  # the runtime frees views only when requested


def note_reader(raw: Any, array: Any) -> None:
    """Records the array that caches the value of a raw buffer, maybe as a view, in its `_host`."""
    raw._shardwise_reader = weakref.ref(array)


def drop_value(raw: _jax.ArrayImpl | None) -> None:
    """Drops the cached value of a raw buffer, if there is one."""
    reader = getattr(raw, "_shardwise_reader", None)
    array = None if reader is None else reader()
    if array is not None:
        array._host = None


def delete(raw: _jax.ArrayImpl, why: object) -> None:
    """Frees the memory of a raw buffer. why: the reason reported by others that share it."""
    for memory in getattr(raw, "_shardwise_memory", ()):
        for one in (memory, *memory.related):
            one.end(raw, why)
    drop_value(raw)
    raw.delete()


def is_gone(raw: _jax.ArrayImpl) -> bool:
    """Whether any memory of a raw buffer was freed or donated, even if only one shard's."""
    if raw.is_deleted():
        return True
    marks = getattr(raw, "_shardwise_memory", None)
    return marks is not None and any([m.why for m in marks])


def why_gone(raw: _jax.ArrayImpl) -> Any:
    """Why the memory of a deleted raw buffer was freed, if known."""
    return next((m.why for m in getattr(raw, "_shardwise_memory", ()) if m.why), None)


def copy_to_devices(
    raw: _jax.ArrayImpl, device_list: _jax.DeviceList, placement: _jax.GSPMDSharding
) -> _jax.ArrayImpl:
    """Copies shard i to device i of the list; the number of shards is unchanged."""
    return copy_each([raw], [device_list], [placement])[0]


def copy_each(
    raws: Sequence[_jax.ArrayImpl],
    device_lists: Sequence[_jax.DeviceList],
    placements: Sequence[_jax.GSPMDSharding],
) -> Sequence[_jax.ArrayImpl]:
    """`copy_to_devices` for several raw buffers together."""
    how = [_jax.ArrayCopySemantics.ALWAYS_COPY] * len(raws)
    return _jax.batched_copy_array_to_devices_with_sharding(raws, device_lists, placements, how)


def device_list(devices: tuple[_jax.Device, ...]) -> _jax.DeviceList:
    return _jax.DeviceList(devices)


def single_buffers(raw: _jax.ArrayImpl) -> list[_jax.ArrayImpl]:
    """The single-device raw buffers, in the order of the addressable devices.

    jaxlib imports jax here if it is installed (see `runtime.host` for the alternative on CPU).
    """
    parts = raw._arrays
    if len(parts) > 1:
        _mark_parts(raw, parts)
    return parts


def start_fetch(raw: _jax.ArrayImpl) -> None:
    """Starts the copy of a single-device raw buffer to the host; on CPU there is nothing to do."""
    if not named(raw.platform()).shares_memory:
        raw._copy_single_device_array_to_host_async()


def fetch_one(raw: _jax.ArrayImpl, dtype: np.dtype[Any]) -> np.ndarray:
    """A read-only NumPy view (CPU) or copy (GPU) of a single-device raw buffer.

    dtype: of whole bytes.
    """
    if named(raw.platform()).shares_memory:
        raw.block_until_ready()  # jaxlib ends the process if the computation has failed
        return np.asarray(raw) if dtype.isbuiltin == 1 else host.shard_view(raw, (), 0, dtype)
    value, _ = raw._single_device_array_to_np_array_did_copy()
    value.flags.writeable = False
    return value


def bytes_in_use() -> int:
    """Bytes of this process's arrays on its devices: as reported, or on CPU, of all live arrays."""
    total = 0
    for platform_client in clients().values():
        stats = [device.memory_stats() for device in platform_client.local_devices()]
        known = [s for s in stats if s]
        if len(known) == len(stats):
            total += sum(s["bytes_in_use"] for s in known)
            continue
        for raw in platform_client.live_arrays():
            if not raw.is_deleted():
                on = raw._sharding._internal_device_list  # the size is the total over them
                here = len(on.addressable_device_list)
                total += raw.on_device_size_in_bytes() * here // len(on)
    return total


def free_bytes(device: _jax.Device) -> int | None:
    """Bytes that a device can still allocate (host memory for CPU); None if unknown."""
    stats = device.memory_stats()
    if stats:
        limit = stats.get("bytes_limit")
        return None if limit is None else limit - stats["bytes_in_use"]
    if not platform_of(device).shares_memory:
        return None
    try:
        with open("/proc/meminfo") as lines:
            found = dict([line.split(":") for line in lines])
        return int(found["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None


def block_until_ready(raws: Sequence[_jax.ArrayImpl]) -> None:
    if processes.gate() is not None:
        for raw in raws:
            processes.wait(raw)
        return
    _jax.batched_block_until_ready(list(raws))


def finish_launches() -> None:
    """Waits until all arrays of this process are computed, and collective programs have ended."""
    CPU_WINDOW.finish()
    for platform_client in clients().values():
        for raw in platform_client.live_arrays():
            if not (raw.is_deleted() or raw.is_ready()):
                processes.wait(raw)


forks.closed_by_fork(
    sys.modules[__name__],
    "put",
    "assemble",
    "rewrap",
    "reorder",
    "copy_each",
    "delete",
    "single_buffers",
    "fetch_one",
    "block_until_ready",
)
