"""Creates global arrays from shards: each process passes the shards of its own devices.

    make_array_from_callback(shape, sharding, cb)         # cb(index) returns the shard at an index
    make_array_from_process_local_data(sharding, data)    # the data of all devices of this process
    make_array_from_single_device_arrays(shape, sharding, arrays)   # no copy

Each shard is transferred to its device before the next one is requested, and nothing stays on the
host: peak memory is the array and one shard. Devices of other processes get their shards there.

With uneven shards the callback returns logical shards: where an index is shorter than the others,
or empty, so is the shard. Padding is added during the transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arrays.array import Array
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.infer import as_arraylike
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths, tree_text
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.runtime.backend import Device
from shardwise._src.runtime.pytree import flatten
from shardwise._src.runtime.target_machines import check_attached
from shardwise._src.transfers import parts
from shardwise._src.transfers.parts import Part
from shardwise._src.transfers.replicas import agreed
from shardwise._src.transfers.targets import as_placement, as_sharding, is_sharding_leaf
from shardwise._src.transfers.transfer import put_host, relayout
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import DTypeLike
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.pmap_sharding import PmapSharding
from shardwise._src.types.sharding_base import Sharding
from shardwise._src.types.tiling import Index

SMALL = 2**20  # bytes of shards buffered for one transfer


@hides_frames
def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[Index], Any],
    dtype: DTypeLike | None = None,
) -> Array:
    """Creates an array from a function of the index of each shard.

    Args:
      shape: the global shape.
      sharding: the result's sharding: a sharding, a `Format`, a device, or a spec over the mesh in
        scope.
      data_callback: takes a tuple of slices and returns that shard of the array: a NumPy array, an
        `Array` (no copy if it is on the right device), or anything `numpy.asarray` accepts. It is
        called once for each distinct index in this process, and replicas share the result; not for
        empty shards, unless the whole array is empty, or this process has no other shards and
        `dtype` is not given.
      dtype: of the result, to which shards are converted; by default the dtype of the shards.

    Raises:
      ValueError: if a shard does not have the shape of its index, or no shard determines the dtype.
      TypeError: if shards differ in dtype.
      UnexpectedTracerError: if a shard is a tracer.
    """
    new = _Making("make_array_from_callback", shape, sharding, dtype)
    full = [part for part in new.parts if all(part.shape) or not all(new.shape)]
    for part in full or (new.parts[:1] if dtype is None else ()):  # one determines the dtype
        new.put(part, part.devices, data_callback(part.index))
    return new.finish()


@hides_frames
def make_array_from_batched_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[list[Index]], Sequence[Any]],
    dtype: DTypeLike | None = None,
) -> Array:
    """`make_array_from_callback` with one call for all shards.

    data_callback takes the list of the indices of this process's devices, in the order of the
    sharding (replicas repeat theirs), and returns a list of as many shards.
    """
    what = "make_array_from_batched_callback"
    new = _Making(what, shape, sharding, dtype)
    at = {device: part for part in new.parts for device in part.devices}
    places = [(at[device], device) for device in parts.local_devices(new.sharding)]
    return new.finish_with(data_callback([part.index for part, _ in places]), places)


@hides_frames
def make_array_from_batched_callback_with_devices(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[tuple[tuple[Index, tuple[Any, ...]], ...]], Sequence[Any]],
    dtype: DTypeLike | None = None,
) -> Array:
    """`make_array_from_callback` with one call for all shards, which lists the devices of each.

    data_callback takes `((index, (device, ...)), ...)`: each distinct index once, with the devices
    of this process that have it, so that it can read replicas once. It returns a flat list with a
    shard for each device, group by group; arrays already on their device are not copied.
    """
    what = "make_array_from_batched_callback_with_devices"
    new = _Making(what, shape, sharding, dtype)
    groups = tuple([(part.index, part.devices) for part in new.parts])
    places = [(part, device) for part in new.parts for device in part.devices]
    return new.finish_with(data_callback(groups), places)


@hides_frames
def make_array_from_single_device_arrays(
    shape: Sequence[int],
    sharding: Sharding,
    arrays: Sequence[Array],
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Creates an array from existing shards. No copy: it shares their memory.

    Args:
      shape: the global shape.
      sharding: how the shards form the array.
      arrays: one on each device of this process that the sharding has, in any order. Shards at the
        end of an uneven dimension are smaller, and are copied to be padded.
      dtype: of the result, needed if this process has no shards; else that of `arrays`.

    Raises:
      TypeError: if `arrays` is not a sequence of arrays, or their dtypes differ.
      ValueError: if one is traced, or their number, devices or shapes do not match the sharding.
    """
    what = "make_array_from_single_device_arrays"
    if not isinstance(arrays, Sequence):
        raise TypeError(
            f"{what}: arrays must be a list or tuple of arrays; got {type(arrays).__name__}."
        )
    for i, x in enumerate(arrays):
        if isinstance(x, Tracer):
            raise ValueError(f"{what}: arrays[{i}] is a {x!r}. {_CONCRETE}")
        if x.__class__ is not Array:
            raise TypeError(
                f"{what}: arrays[{i}] is a {type(x).__name__}, not an array on a device. Put it "
                "there with `device_put`, or use make_array_from_callback."
            )
    sharding = _concrete_sharding(sharding, what)
    wanted = None if dtype is None else _as_dtype(dtype)
    return parts.assemble(tuple(shape), sharding, arrays, wanted, what)


@hides_frames
def make_array_from_process_local_data(
    sharding: Sharding, local_data: Any, global_shape: Sequence[int] | None = None
) -> Array:
    """Creates an array from the data that each process has for its own devices.

    Args:
      sharding: of the result, or a prefix of the pytree of `local_data`.
      local_data: a NumPy array, or a pytree of them. Each dimension has the global size, or the
        number of elements along it on this process's devices. Elements that are not adjacent in the
        global array are adjacent here: with (8, 12) and (24, 28), the first are local_data[0:4],
        the others local_data[4:8].
      global_shape: of the result, or a pytree of shapes. If None, also for single dimensions, it is
        inferred from the local size and this process's share of the shards.

    Raises:
      ValueError: if a dimension has neither size, or the global size cannot be inferred.
    """
    what = "make_array_from_process_local_data"
    leaves, tree = flatten(local_data)
    places = _spread(sharding, local_data, len(leaves), f"{what}: sharding", is_sharding_leaf)
    shapes = _spread(global_shape, local_data, len(leaves), f"{what}: global_shape", _is_shape)
    out = []
    for i, row in enumerate(zip(leaves, places, shapes, strict=True)):
        out.append(_from_local(what, *row, lambda i=i: f"local_data{leaf_paths(local_data)[i]}"))
    return tree.unflatten(out)


def _spread(x: Any, tree: Any, n: int, what: str, is_leaf: Callable[[Any], bool]) -> list[Any]:
    """Broadcasts a pytree prefix: one entry for each of the `n` leaves of `tree`."""
    return (
        [x] * n
        if x is None or is_leaf(x)
        else broadcast_prefix(x, tree, what, is_leaf, "local_data")
    )


def _is_shape(x: Any) -> bool:
    sizes = (int, np.integer, type(None))
    return isinstance(x, tuple | list) and all(isinstance(n, sizes) for n in x)


def _from_local(what: str, data: Any, sharding: Any, shape: Any, name: Callable[[], str]) -> Array:
    if isinstance(data, Tracer):
        raise UnexpectedTracerError(f"{what}: {name()} is a {data!r}. {_CONCRETE}")
    data = as_arraylike(data)
    data = data if data.__class__ is Array else np.asarray(data)
    sharding = _concrete_sharding(sharding, what)
    try:
        shape = parts.global_shape(sharding, data.shape, shape)
        offsets = parts.local_offsets(sharding, data.shape, shape)
    except ValueError as error:
        raise ValueError(f"{what}: {name()} of shape {data.shape}: {error}") from None
    if data.__class__ is not Array and all(o is None for o in offsets):  # the global value
        return put_host(data, sharding, True, what=what)
    new = _Making(what, shape, sharding, None)
    for part in new.parts:
        here = zip(part.index, offsets, shape, strict=True)
        cut = tuple([parts.local_slice(s, held, n) for s, held, n in here])
        with eval_context():  # if it is an `Array`
            value = data[cut]
        new.put(part, part.devices, value)
    return new.finish()


@hides_frames
def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Stacks pytrees of values, one for each device, as an argument of `pmap`.

    Args:
      shards: a pytree for each of the devices, all with equal types. For devices of other
        processes only the types are used.
      devices: as many devices, of one process or of several, all of which must make the call.

    Returns:
      The pytree with arrays of shape (number of devices, *shape) under a `PmapSharding`: element i
      is on device i, and `pmap` over the first axis takes it without transfers.

    Raises:
      ValueError: if shards and devices differ in number, or shards in structure or shape.
      TypeError: if they differ in dtype, or `devices` is not a sequence of devices.
    """
    what = "device_put_sharded"
    devices = _devices(what, devices)
    if not isinstance(shards, Sequence) or len(shards) != len(devices) or not shards:
        got = len(shards) if isinstance(shards, Sequence) else f"a {type(shards).__name__}"
        raise ValueError(
            f"{what}: shards must be a list with a pytree for each of the {len(devices)} devices; "
            f"got {got}."
        )
    flat = [flatten(shard) for shard in shards]
    for i, (_, tree) in enumerate(flat):
        if tree != flat[0][1]:
            raise ValueError(
                f"{what}: shards[{i}] has the structure {tree_text(tree)}, but shards[0] has "
                f"{tree_text(flat[0][1])}. All must have the same structure."
            )
    rows = zip(*[leaves for leaves, _ in flat], strict=True)
    return flat[0][1].unflatten([_stacked(what, row, devices) for row in rows])


@hides_frames
def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
    """Replicates a pytree over devices, with a new leading dimension, as an argument of `pmap`.

    If the devices belong to several processes, all of these must make the call.

    Returns:
      The pytree `x` with arrays of shape (number of devices, *shape) under a `PmapSharding`: each
      device has all of `x`, and `pmap` over the first axis takes it without transfers.

    Raises:
      TypeError: if `devices` is not a sequence of devices.
      ValueError: if it is empty.
    """
    leaves, tree = flatten(x)
    what = "device_put_replicated"
    devices = _devices(what, devices)
    return tree.unflatten([_stacked(what, [v] * len(devices), devices) for v in leaves])


def _devices(what: str, devices: Any) -> tuple[Any, ...]:
    if not isinstance(devices, Sequence | np.ndarray) or not all(
        [isinstance(d, Device) for d in devices]
    ):
        raise TypeError(f"{what}: devices must be a list of devices; got {short_repr(devices)}.")
    if not len(devices):
        raise ValueError(f"{what}: devices is empty; give at least one.")
    return tuple(devices)


def _stacked(what: str, values: Sequence[Any], devices: tuple[Any, ...]) -> Array:
    """Stacks values of one shape along a new dimension, each on its device."""
    values = [as_arraylike(v) for v in values]
    shape = np.shape(values[0])
    for i, v in enumerate(values):
        if np.shape(v) != shape:
            raise ValueError(
                f"{what}: shards[{i}] has shape {np.shape(v)}, but shards[0] has shape {shape}. "
                "All must have the same shape."
            )
        if _dtype_of(v) != _dtype_of(values[0]):
            raise TypeError(
                f"{what}: shards[{i}] has dtype {_dtype_of(v)}, but shards[0] has dtype "
                f"{_dtype_of(values[0])}. All must have the same dtype."
            )
    whole = (len(devices), *shape)
    dtype = _as_dtype(_dtype_of(values[0]))
    new = _Making(what, whole, PmapSharding.default(whole, 0, devices), dtype)
    for part in new.parts:  # on the devices of this process
        value = values[part.index[0].start or 0]
        value = value if value.__class__ is Array else np.asarray(value)
        new.put(part, part.devices, value[None])
    return new.finish()


def _dtype_of(x: Any) -> Any:
    return x.dtype if x.__class__ is Array else np.asarray(x).dtype


_CONCRETE = (
    "Arrays are created from concrete values: call it outside of jit, grad and vmap, or compute "
    "the parts with NumPy."
)


def _as_dtype(dtype: Any) -> Any:
    return dtype if isinstance(dtype, ExtendedDType) else canonicalize(np.dtype(dtype))


def _concrete_sharding(x: Any, what: str) -> Any:
    sharding = as_sharding(x, what)
    if sharding is None:
        raise TypeError(f"{what}: a sharding is required; got None. Pass a sharding or a device.")
    placed = placed_over(sharding, None)
    check_attached(placed.devices, f"{what}: an array")
    return placed


class _Making:
    """An array whose shards arrive one by one.

    Large shards are transferred immediately, small ones together at the end.
    """

    def __init__(self, what: str, shape: Sequence[int], sharding: Any, dtype: Any):
        self.what = what
        self.shape = tuple(shape)
        self.place = as_placement(sharding, what)
        self.sharding = _concrete_sharding(bare(self.place), what)
        if getattr(getattr(self.sharding, "spec", None), "unreduced", None):
            raise ValueError(
                f"{what}: {self.sharding} is unreduced: each device holds a partial sum, and "
                "an index does not identify which one. Use "
                "make_array_from_single_device_arrays."
            )
        self.dtype = None if dtype is None else _as_dtype(dtype)
        self.converts = dtype is not None and not isinstance(self.dtype, ExtendedDType)
        self.parts = parts.distinct_parts(self.sharding, self.shape)
        self.done: dict[Any, Any] = {}  # device → its raw buffer
        self.kept: dict[Any, np.ndarray] = {}  # device → its shard, still on the host
        self.kept_bytes = 0

    def put(self, part: Part, devices: Sequence[Any], value: Any) -> None:
        """Transfers the value of a shard to devices."""
        value = self._checked(value, part)
        if value.__class__ is not Array and self.kept_bytes + value.nbytes <= SMALL:
            self.kept_bytes += value.nbytes
            copied = np.array(value, self.dtype)  # the callback may reuse its memory
            self.kept.update(dict.fromkeys(devices, copied))
        else:
            self._to_devices(devices, value)

    def _to_devices(self, devices: Sequence[Any], value: Any) -> None:
        self.done.update(parts.shards(value, self.shape, self.dtype, self.sharding, devices))

    def _checked(self, value: Any, part: Part) -> Any:
        if isinstance(value, Tracer):
            raise UnexpectedTracerError(
                f"{self.what}: the part at index {part.index} is a {value!r}. {_CONCRETE}"
            )
        value = as_arraylike(value)
        if value.__class__ is not Array:
            value = np.asarray(value, dtype=self.dtype if self.converts else None)
        if value.shape != part.shape:
            raise ValueError(
                f"{self.what}: the callback returned shape {value.shape} for index {part.index}; "
                f"expected {part.shape}."
            )
        if self.dtype is None or value.dtype != self.dtype:  # float64 equals None
            self._check_dtype(_as_dtype(value.dtype), part)
        return value

    def _check_dtype(self, dtype: Any, part: Part) -> None:
        """The first shard determines the dtype, unless it was requested."""
        if self.dtype is None:
            self.dtype = dtype
        if dtype != self.dtype and (not self.converts or isinstance(dtype, ExtendedDType)):
            raise TypeError(
                f"{self.what}: the callback returned {dtype} for index {part.index}; expected "
                f"{self.dtype}. All parts of an array must have the same dtype."
            )

    def finish_with(self, values: Any, places: Sequence[tuple[Part, Any]]) -> Array:
        """The array, from a value for each (part, device)."""
        if not isinstance(values, Sequence | np.ndarray) or len(values) != len(places):
            got = f"{len(values)}" if hasattr(values, "__len__") else f"a {type(values).__name__}"
            raise ValueError(
                f"{self.what}: the callback must return a list of {len(places)} parts, one for "
                f"each device of this process; got {got}."
            )
        for (part, device), value in zip(places, values, strict=True):
            self.put(part, (device,), value)
        return self.finish()

    def finish(self) -> Array:
        whole = agreed(self._whole(), self.what)
        return relayout(whole, self.place.layout) if self.place.__class__ is Format else whole

    def _whole(self) -> Array:
        if self.dtype is None:
            raise ValueError(
                f"{self.what}: this process has no parts of an array of shape {self.shape} under "
                f"{self.sharding}, so the dtype cannot be inferred. Pass `dtype`."
            )
        if self.kept and not self.done:
            return parts.put_together(self.kept, self.shape, self.dtype, self.sharding)
        for device, value in self.kept.items():
            self._to_devices((device,), value)
        return parts.joined(self.done, self.shape, self.dtype, self.sharding)
