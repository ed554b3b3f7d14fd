"""`Array`: the only array type, a global logical array over the devices of its sharding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.arrays.former_names import FormerNames
from shardwise._src.arrays.interchange import SUBBYTE, Interchange, is_subbyte
from shardwise._src.arrays.out_of_memory import is_exhausted, of_array
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.core.eval_context import eval_context, eval_trace
from shardwise._src.messages.tracebacks import hide_frames
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.shape import slice_
from shardwise._src.runtime import buffers, forks, host, host_memory, processes
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.runtime.buffers import MARK
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.devices import processes_text
from shardwise._src.types.layout import Format, Layout
from shardwise._src.types.sharding import SingleDeviceSharding
from shardwise._src.values.value import Value


class _ArrayMeta(type):
    """Makes tracers instances of `Array`, so that `isinstance(x, Array)` works as in JAX."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Value)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "Array cannot be constructed directly; use shardwise.numpy.array, device_put or "
            "make_array_from_callback."
        )


@dataclass(eq=False, repr=False, slots=True)
class DeletedBuffer:
    """Replaces the buffer of a deleted or donated array.

    why: what happened to the array. remedy: advice for users who still need it.
    """

    why: str
    remedy: str

    def is_deleted(self) -> bool:
        return True


_DELETED = DeletedBuffer(
    "has been deleted", "To use it longer, make a copy beforehand: `x.copy()`."
)
_DELETED_HERE = DeletedBuffer(f"{_DELETED.why}: `delete()` was called on it", _DELETED.remedy)
_UNKNOWN = DeletedBuffer("has been deleted or donated", _DELETED.remedy)


@dataclass(eq=False, repr=False, slots=True)
class Shard:
    """One device's shard of an array.

    device, index (slices of the global array), replica_id (0 for the first holder of an index),
    data (a single-device `Array`; None if the device belongs to another process).
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    _array: Any  # None if the device belongs to another process
    _position: int
    _data: Any = None

    @property
    def data(self) -> Any:
        if self._data is None and self._array is not None:
            self._data = _part(self._array, self._position)
        return self._data

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={self.data!r})"
        )


SMALL = 1 << 16  # bytes; below this, setup takes longer than copying


class Array(Interchange, FormerNames, metaclass=_ArrayMeta):
    """A NumPy-like array over one or several devices. Created by functions, not by the constructor.

    `shape` and `dtype` are logical and global; `sharding` says which device holds which shard.
    """

    __slots__ = ("_impl", "_sig", "_host", "__weakref__")
    _impl: Any
    _sig: Signature
    _host: np.ndarray | None

    # -- properties --

    # Declared as a variable, because tracers set theirs; an array's is never set.
    @property
    def aval(self) -> ArrayType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._sig.type

    @property
    def sharding(self) -> Any:
        return self._sig.sharding

    @property
    def format(self) -> Format:
        """The layout in memory, and the sharding."""
        layout = self._sig.layout or Layout(range(self.aval.ndim))
        return Format(layout, self._sig.sharding)

    @property
    def committed(self) -> bool:
        return self._sig.committed

    _committed = committed  # the name that other libraries use

    @property
    def device(self) -> Any:
        """The device, or the sharding if there are several devices."""
        devices = self._sig.devices
        return devices[0] if len(devices) == 1 else self._sig.sharding

    def devices(self) -> set:
        return set(self._sig.devices)

    @property
    def is_fully_addressable(self) -> bool:
        return self._sig.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        return self._sig.sharding.is_fully_replicated

    # -- shards --

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on this process's devices, in the order of the sharding."""
        here = set(self._sig.sharding.addressable_positions)
        return [s for i, s in enumerate(self.global_shards) if i in here]

    @property
    def global_shards(self) -> list[Shard]:
        """All shards; those of other processes without data."""
        self._live()
        sharding, shape = self._sig.sharding, self._sig.type.shape
        here = set(sharding.addressable_positions)
        rows = zip(
            sharding.devices, sharding.indices(shape), sharding.replica_ids(shape), strict=True
        )
        return [
            Shard(device, index, replica, self if i in here else None, i)
            for i, (device, index, replica) in enumerate(rows)
        ]

    def addressable_data(self, index: int) -> Array:
        if not self.sharding.has_addressable_devices:
            raise RuntimeError(f"this process has no shards of the array of type {self.aval}.")
        return self.addressable_shards[index].data

    # -- lifetime --

    def _live(self) -> Any:
        impl = self._impl
        if impl.is_deleted() or (hasattr(impl, MARK) and buffers.is_gone(impl)):
            raise self._gone()
        return impl

    def _gone(self) -> RuntimeError:
        """The error for using the deleted array."""
        if self._impl.__class__ is DeletedBuffer:
            gone, way = self._impl, ""
        else:
            gone = buffers.why_gone(self._impl) or _UNKNOWN
            way = ", through another array that shared its memory"
        t = self.aval.str_short(True)
        return RuntimeError(f"array of type {t} {gone.why}{way}. {gone.remedy}")

    def _itself(self) -> Array:
        self._live()
        return self

    def __iter__(self) -> Iterator[Array]:
        if self._itself()._sig.stacked == 0:
            return iter([row_of(self, i) for i in range(self.shape[0])])
        return super().__iter__()

    def delete(self) -> None:
        """Frees the memory now; arrays that share it are deleted as well."""
        if not self.is_deleted():
            buffers.delete(self._impl, _DELETED)
            self._impl = _DELETED_HERE
            self._host = None

    def is_deleted(self) -> bool:
        return buffers.is_gone(self._impl)

    def __copy__(self) -> Array:
        return eval_trace().copied(self)

    def __deepcopy__(self, memo: dict) -> Array:
        return eval_trace().copied(self)

    def block_until_ready(self) -> Array:
        raw = self._live()
        try:
            processes.wait(raw)
        except RuntimeFailure as error:
            raise self._failed(error) from None
        return self

    def _failed(self, error: Exception) -> Exception:
        """The error to raise if the computation of the array failed with `error`."""
        return of_array(self._sig, error) if is_exhausted(error) else error

    def is_ready(self) -> bool:
        return self._live().is_ready()

    def on_device_size_in_bytes(self) -> int:
        """Total bytes on all its devices, including other processes; replicas and padding
        count."""
        raw = self._live()
        if not self._sig.sharding.has_addressable_devices:  # jaxlib does not report it
            t = self._sig.physical
            tile = self._sig.sharding.tile_shape(t.shape)
            return math.prod(tile) * t.dtype.itemsize * len(self._sig.devices)
        return raw.on_device_size_in_bytes()

    # -- host --

    def copy_to_host_async(self) -> None:
        """Starts copying the value to the host, where `np.asarray` will find it."""
        self._live()
        if self._host is None and not self._is_on_cpu():
            for raw in self._single_buffers(self._sig.sharding.distinct(self.shape)[1]):
                buffers.start_fetch(raw)

    def _single_buffers(self, positions: Sequence[int]) -> list[Any]:
        """The raw buffers at these positions of the sharding, each on its device."""
        if len(self._sig.devices) == 1:
            return [self._live()]
        raws = buffers.single_buffers(self._live())
        local = dict(zip(self._sig.sharding.addressable_positions, raws, strict=True))
        return [local[p] for p in positions]

    def _host_parts(self, positions: Sequence[int]) -> list[np.ndarray]:
        """The parts on the devices at these positions, as read-only NumPy arrays."""
        if self._sig.even:
            return self._raw_parts(positions)
        held = [self._extent(p) for p in positions]
        pairs = zip(held, self._raw_parts(positions), strict=True)
        return [part[tuple([slice(n) for n in shape])] for shape, part in pairs]

    def _extent(self, position: int) -> tuple[int, ...]:
        """The shape of a device's part of the array, as stored."""
        stored = self._sig.stored.shape
        index = self._sig.sharding.indices(stored)[position]
        return tuple([len(range(*s.indices(n))) for s, n in zip(index, stored, strict=True)])

    def _raw_parts(self, positions: Sequence[int]) -> list[np.ndarray]:
        """The shards at these positions of the sharding, with padding, on the host."""
        try:
            return self._parts_as_stored(positions)
        except (RuntimeFailure, MemoryError) as error:
            raise self._failed(error) from None

    def _parts_as_stored(self, positions: Sequence[int]) -> list[np.ndarray]:
        impl, devices, dtype = self._live(), self._sig.devices, self._sig.physical.dtype
        if processes.gate() is not None:
            processes.wait(impl)
        usual = self._sig.layout is None or not self._is_on_cpu()
        if len(devices) == 1 and usual:
            return [buffers.fetch_one(impl, dtype)]
        if self._is_on_cpu():
            kind = self._sig.sharding.memory_kind
            return [host.shard_view(impl, devices, p, dtype, kind) for p in positions]
        raws = self._single_buffers(positions)
        for raw in raws:
            buffers.start_fetch(raw)
        return [buffers.fetch_one(raw, dtype) for raw in raws]

    def _value(self) -> np.ndarray:
        """The host value, read-only. Cached, except `readable` ones of one device: a new view is as
        fast, and none has to be released before the array is donated."""
        raw, sig, kept = self._live(), self._sig, self._host
        if kept is not None:
            return kept
        try:
            if sig.readable is None:
                value = self._fetch()
            else:
                processes.wait(raw)  # jaxlib ends the process if the computation has failed
                value = sig.readable(raw)
                if len(sig.devices) == 1:
                    return value
        except Exception as error:
            hide_frames(error)
            if sig.readable is None:
                raise
            raise self._failed(error) from None
        self._host = value
        buffers.note_reader(raw, self)
        return value

    def _fetch(self) -> np.ndarray:
        self._live()
        if not self._sig.sharding.has_addressable_devices:
            owners = processes_text(sorted({d.process_index for d in self._sig.devices}))
            raise RuntimeError(
                f"array of type {self.aval.str_short(True)} is on devices of {owners}, and this "
                "process cannot read its value. Put it on devices of this process, with "
                "`shardwise.device_put(x, sharding)` in all of these processes and in this one."
            )
        if not self._sig.sharding.is_held_here(self.shape):
            raise RuntimeError(
                f"array of type {self.aval.str_short(True)} spans devices of other processes, so "
                "this process cannot read its value. Options: `shardwise.experimental."
                "multihost_utils.process_allgather(x, tiled=True)` gives all of it to each "
                "process, `shardwise.device_put(x, sharding)` with a replicated sharding over the "
                "same devices makes it readable, and `x.addressable_shards` are the shards of this "
                "process. The first two must be called in all of these processes."
            )
        if self._sig.sharding.partial_axes[0]:
            spec = self._sig.sharding.spec.update(unreduced=set())
            raise RuntimeError(
                f"array of type {self.aval.str_short(True)} is unreduced: its devices hold "
                f"partial sums. Read `shardwise.sharding.reshard(x, {spec})` instead."
            )
        t = self._sig.stored
        if not t.size:  # the partitioner does not split empty arrays
            value = np.empty(t.shape, t.dtype)
            value.flags.writeable = False
            return value
        if is_subbyte(self) and self.is_fully_addressable:
            return _through_bytes(self)
        indices, positions = self._sig.sharding.distinct(self.shape)
        if is_subbyte(self):  # avoids programs over devices of other processes
            parts = [_part(self, position)._value() for position in positions]
        else:
            parts = self._host_parts(positions)
        if len(parts) == 1:
            return parts[0]
        if t.size * t.dtype.itemsize < SMALL:
            value = np.empty(t.shape, t.dtype)
            for index, part in zip(indices, parts, strict=True):
                value[index] = part
            value.flags.writeable = False
            return value
        starts = [[s.start or 0 for s in index] for index in indices]
        in_order = [parts[i] for i in sorted(range(len(parts)), key=starts.__getitem__)]
        value = host_memory.whole(in_order, t.shape, t.dtype)
        if value is None:
            (value,) = host_memory.blocks(1, t.shape, t.dtype)
            host_memory.copy_all([(value[i], p) for i, p in zip(indices, parts, strict=True)])
            value.flags.writeable = False
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value() if self._sig.readable else self._numbers("a NumPy array")
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError(
                    f"an array of type {self.aval.str_short(True)} cannot become a NumPy array of "
                    f"dtype {np.dtype(dtype)} without a copy, as copy=False requires."
                )
            return value.astype(dtype)
        return value.copy() if copy else value


def _through_bytes(x: Array) -> np.ndarray:
    """The host value of an array of a sub-byte dtype, by way of an 8-bit one."""
    with eval_context():
        wide = convert_element_type(x, dtype=np.dtype(SUBBYTE[x.dtype.name]))
    value = wide._value().astype(x.dtype)
    value.flags.writeable = False
    return value


def row_of(array: Array, i: int) -> Array:
    """`array[i]` along the dimension with a device for each index (`sig.stacked`).

    Shares the memory of the shard on CPU; elsewhere a copy on its device; uncommitted."""
    return _part(array, i, array._sig.stacked)


def _part(array: Array, position: int, without: int | None = None) -> Array:
    """The shard at a position of the sharding, as an array on its device. Shares its memory
    unless it contains padding, or is in host memory.

    without: a dimension of size 1 to drop; the result is then uncommitted.
    """
    sharding = array._sig.sharding
    device = sharding.devices[position]
    index = sharding.indices(array.shape)[position]
    shape = tuple([len(range(*s.indices(n))) for s, n in zip(index, array.shape, strict=True)])
    if without is not None:
        if not array._is_on_cpu():
            return _without_dim(_part(array, position), without)
        shape = shape[:without] + shape[without + 1 :]
    committed = without is None
    there = SingleDeviceSharding(device, sharding.memory_kind)
    t, layout = array.aval.update(shape=shape, spec=None, mesh=None), array._sig.layout
    sig = signature(t, there, committed, layout)  # of the array that shares the memory
    if len(array._sig.devices) == 1 and without is None:
        return wrap(buffers.rewrap(array._live(), sig.physical, sig.placement), sig)
    if not array._is_on_cpu() or (is_subbyte(array) and not array.is_fully_addressable):
        return _device_part(array, position, sig)
    sig = signature(t, there, committed)
    t = sig.physical
    if is_subbyte(array):
        view = array._value()[index].reshape(t.shape)
        return wrap(buffers.put(t, sig.placement, [view], [device]), sig)
    raw = buffers.view_of(array._live(), t, sig.placement)
    if raw is not None:
        return wrap(raw, sig)
    view = array._host_parts([position])[0].reshape(t.shape)
    if not view.flags.c_contiguous or there != SingleDeviceSharding(device):
        # A view would be in the default memory kind, whatever its sharding says.
        return wrap(buffers.put(t, sig.placement, [view], [device]), sig)
    raw = host.from_view(t, sig.placement, view, device)
    buffers.cache_view(array._impl, raw)
    return wrap(raw, sig)


def _without_dim(part: Array, dim: int) -> Array:
    shape = part.shape[:dim] + part.shape[dim + 1 :]
    with eval_context():
        new = reshape(part, shape=shape)
    return wrap(new._live(), signature(new._sig.type, new._sig.sharding, False))


def _device_part(array: Array, position: int, sig: Signature) -> Array:
    """A shard that the host does not read; its padding is sliced off on its device."""
    raw, stored = array._single_buffers([position])[0], array._sig.stored
    full = array._sig.sharding.tile_shape(stored.shape)
    if full == sig.stored.shape:
        return wrap(buffers.rewrap(raw, sig.physical, sig.placement), sig)
    padded = signature(array_type(full, stored.dtype), sig.sharding, True, sig.layout)
    whole = wrap(buffers.rewrap(raw, padded.physical, padded.placement), padded)
    with eval_context():
        cut = slice_(whole, start_indices=(0,) * stored.ndim, limit_indices=sig.stored.shape)
    plain = signature(sig.type, sig.sharding, True)
    return wrap(buffers.rewrap(cut._live(), plain.physical, plain.placement), plain)


# An empty instance. Measured: 20% faster than `object.__new__`.
new_array: Callable[[], Array] = type.__call__.__get__(Array)


def wrap(impl: Any, sig: Signature) -> Array:
    """An array around a raw buffer that matches the signature exactly."""
    array = new_array()
    array._impl = impl
    array._sig = sig
    array._host = None
    return array


forks.closed_by_fork(Array, "_live")
