"""Reads and writes the safetensors format: `save_safetensors`, `load_safetensors`.

    save_safetensors("model.safetensors", {"layer": {"w": w, "b": b}})
    load_safetensors("model.safetensors")             # {"layer.w": ..., "layer.b": ...}

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of a header; the
header, in JSON, with the dtype, shape and offsets of each array by name; then the arrays, in
little-endian, row-major order. It has no checksums, and names instead of pytrees.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import brief, join, plain_text, short_repr
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.placement.array_creation import make_array_from_callback
from shardwise._src.saving.async_manager import check_same, first_process, in_steps
from shardwise._src.saving.chunks import converted, on_devices
from shardwise._src.saving.manifest import LARGEST, MOST_DIMS, canonicalize_name
from shardwise._src.saving.shard_sources import Source, source_of
from shardwise._src.saving.storage import MANIFEST, Place, explained, sync
from shardwise._src.saving.tree_metadata import flatten_tree, leaves_of, repeated
from shardwise._src.transfers.targets import as_placement, is_sharding_leaf

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_METADATA = "__metadata__"
_CODES = {name: code for code, name in _DTYPES.items()}
_LONGEST = 100_000_000  # maximum size of a header, in bytes
_numbers = itertools.count()  # of saves, in the same order in all processes


class _Tensor(NamedTuple):
    """One array in a file. start: offset of its bytes in the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int


# ------------------------------------------------------------------------------------- writing


def save_safetensors(
    path: str | PathLike[str], tree: Any, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes the arrays of a pytree into one file. Names are key paths, joined by dots.

    Args:
      path: of the file, which is replaced once the new one is complete. All processes write the
        shards of their devices into it, so it must be on a file system that they share.
      tree: arrays in containers; NumPy scalars count as arrays.
      metadata: strings by name, for the header.

    Raises:
      TypeError: a leaf is not an array; the format does not support an array's dtype; or a metadata
        value is not a string.
      ValueError: two arrays would have the same name.
      IsADirectoryError: the path is a folder.
      RuntimeError: another process failed.
    """
    what = "save_safetensors"
    target = _file(what, path)
    node, ends = flatten_tree(what, "tree", tree)
    for _, where, end in leaves_of(node, path="tree"):
        if end.kind not in ("array", "none"):
            raise TypeError(
                f"{what}: {where} is {short_repr(end.value)}, but the format supports only arrays. "
                "Leave it out, or make it metadata or an array."
            )
    own = [source_of(what, end) for end in ends]
    names = [".".join(end.steps) or "value" for end in ends]
    _check_sources(what, names, own)
    head, starts = _header(what, names, own, metadata)
    beside = target.with_name(f".{target.name}.saving")
    number = next(_numbers)

    def create() -> None:
        with explained(what, Place.at(what, target), "its file could not be created"):
            _make(beside, head, sum([s.entry.nbytes for s in own]))

    def commit() -> None:
        os.replace(beside, target)
        sync(target.parent)

    about = "arrays", "names, shapes, dtypes and metadata"
    check_same(what, f"{what} {number}/same", str(target), head, about)
    steps = {
        "0": first_process(create), "1": lambda: _write(beside, own, starts),
        "2": first_process(commit),
    }  # fmt: skip
    undo = first_process(lambda: beside.unlink(missing_ok=True))
    in_steps(f"{what} {number}", steps, undo=undo)


def _make(path: Path, head: bytes, size: int) -> None:
    """Creates the file and allocates space for the arrays.

    Without allocated space, the process would crash on writing to the memory-mapped file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(head)
        file.flush()
        _allocate(file.fileno(), len(head), size)


def _allocate(file: int, start: int, size: int) -> None:
    os.truncate(file, start + size)
    if size and hasattr(os, "posix_fallocate"):  # not on macOS
        try:
            os.posix_fallocate(file, start, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not supported there
                raise


def _check_sources(what: str, names: Sequence[str], own: Sequence[Source]) -> None:
    if twice := repeated(names):
        raise ValueError(
            f"{what}: two arrays would have the name {twice[0]!r}: names are the keys of the path "
            "in the pytree, joined by dots. Rename one of them."
        )
    if _METADATA in names:
        raise ValueError(
            f"{what}: an array would have the name {_METADATA!r}, which the format reserves for "
            "its metadata. Rename the array."
        )
    for source in own:
        entry = source.entry
        if entry.key is not None or entry.dtype not in _CODES:
            kind = "typed keys" if entry.key is not None else f"of dtype {entry.dtype}"
            raise TypeError(
                f"{what}: tree{entry.path} is {kind}, which the format does not support. "
                + ("Save `shardwise.random.key_data(keys)`." if entry.key is not None
                   else f"It supports {join(_CODES)}.")
            )  # fmt: skip


def _header(
    what: str, names: Sequence[str], own: Sequence[Source], metadata: Mapping[str, str] | None
) -> tuple[bytes, list[int]]:
    """The file's header, and the offset of each array: widest dtypes first, so all are aligned."""
    about: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(x, str) for row in metadata.items() for x in row):
            raise TypeError(
                f"{what}: metadata must be a dict from strings to strings; got "
                f"{short_repr(metadata)}."
            )
        about[_METADATA] = dict(metadata)
    sizes = [canonicalize_name(s.entry.dtype).itemsize for s in own]
    at, starts = 0, [0] * len(own)
    for i in sorted(range(len(own)), key=lambda i: (-sizes[i], names[i])):
        entry, starts[i] = own[i].entry, at
        at += entry.nbytes
        about[names[i]] = {
            "dtype": _CODES[entry.dtype], "shape": list(entry.shape),
            "data_offsets": [starts[i], at],
        }  # fmt: skip
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, [len(head) + start for start in starts]


def _write(path: Path, own: Sequence[Source], starts: Sequence[int]) -> None:
    """Writes this process's shards into a file that is large enough."""
    for source, start in zip(own, starts, strict=True):
        entry = source.entry
        dtype = np.dtype(f"u{canonicalize_name(entry.dtype).itemsize}")
        if not entry.nbytes or not source.parts:
            continue
        whole = np.memmap(path, dtype.newbyteorder("<"), "r+", start, entry.shape)
        for bounds, value in source.parts:
            region = tuple([slice(a, b) for a, b in bounds]) or (...,)
            whole[region] = np.asarray(value()).view(dtype)
        whole.flush()
    with open(path, "rb") as file:
        os.fsync(file.fileno())


# ------------------------------------------------------------------------------------- reading


def load_safetensors(path: str | PathLike[str], shardings: Any = None) -> dict[str, Any]:
    """Reads the arrays of a file, by name.

    Args:
      path: of the file, for instance of a published model.
      shardings: where arrays go: one sharding for all, or a dict by name with an entry for each
        array; None for NumPy arrays. Devices receive only their shards.

    Returns:
      A dict keyed by the names in the file. Nothing in the file is executed.

    Raises:
      FileNotFoundError: the file is missing.
      IsADirectoryError: the path is a folder.
      ValueError: a sharding does not match an array.
      CheckpointError: it is not a safetensors file, is damaged, or has an unsupported dtype.
    """
    what = "load_safetensors"
    file = _file(what, path)
    tensors, _ = _read_header(what, file)
    places: Sequence[Any] = [None] * len(tensors)
    if shardings is not None:
        tree = dict.fromkeys(tensors, 0)
        by_name = dict(zip(sorted(tensors), broadcast_prefix(
            shardings, tree, f"{what}: shardings", is_sharding_leaf, "arrays"
        ), strict=True))  # fmt: skip
        places = [by_name[name] for name in tensors]
    rows = zip(tensors.items(), places, strict=True)
    return {name: _load(what, file, name, t, place) for (name, t), place in rows}


def safetensors_metadata(path: str | PathLike[str]) -> dict[str, str]:
    """The strings in a file's header, by name."""
    what = "safetensors_metadata"
    return _read_header(what, _file(what, path))[1]


def _file(what: str, path: Any) -> Path:
    """The file at a path.

    Raises:
      TypeError: it is neither a string nor a path.
      ValueError: it is the address of an object store, or a device.
      IsADirectoryError: it is a folder.
    """
    place = Place.at(what, path)
    if place.folder is None:
        raise ValueError(
            f"{what}: path is {place.text!r}, but safetensors files are read and written on file "
            "systems only. Copy the file to one, or use `save` and `restore` for object stores."
        )
    if place.folder.exists() and not (place.folder.is_file() or place.folder.is_dir()):
        raise ValueError(f"{what}: {place.folder} is a device or socket. Choose a file.")
    if place.folder.is_dir():
        reads = what != "save_safetensors" and (place.folder / MANIFEST).exists()
        way = "read the checkpoint in it with `restore`" if reads else "choose a file"
        raise IsADirectoryError(f"{what}: {place.folder} is a folder; {way}.")
    return place.folder


def _load(what: str, path: Path, name: str, t: _Tensor, place: Any) -> Any:
    stored = t.dtype.newbyteorder("<") if t.dtype.kind in "iufc" else t.dtype
    if place is None:
        value = np.fromfile(path, stored, math.prod(t.shape), offset=t.start)
        return value.reshape(t.shape).astype(t.dtype, copy=False)
    target = placed_over(as_placement(place, f"{what}: shardings"), None)
    try:
        target.shard_shape(t.shape)
    except ValueError as error:
        raise ValueError(f"{what}: arrays[{name!r}]: {error}") from None
    dtype = on_devices(t.dtype)
    if not math.prod(t.shape):
        return make_array_from_callback(t.shape, target, lambda i: np.zeros(t.shape, dtype)[i])
    whole = np.memmap(path, stored, "r", t.start, t.shape)
    path_text = f"arrays[{name!r}]"
    return make_array_from_callback(
        t.shape, target, lambda i: converted(what, path_text, np.asarray(whole[i]), dtype), dtype
    )


def _read_header(what: str, path: Path) -> tuple[dict[str, _Tensor], dict[str, str]]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(f"{what}: there is no file {path}.") from None
    with open(path, "rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if first[:2] in (b"PK", b"\x80\x02", b"\x80\x04"):
            raise CheckpointError(
                f"{what}: {path} is a pickle file, as torch.save writes. Reading it would execute "
                "code from it, so shardwise does not. Convert it in PyTorch, with "
                "safetensors.torch.save_file."
            )
        if len(first) < 8 or length > min(_LONGEST, size - 8):
            raise _damaged(what, path, "its header is incomplete or too long")
        text = file.read(length)
    try:
        about = json.loads(text, object_pairs_hook=_once)
        meta = about.pop(_METADATA, {})
        if not isinstance(meta, dict) or not all([isinstance(x, str) for x in meta.values()]):
            raise TypeError(
                f"its metadata is {short_repr(meta)}, but must be a dict from strings to strings"
            )
        tensors = {str(name): _tensor(row, 8 + length) for name, row in about.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = plain_text(f"{error} is missing" if isinstance(error, KeyError) else str(error))
        why = "it is nested too deeply" if isinstance(error, RecursionError) else why
        raise _damaged(what, path, f"its header is invalid: {why}") from None
    at = 8 + length
    for name, t in sorted(tensors.items(), key=lambda row: (row[1].start, math.prod(row[1].shape))):
        if t.start != at:
            raise _damaged(what, path, f"{name!r} does not begin where the previous array ends")
        at += math.prod(t.shape) * t.dtype.itemsize
    if at != size:
        raise _damaged(what, path, f"it has {size} bytes, but its header describes {at}")
    return tensors, meta


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _tensor(row: dict[str, Any], data: int) -> _Tensor:
    code, shape, (start, end) = row["dtype"], row["shape"], row["data_offsets"]
    if code not in _DTYPES:
        raise ValueError(f"the dtype {brief(code)} is unknown")
    dtype = canonicalize_name(_DTYPES[code])
    if type(shape) is not list or not all(
        [type(n) is int and 0 <= n < LARGEST for n in (*shape, start, end)]
    ):
        raise ValueError("sizes must be non-negative integers")
    largest = math.prod([n for n in shape if n]) * dtype.itemsize  # like NumPy, if a size is 0
    if largest >= LARGEST or len(shape) > MOST_DIMS:
        raise ValueError(f"an array cannot have shape {brief(tuple(shape))}")
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{code}{shape} does not have {end - start} bytes")
    return _Tensor(dtype, tuple(shape), data + start)


def _damaged(what: str, path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{what}: {path} is not a safetensors file, or is damaged: {why}.")
