"""`Array`: the one array type, a global logical array over the devices of its sharding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardwise.engine.signature import Signature, signature
from shardwise.numpy.value import Value
from shardwise.runtime import backend
from shardwise.types.array_type import ArrayType
from shardwise.types.sharding import SingleDeviceSharding


class _ArrayMeta(type):
    """Makes tracers instances of `Array`, so that `isinstance` asks the natural question."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Value)


class Gone:
    """Stands where the buffer of a deleted or donated array was."""

    __slots__ = ("why",)

    def __init__(self, why: str):
        self.why = why


class Shard:
    """One device's part of an array.

    device, index (slices of the global array), replica_id (0 for the first holder of an index),
    data (a single-device `Array`; None where the device belongs to another process).
    """

    __slots__ = ("device", "index", "replica_id", "_make")

    def __init__(self, device: Any, index: tuple[slice, ...], replica_id: int, make: Any):
        self.device = device
        self.index = index
        self.replica_id = replica_id
        self._make = make

    @property
    def data(self) -> Any:
        return self._make() if self._make is not None else None

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={self.data!r})"
        )


class Array(Value, metaclass=_ArrayMeta):
    """A NumPy-like array over one or many devices. Made by functions, not by its constructor.

    `shape` and `dtype` are logical and global; `sharding` says which device holds which part.
    """

    __slots__ = ("_impl", "_sig", "_host", "__weakref__")
    _impl: Any
    _sig: Signature
    _host: np.ndarray | None

    def __init__(self, *args: Any, **kwargs: Any):
        raise TypeError(
            "Array cannot be made directly; use shardwise.numpy.array, device_put or "
            "make_array_from_callback."
        )

    # -- facts --

    @property
    def aval(self) -> ArrayType:
        return self._sig.type

    @property
    def sharding(self) -> Any:
        return self._sig.sharding

    @property
    def committed(self) -> bool:
        return self._sig.committed

    @property
    def device(self) -> Any:
        """The device, or the sharding when there are several."""
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
        sharding, shape = self._sig.sharding, self._sig.type.shape
        parts = self._parts()
        indices = sharding.devices_indices_map(shape)
        replicas = dict(zip(sharding.devices, sharding.replica_ids(shape), strict=True))
        return [
            Shard(d, indices[d], replicas[d], _part_maker(self, parts[i], d))
            for i, d in enumerate(self._local_devices())
        ]

    @property
    def global_shards(self) -> list[Shard]:
        sharding, shape = self._sig.sharding, self._sig.type.shape
        local = {s.device: s for s in self.addressable_shards}
        indices = sharding.devices_indices_map(shape)
        pairs = zip(sharding.devices, sharding.replica_ids(shape), strict=True)
        return [local.get(d) or Shard(d, indices[d], r, None) for d, r in pairs]

    def addressable_data(self, i: int) -> Array:
        return self.addressable_shards[i].data

    def _local_devices(self) -> list[Any]:
        """The addressable devices in the order of the sharding."""
        sharding = self._sig.sharding
        return [sharding.devices[i] for i in sharding.addressable_positions]

    def _parts(self) -> list[Any]:
        """The single-device raw buffers, in the order of `sharding.addressable_devices`."""
        if len(self._sig.devices) == 1:
            return [self._live()]
        return backend.shards_of(self._live())

    # -- life --

    def _live(self) -> Any:
        impl = self._impl
        if impl.__class__ is Gone:
            raise RuntimeError(self._gone_message())
        return impl

    def _gone_message(self) -> str:
        return f"array of type {self.aval.str_short(True)} {self._impl.why}."

    def delete(self) -> None:
        if self._impl.__class__ is not Gone:
            self._impl.delete()
            self._impl = Gone("has been deleted: `delete()` was called on it")
            self._host = None

    def is_deleted(self) -> bool:
        return self._impl.__class__ is Gone

    def block_until_ready(self) -> Array:
        self._live().block_until_ready()
        return self

    def is_ready(self) -> bool:
        return self._live().is_ready()

    def on_device_size_in_bytes(self) -> int:
        return self._live().on_device_size_in_bytes()

    def unsafe_buffer_pointer(self) -> int:
        return self._live().unsafe_buffer_pointer()

    # -- host --

    def copy_to_host_async(self) -> None:
        if self._host is None:
            for part in self._distinct()[1]:
                backend.start_fetch(part)

    def _distinct(self) -> tuple[list[tuple], list[Any]]:
        """Indices and raw buffers, each index once."""
        sharding, shape = self._sig.sharding, self._sig.type.shape
        replicas = dict(zip(sharding.devices, sharding.replica_ids(shape), strict=True))
        indices = sharding.devices_indices_map(shape)
        seen: dict[Any, tuple] = {}
        for device, part in zip(self._local_devices(), self._parts(), strict=True):
            index = indices[device]
            key = tuple((s.start, s.stop) for s in index)
            if key not in seen or replicas[device] == 0:
                seen[key] = (index, part)
        return [i for i, _ in seen.values()], [p for _, p in seen.values()]

    def _value(self) -> np.ndarray:
        """The host value: cached and read-only."""
        if self._host is None:
            self._host = self._fetch()
        return self._host

    def _fetch(self) -> np.ndarray:
        impl = self._live()
        t = self._sig.physical
        if len(self._sig.devices) == 1:
            return backend.fetch_one(impl, t.dtype)
        if not (self.is_fully_addressable or self.is_fully_replicated):
            raise RuntimeError(
                f"array of type {self.aval.str_short(True)} spans devices of other processes, so "
                "this process cannot read its value. Use `process_allgather` to collect it, or "
                "`addressable_shards` for the local parts."
            )
        indices, parts = self._distinct()
        for part in parts:
            backend.start_fetch(part)
        if len(parts) == 1:
            return backend.fetch_one(parts[0], t.dtype)
        value = np.empty(t.shape, t.dtype)
        for index, part in zip(indices, parts, strict=True):
            value[index] = backend.fetch_one(part, t.dtype)
        value.flags.writeable = False
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            return value.astype(dtype)
        return value.copy() if copy else value

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __reduce__(self) -> tuple:
        return _from_host, (np.asarray(self._value()), self.aval.weak_type)


def _part_maker(array: Array, part: Any, device: Any) -> Any:
    def make() -> Array:
        sharding = array._sig.sharding
        shape = sharding.shard_shape(array.shape)
        from_device = SingleDeviceSharding(device, sharding.memory_kind)
        sig = signature(array.aval.update(shape=shape, spec=None, mesh=None), from_device, True)
        return wrap(backend.rewrap(part, sig.physical, sig.placement), sig)

    return make


_new = object.__new__


def wrap(impl: Any, sig: Signature) -> Array:
    """An array around a raw buffer that is exactly as the signature says."""
    array = _new(Array)
    array._impl = impl
    array._sig = sig
    array._host = None
    return array
