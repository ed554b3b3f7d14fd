"""`restore`: reads a checkpoint as a pytree, onto the host or any devices.

    restore("/ckpt/step_10")                                  # NumPy arrays in plain containers
    restore("/ckpt/step_10", shardings=NamedSharding(mesh, P("data")))
    restore("/ckpt/step_10", like=state)                      # types, dtypes and shardings of state

A process reads the shards of its own devices, each distinct shard once, and directly into the
array's memory if the device uses host memory.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.base.errors import CheckpointError
from shardwise._src.base.progress import progress
from shardwise._src.core.eval_context import eval_context
from shardwise._src.lowering.layouts_and_memory import bare, stated_kind
from shardwise._src.messages.formatting import short_repr, to_register
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.random.keys import wrap_key_data
from shardwise._src.runtime import host_memory, processes
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.saving.arrays import LimitInFlightBytes
from shardwise._src.saving.chunks import IN_FLIGHT, converted, on_devices, read_part
from shardwise._src.saving.consistency import in_agreement, span_of
from shardwise._src.saving.digests import check_metadata
from shardwise._src.saving.manifest import (
    Checkpoint,
    Entry,
    canonicalize_name,
    check_is_there,
    read,
)
from shardwise._src.saving.storage import Place
from shardwise._src.saving.tree_metadata import Node, matched, plain
from shardwise._src.saving.writing import run_all
from shardwise._src.transfers import parts, transfer
from shardwise._src.transfers.regions import bounds_of
from shardwise._src.transfers.targets import as_placement, is_sharding_leaf
from shardwise._src.types.dtypes import short_name
from shardwise._src.types.extended import KeyDType
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import SingleDeviceSharding

_PARTS = 64 << 20  # bytes of shards read at a time, on their way to devices


@dataclass(frozen=True)
class _Wanted:
    """The requested form of an array. place: None for NumPy; dtype: None for the stored one;
    free: whether the result is uncommitted, on the default device."""

    place: Any = None
    dtype: Any = None
    free: bool = False


@hides_frames
def restore(path: str | PathLike[str], shardings: Any = None, like: Any = None) -> Any:
    """Reads a checkpoint.

    Args:
      path: a folder, or an address such as gs://bucket/folder.
      shardings: where arrays go: one sharding for all, or a pytree of them that is a prefix of the
        saved pytree (of `like`, if given); None for NumPy arrays. Any mesh works, regardless of the
        mesh at save time.
      like: a pytree with the same names: the result has its containers; its arrays or
        `ShapeDtypeStruct`s define shapes, which are checked, dtypes, to which values are converted,
        and shardings, unless `shardings` is given. Arrays without a sharding go to the default
        device.

    Returns:
      The pytree. Without `like`, it has dicts in place of named tuples, dataclasses and other
      classes. Python numbers and strings are restored unchanged, typed keys as key arrays.

    If arrays go to devices of several processes, all of these processes call it, in the same order,
    with shardings over the same processes. They wait for each other, read the same checkpoint, and
    raise together. Otherwise each process calls it independently; if the checkpoint is replaced in
    the meantime, processes may read different checkpoints.

    Raises:
      FileNotFoundError: nothing is there.
      CheckpointError: it is not a checkpoint, has a newer version, or is damaged; it does not match
        `like`; it was replaced during the read; or processes have found different ones.
      ValueError: a sharding does not match an array.
      RuntimeError: another process could not read its shards; the message names the process and the
        cause.
      ImportError: tensorstore is not installed.
    """
    place = Place.at("restore", path)
    return restored_together("restore", lambda: read("restore", place), shardings, like)


def restored_together(what: str, found: Callable[[], Checkpoint], shardings: Any, like: Any) -> Any:
    """`restored` after checking that all processes that share an array read the same checkpoint."""
    span = span_of(what, shardings, like)
    return in_agreement(what, found, span, lambda one: restored(what, one, shardings, like))


def restored(what: str, checkpoint: Checkpoint, shardings: Any, like: Any) -> Any:
    """`restore` for a checkpoint whose manifest has been read."""
    count = len(checkpoint.arrays)
    wanted = [_Wanted()] * count
    if like is not None:
        ends: list[Any] = [None] * count
        matched(what, checkpoint.tree, like, lambda *row: _note(what, checkpoint, ends, *row))
        wanted = [_like(what, e, x) for e, x in zip(checkpoint.arrays, ends, strict=True)]
    if shardings is not None:
        wanted = _placed(what, checkpoint, shardings, like, wanted)
    wanted = [_fitting(what, e, w) for e, w in zip(checkpoint.arrays, wanted, strict=True)]
    try:
        arrays = run_all(lambda: _read(what, checkpoint, wanted))
    except CheckpointError:
        check_is_there(what, checkpoint)
        raise
    check_is_there(what, checkpoint)
    if like is None:
        return plain(checkpoint.tree, lambda n: arrays[n.value] if n.kind == "array" else n.value)
    return matched(what, checkpoint.tree, like, lambda *row: _end(what, arrays, *row))


# ----------------------------------------------------------------------------- requested arrays


def _note(what: str, checkpoint: Checkpoint, ends: list[Any], node: Node, path: str, x: Any) -> Any:
    if node.kind == "array":
        if x is None or isinstance(x, str | bytes):
            raise _other(what, path, f"an array, {_type(checkpoint.arrays[node.value])}", x)
        ends[node.value] = (path, x)
    elif (node.kind == "none") != (x is None):
        raise _other(what, path, repr(node.value), x)
    return x


def _other(what: str, path: str, saved: str, x: Any) -> CheckpointError:
    return CheckpointError(f"{what}: {path} is {short_repr(x)}, but {saved} was saved there.")


def _type(entry: Entry) -> str:
    kind = short_name(canonicalize_name(entry.dtype))
    return f"{kind if entry.key is None else 'keys'}[{','.join(map(str, entry.shape))}]"


def _like(what: str, entry: Entry, row: tuple[str, Any]) -> _Wanted:
    path, x = row
    shape = np.shape(x) if not hasattr(x, "shape") else tuple(x.shape)
    if shape != entry.shape:
        raise CheckpointError(
            f"{what}: {path} has shape {shape}, but {_type(entry)} was saved there."
        )
    keys = isinstance(getattr(x, "dtype", None), KeyDType)
    if keys != (entry.key is not None) or (keys and x.dtype.impl_name != entry.key):
        raise CheckpointError(
            f"{what}: {path} has dtype {x.dtype}, but {_type(entry)} was saved "
            f"there{f', with generator {entry.key!r}' if keys and entry.key else ''}. Keys are not "
            "numbers, and keys of different generators are not interchangeable."
        )
    if isinstance(x, Array | ShapeDtypeStruct):
        place, free = _place_of(x)
        return _Wanted(place, None if keys else x.aval.dtype, free)
    return _Wanted(None, getattr(x, "dtype", None))


def _place_of(x: Array | ShapeDtypeStruct) -> tuple[Any, bool]:
    """The requested placement, and whether it is that of uncommitted arrays."""
    if x.sharding is None or (isinstance(x, Array) and not x.committed):
        return transfer.default_place(), True
    layout = x._sig.layout if isinstance(x, Array) else x.layout
    return x.sharding if layout is None else x.format, False


def _placed(
    what: str, checkpoint: Checkpoint, shardings: Any, like: Any, wanted: Sequence[_Wanted]
) -> list[_Wanted]:
    """Adds the placements from `shardings`. In the pytree that it is a prefix of, only arrays are
    leaves."""

    def array(node: Node, *_: Any) -> Node | None:
        return node if node.kind == "array" else None

    numbers = range(len(checkpoint.arrays))
    if like is None:
        tree = plain(checkpoint.tree, array)
    else:
        tree = matched(what, checkpoint.tree, like, array)
    name = "tree" if like is None else "like"
    places: dict[int, Any] = dict.fromkeys(numbers, shardings)
    if not is_sharding_leaf(shardings):
        found = broadcast_prefix(shardings, tree, f"{what}: shardings", is_sharding_leaf, name)
        leaves, _ = flatten(tree)
        for x in leaves:
            if not isinstance(x, Node):
                raise TypeError(
                    f"{what}: shardings is a pytree, but `like` has a {type(x).__name__}, which is "
                    f"not a pytree container.{to_register(x)} Or pass the shardings in `like`."
                )
        places = dict(zip([n.value for n in leaves], found, strict=True))
    return [
        _Wanted(as_placement(places[i], f"{what}: shardings"), before.dtype)
        for i, before in enumerate(wanted)
    ]


def _fitting(what: str, entry: Entry, wanted: _Wanted) -> _Wanted:
    """The same with concrete devices, if the mesh had none."""
    if wanted.place is None:
        return wanted
    try:
        place = placed_over(wanted.place, None)
        bare(place).shard_shape(entry.shape)
    except ValueError as error:
        raise ValueError(f"{what}: tree{entry.path} is {_type(entry)}: {error}") from None
    return replace(wanted, place=place)


def _end(what: str, arrays: Sequence[Any], node: Node, path: str, x: Any) -> Any:
    """The result for one leaf of a pytree like `like`."""
    if node.kind == "array":
        value = arrays[node.value]
        if isinstance(x, bool | int | float | complex):
            return _number(what, path, value.item(), x)
        return value
    if not isinstance(x, Array | np.ndarray | ShapeDtypeStruct):
        return node.value
    number = np.asarray(node.value)
    if tuple(x.shape) or number.dtype.kind not in "biufc":
        raise _other(what, path, f"{node.value!r}", x)
    if isinstance(x, np.ndarray):
        return number.astype(x.dtype)
    place, free = _place_of(x)
    return transfer.put_host(number.astype(x.aval.dtype), bare(place), not free)


def _number(what: str, path: str, saved: Any, x: Any) -> Any:
    """Converts a number to another Python number type, losing at most precision."""
    try:
        found = type(x)(saved)
    except (TypeError, ValueError, OverflowError):  # complex to real, NaN or infinity to integers
        found = None
    if found is None or (isinstance(x, int) and found != saved):
        raise _other(what, path, repr(saved), x)
    return found


# ------------------------------------------------------------------------------------- reading


async def _read(what: str, checkpoint: Checkpoint, wanted: Sequence[_Wanted]) -> list[Any]:
    files, shards = LimitInFlightBytes(IN_FLIGHT), LimitInFlightBytes(_PARTS)
    total = sum(map(_bytes_here, checkpoint.arrays, wanted))
    with progress(f"restoring {checkpoint.path}", total) as bar:
        async with asyncio.TaskGroup() as tasks:
            assert checkpoint.place is not None
            tasks.create_task(check_metadata(what, checkpoint.place, checkpoint.files))
            found = [
                tasks.create_task(_Reader(what, checkpoint, entry, files, shards, bar).read(w))
                for entry, w in zip(checkpoint.arrays, wanted, strict=True)
            ]
    return [task.result() for task in found]


def _on_host(entry: Entry, wanted: _Wanted) -> bool:
    """Whether an array is read in full to the host."""
    return wanted.place is None or wanted.free or entry.key is not None


def _bytes_here(entry: Entry, wanted: _Wanted) -> int:
    """Bytes of an array that this process reads, as stored."""
    shape = entry.physical
    found = [shape]
    if not _on_host(entry, wanted):
        found = [part.shape for part in parts.distinct_parts(bare(wanted.place), shape)]
    width = canonicalize_name(entry.dtype).itemsize
    return sum([math.prod(one) * width for one in found])


@dataclass
class _Reader:
    """Reads one array."""

    what: str
    checkpoint: Checkpoint
    entry: Entry
    files: LimitInFlightBytes
    shards: LimitInFlightBytes
    bar: progress

    async def read(self, wanted: _Wanted) -> Any:
        entry, stored = self.entry, canonicalize_name(self.entry.dtype)
        dtype = stored if wanted.dtype is None else np.dtype(wanted.dtype)
        if wanted.place is not None and entry.key is None:
            dtype = on_devices(dtype)
        shape = entry.physical
        nothing = np.empty(0, stored)
        converted(self.what, f"tree{entry.path}", nothing, dtype)  # raises if never possible
        if _on_host(entry, wanted):
            (out,) = host_memory.blocks(1, shape, dtype)
            bounds = tuple([(0, n) for n in shape])
            await self._part(bounds, out, processes.link() is None)
            return self._from_host(out, wanted)
        sharding = bare(wanted.place)
        found = parts.distinct_parts(sharding, shape)
        on_cpu = all(platform_of(d).shares_memory for d in parts.local_devices(sharding))
        taken = on_cpu and stated_kind(sharding) is None  # devices adopt the host buffer
        put = parts.aliased if taken else transfer.put_host
        alone = processes.link() is None or sharding.tiling(len(shape)).replicas == 1
        blocks: Sequence[np.ndarray | None] = [None] * len(found)
        if taken and len({part.shape for part in found}) == 1:
            blocks = host_memory.blocks(len(found), found[0].shape, dtype)

        async def read(part: parts.Part, block: np.ndarray | None) -> list[Array]:
            bounds = bounds_of(part.index, shape)
            size = 0 if taken else math.prod(part.shape) * dtype.itemsize
            await self.shards.wait_for_bytes(size)
            if block is None:
                (block,) = host_memory.blocks(1, part.shape, dtype)
            await self._part(bounds, block, alone)
            places = [SingleDeviceSharding(d, sharding.memory_kind) for d in part.devices]
            on = [put(block, place, True) for place in places]
            await self.shards.release_bytes(size)
            return on

        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(read(*row)) for row in zip(found, blocks, strict=True)]
        on = [x for task in reads for x in task.result()]
        array = parts.assemble(shape, sharding, on, dtype, self.what)
        layout = wanted.place.layout if isinstance(wanted.place, Format) else None
        return array if layout is None else transfer.relayout(array, layout)

    async def _part(self, bounds: Any, out: np.ndarray, alone: bool) -> None:
        found, entry = self.checkpoint, self.entry
        assert found.place is not None
        where = found.place, found.stores.get(entry.path), entry, bounds, out
        await read_part(self.what, *where, self.files, alone, found.files)
        self.bar.add(out.size * canonicalize_name(entry.dtype).itemsize)

    def _from_host(self, value: np.ndarray, wanted: _Wanted) -> Any:
        if self.entry.key is not None:
            with eval_context():
                try:
                    keys = wrap_key_data(value, impl=self.entry.key)
                except ValueError as error:
                    path = f"tree{self.entry.path}"
                    raise CheckpointError(f"{self.what}: {path} has keys of an {error}") from None
                if wanted.place is None or wanted.free:
                    return keys
                return transfer.move(keys, bare(wanted.place))
        if wanted.place is None:
            return value[()] if self.entry.scalar else value
        return transfer.put_host(value, wanted.place, False)
