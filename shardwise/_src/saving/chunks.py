"""Arrays as Zarr version 3 files, one file per chunk, with checksums.

An array's chunks are its shards at save time, or pieces of them if the shards are large. So each
file has exactly one writer, which needs no data from other processes. Reading with any other
sharding reads the files that overlap the requested region, and checks each of them in full.

Files are written and read a few at a time: only these few need memory in addition to the arrays.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import pluralize
from shardwise._src.saving.arrays import LimitInFlightBytes, tensorstore
from shardwise._src.saving.chunk_files import (
    CHECKSUM,
    MISMATCH,
    WrongLength,
    chunk_of,
    in_groups,
    in_thread,
    read_chunk,
    with_checksum,
    write_chunk,
)
from shardwise._src.saving.digests import Digests, WrongFile, check_file, hexadecimal
from shardwise._src.saving.manifest import Entry, canonicalize_name
from shardwise._src.saving.storage import Place, not_saved
from shardwise._src.transfers.regions import Bounds
from shardwise._src.types.dtypes import canonicalize, short_name

CHUNK_BYTES = 32 << 20  # maximum size of a file, if the shard can be split
IN_FLIGHT = 128 << 20  # bytes of files written or read at a time
Part = tuple[Entry, Bounds, np.ndarray]  # a region of an array, and its values
_DTYPES = (
    "bool int4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 float8_e3m4 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
    "float8_e5m2 float8_e5m2fnuz"
).split()


def stored_dtype(dtype: np.dtype[Any]) -> str:
    """The dtype name in files; for dtypes that Zarr lacks, the unsigned type of the same width."""
    return dtype.name if dtype.name in _DTYPES else f"uint{8 * dtype.itemsize}"


def chunk_shape(shard: Sequence[int], tiles: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The shape of the chunks of an array.

    shard: the shape of a shard; tiles: the number of shards along each dimension. Along sharded
    dimensions, chunks split the shards evenly, so that no two shards share a chunk.
    """
    found = [max(1, n) for n in shard]
    for dim, n in enumerate(found):
        too_many = math.ceil(math.prod(found) * itemsize / CHUNK_BYTES)
        if too_many <= 1:
            break
        parts = min(n, too_many)
        if tiles[dim] > 1:
            divisors = [d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)]
            parts = min([d for d in divisors if d >= parts])
        found[dim] = -(-n // parts)
    return tuple(found)


def metadata(entry: Entry) -> dict[str, Any]:
    """An array's metadata in Zarr version 3."""
    order = {"configuration": {"endian": "little"}}
    one_byte = canonicalize_name(entry.stored).itemsize == 1
    # xarray identifies dimensions by name, and a name must have one size in the whole group. These
    # names cannot clash with an array's: no folder name contains a colon.
    name = entry.folder.rpartition("/")[2]
    return {
        "zarr_format": 3, "node_type": "array", "shape": list(entry.physical),
        "data_type": entry.stored,
        "dimension_names": [f"{name}:{dim}" for dim in range(len(entry.physical))],
        "chunk_grid": {
            "name": "regular", "configuration": {"chunk_shape": list(entry.chunks)}
        },
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", **({} if one_byte else order)}, {"name": "crc32c"}],
        "fill_value": False if entry.stored == "bool" else
        [0.0, 0.0] if entry.stored.startswith("complex") else
        0 if entry.stored.startswith(("int", "uint")) else 0.0,
    }  # fmt: skip


def pieces(bounds: Bounds, chunks: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Bounds]]:
    """Splits a region at chunk borders: for each piece, the chunk's index along each dimension and
    the piece's bounds."""
    along: list[list[tuple[int, tuple[int, int]]]] = []
    for (start, stop), size in zip(bounds, chunks, strict=True):
        numbers = range(start // size, -(-stop // size)) if stop > start else range(0)
        along.append([(k, (max(start, k * size), min(stop, (k + 1) * size))) for k in numbers])
    for row in itertools.product(*along):
        yield tuple([k for k, _ in row]), tuple([part for _, part in row])


def within(part: Bounds, bounds: Bounds) -> tuple[slice, ...]:
    """The slices of a part of a region within an array of the region."""
    return tuple(
        [slice(a - first, b - first) for (a, b), (first, _) in zip(part, bounds, strict=True)]
    )


def as_stored(value: np.ndarray, entry: Entry) -> np.ndarray:
    """The value with its stored dtype, in native byte order; its bits if Zarr lacks the dtype."""
    value = np.asarray(value)
    if value.dtype.name != entry.stored:
        return value.view(entry.stored)
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


# ------------------------------------------------------------------------------------- writing


async def write_parts(
    place: Place,
    parts: Iterable[Part],
    limit: LimitInFlightBytes,
    progress: Callable[[int], None],
    digests: dict[str, str],
) -> None:
    """Writes regions of arrays, whose chunks have no other writer.

    digests: receives the digests of the files, by file name.
    """
    write = _upload if place.folder is None else _write_files

    async def write_group(group: list[_Chunk], size: int) -> None:
        for chunk, found in zip(group, await write(place, group), strict=True):
            digests[chunk.name] = hexadecimal(found)
        await limit.release_bytes(size)
        progress(sum([chunk.data.nbytes for chunk in group]))

    async with asyncio.TaskGroup() as tasks:
        for group in in_groups(itertools.chain(*map(_chunks_of, parts)), lambda c: c.nbytes):
            size = sum([chunk.nbytes for chunk in group])
            await limit.wait_for_bytes(size)
            tasks.create_task(write_group(group, size))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk to write. data: its part within the array. nbytes: of the full chunk."""

    entry: Entry
    name: str
    data: np.ndarray
    nbytes: int

    def full(self) -> np.ndarray:
        """The full chunk in the byte order of files: zero-padded."""
        data = self.data
        if data.shape != self.entry.chunks:
            chunk = np.zeros(self.entry.chunks, data.dtype)
            chunk[tuple([slice(n) for n in data.shape])] = data
            data = chunk
        return np.ascontiguousarray(data if sys.byteorder == "little" else data.byteswap())


def _chunks_of(part: Part) -> Iterator[_Chunk]:
    entry, bounds, value = part
    value = as_stored(value, entry)
    size = math.prod(entry.chunks) * value.dtype.itemsize
    for number, inner in pieces(bounds, entry.chunks):
        data = value[within(inner, bounds)] if inner else value
        yield _Chunk(entry, _name(entry, number), data, size)


async def _write_files(place: Place, group: Sequence[_Chunk]) -> list[int]:
    """Writes chunks into files; returns their checksums."""
    folder = place.folder
    assert folder is not None

    def write(chunk: _Chunk) -> int:
        try:
            return write_chunk(folder / chunk.name, chunk.full())
        except (ValueError, OSError) as error:
            raise _not_written(place, chunk, error) from None

    return await in_thread(lambda: [write(chunk) for chunk in group])


async def _upload(place: Place, group: Sequence[_Chunk]) -> list[int]:
    """Writes chunks into an object store, at the same time; returns their checksums."""

    async def upload(chunk: _Chunk) -> int:
        data, found = with_checksum(chunk.full())
        try:
            await place.upload(chunk.name, data)
        except TimeoutError:
            raise  # the message already names the store
        except (ValueError, OSError) as error:
            raise _not_written(place, chunk, error) from None
        return found

    async with asyncio.TaskGroup() as tasks:
        uploads = [tasks.create_task(upload(chunk)) for chunk in group]
    return [task.result() for task in uploads]


def _not_written(place: Place, chunk: _Chunk, error: Exception) -> OSError:
    what = f"save: tree{chunk.entry.path} could not be written: {_reason(error)}"
    return not_saved(place, what, error)


def _reason(error: Exception) -> str:
    """The message of an error, without its location in TensorStore's source."""
    return str(error).partition(" [source locations=")[0].rstrip(".")


# ------------------------------------------------------------------------------------- reading


async def read_part(
    what: str,
    place: Place,
    store: Any,
    entry: Entry,
    bounds: Bounds,
    out: np.ndarray,
    limit: LimitInFlightBytes,
    alone: bool,
    digests: Digests = None,
) -> None:
    """Reads a region of an array into a NumPy array, of the same dtype or another.

    store: TensorStore's object for an array that another library wrote; else None.
    alone: whether no other process reads the region.
    digests: of all files, by file name; None if they were not recorded.
    """
    stored = canonicalize_name(entry.dtype)
    size = math.prod(entry.chunks) * stored.itemsize
    same = out.dtype == stored

    async def read(number: tuple[int, ...], part: Bounds) -> None:
        into = out[within(part, bounds)] if part else out
        data = into if same else np.empty(into.shape, stored)
        bits = data if data.dtype.name == entry.stored else data.view(entry.stored)
        try:
            if store is not None:
                source = store[tuple([slice(a, b) for a, b in part])] if part else store
                into_it = tensorstore().array(bits)
                await into_it.write(source.translate_to[0] if part else source)
            else:
                name = _name(entry, number)
                check_file(digests, name, await _read(place, name, entry, part, bits, alone))
        except (ValueError, OSError) as error:
            if place.folder is None and isinstance(error, TimeoutError):
                raise  # the message already names the store
            raise damaged(what, place, entry, number, size, error) from None
        if not same:
            into[...] = converted(what, f"tree{entry.path}", data, out.dtype)
        await limit.release_bytes(size)

    async with asyncio.TaskGroup() as tasks:
        for number, part in pieces(bounds, entry.chunks):
            await limit.wait_for_bytes(size)
            tasks.create_task(read(number, part))


async def _read(
    place: Place, name: str, entry: Entry, part: Bounds, into: np.ndarray, alone: bool
) -> int:
    """Reads a part of a chunk, directly into its destination if this is the full chunk and the
    destination is contiguous. Returns the chunk's checksum."""
    size = math.prod(entry.chunks) * into.itemsize
    if place.folder is None:
        chunk, found = chunk_of(name, await place.download(name, size), size)
        chunk = chunk.view(entry.stored).reshape(entry.chunks)
    elif into.shape == entry.chunks and into.flags.c_contiguous:
        found = await in_thread(read_chunk, place.folder / name, into, alone)
        if sys.byteorder == "big":
            into.byteswap(inplace=True)
        return found
    else:
        path = place.folder / name
        if path.stat().st_size != size + CHECKSUM:
            raise ValueError(f"{path} has an unexpected length")  # do not trust a manifest's size
        chunk = np.empty(entry.chunks, entry.stored)
        # Through the page cache: the next part of this chunk is read soon.
        found = await in_thread(read_chunk, path, chunk, False)
    first = [start // n * n for (start, _), n in zip(part, entry.chunks, strict=True)]
    values = chunk[within(part, tuple([(n, 0) for n in first]))]
    into[...] = values if sys.byteorder == "little" else values.byteswap()
    return found


def _name(entry: Entry, number: Sequence[int]) -> str:
    return "/".join([entry.folder, "c", *map(str, number)])


def on_devices(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype on devices for a given dtype: 64-bit only if 64-bit types are enabled."""
    found = canonicalize(dtype)
    assert isinstance(found, np.dtype)
    return found


def converted(what: str, path: str, x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Converts a value to another dtype; integers must fit into it.

    path: of the array, for messages.

    Raises:
      CheckpointError: it is complex or integer and would lose more than precision.
    """
    lost = x.dtype.kind == "c" and dtype.kind != "c"
    with np.errstate(all="ignore"):
        y = x if lost else x.astype(dtype)
    if not lost and x.dtype.kind in "iu" and dtype.kind in "iu":
        lost = bool((y.astype(x.dtype) != x).any() or ((y < 0) != (x < 0)).any())
    if lost:
        raise CheckpointError(
            f"{what}: {path} was saved as {short_name(x.dtype)}, and has values that "
            f"{short_name(dtype)} cannot represent. Restore it in its own dtype, given by `like`; "
            "64-bit arrays on devices need the flag enable_x64."
        )
    return y


def damaged(
    what: str, place: Place, entry: Entry, number: Sequence[int], size: int, error: Exception
) -> CheckpointError:
    """The error for a chunk file that could not be read."""
    if not entry.folder:  # written by another library
        return CheckpointError(
            f"{what}: {place.text} is damaged: tree{entry.path} cannot be read: {_reason(error)}."
        )
    file = _name(entry, number)
    here, expected = place.size_of(file), size + CHECKSUM
    if isinstance(error, WrongLength):
        here = error.size
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        why = "is missing"
    elif here is not None and here != expected:
        why = f"has {pluralize(here, 'byte')}, but {expected} were written"
    elif MISMATCH in str(error):
        why = "is corrupted: its checksum does not match"
    else:
        why = _reason(error)
        why = why if isinstance(error, WrongFile) else f"cannot be read: {why}"
    return CheckpointError(
        f"{what}: {place.text} is damaged: the file {file} of tree{entry.path} {why}. Restore "
        "another checkpoint."
    )
