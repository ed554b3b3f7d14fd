"""Manifests of checkpoints: `checkpoint.json`, read and written; `describe`.

The file has a format name, a version, and a digest of the rest, so that a changed byte in it is
detected; and the digests of all other files (`digests`), which detect a file of another checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import (
    as_json,
    brief,
    columns,
    in_bytes,
    plain_text,
    pluralize,
    short_repr,
)
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.saving.storage import MANIFEST, Place, found
from shardwise._src.saving.tree_metadata import Node, from_json, leaves_of, to_json
from shardwise._src.types.dtypes import canonicalize
from shardwise._version import __version__

FORMAT, VERSION = "shardwise.checkpoint", 1
STEP = re.compile(r"step_\d+$")  # names of the checkpoints of a run
_WIDEST = 100  # maximum length of a line of metadata
_FOLDER = re.compile(r"(?!\.\.?(/|$))[\w.%-]+(/(?!\.\.?(/|$))[\w.%-]+)*", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{8}")
LARGEST, MOST_DIMS = 1 << 63, 64  # NumPy's limits: bytes of an array, and its dimensions

# The fields of a manifest and of its array entries, by type.
_FIELDS = {
    "created": str, "library": str, "processes": int, "metadata": object, "tree": dict,
    "arrays": list,
}  # fmt: skip
_ENTRY_FIELDS: dict[str, Any] = {
    "path": str, "folder": str, "shape": list, "dtype": str, "stored": str, "chunks": list,
    "sharding": dict | None, "key": str | None, "inner": list, "scalar": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """Metadata of one array.

    path: its location in the pytree, as a string: `['w'][0].scale`.
    folder: the location of its files, relative to the checkpoint.
    shape, dtype: of the array; for typed keys, the dtype of their integers.
    inner: the shape of the integers of one key.
    stored: the dtype in the files; for dtypes that the format lacks, that of their bits.
    chunks: the shape of one chunk.
    sharding: the sharding at save time: `{"mesh": {"x": 4}, "spec": [["x"], []]}`; None for an
        array on a single device or on the host.
    key: the PRNG implementation of typed keys.
    scalar: whether it was a NumPy scalar.
    """

    path: str
    folder: str
    shape: tuple[int, ...]
    dtype: str
    stored: str
    chunks: tuple[int, ...]
    sharding: dict[str, Any] | None = None
    key: str | None = None
    inner: tuple[int, ...] = ()
    scalar: bool = False

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.physical) * np.dtype(canonicalize_name(self.dtype)).itemsize

    @property
    def physical(self) -> tuple[int, ...]:
        """The shape in the files."""
        return (*self.shape, *self.inner)


def canonicalize_name(name: str) -> np.dtype[Any]:
    """The dtype of a name, including those of ml_dtypes."""
    found: Any = name if name in np.sctypeDict else canonicalize(name)
    return np.dtype(found)


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint: `describe(path)`. Prints as a table.

    path: its location; tree: its structure; arrays: one entry per array; metadata: the value passed
    by the writer; created: the time, in UTC; library: the library that wrote it; processes: how
    many wrote it; step and metrics: set by a manager, else None and empty; files: the digest of
    each file by name, None if the checkpoint was written without digests; stores: TensorStore's
    objects of arrays that another library wrote, by path.
    """

    path: str
    tree: Node
    arrays: tuple[Entry, ...]
    metadata: Any = None
    created: str = ""
    library: str = ""
    processes: int = 1
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    files: dict[str, str] | None = field(default=None, repr=False)
    place: Place | None = field(default=None, repr=False, compare=False)
    digest: str = field(default="", repr=False, compare=False)  # of the entire manifest
    stores: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum([entry.nbytes for entry in self.arrays])

    @property
    def values(self) -> dict[str, Any]:
        """Values that are not arrays, by path."""
        ends = [(p, n) for _, p, n in leaves_of(self.tree) if n.kind not in ("array", "none")]
        return {path: node.value for path, node in ends}

    def to_dict(self) -> dict[str, Any]:
        """All contents as JSON-serializable data."""
        return {
            "path": self.path, "format": FORMAT, "version": VERSION, "created": self.created,
            "library": self.library, "processes": self.processes, "bytes": self.nbytes,
            "arrays": [{**_entry_json(e), "bytes": e.nbytes} for e in self.arrays],
            "values": {p: as_json(v) for p, v in self.values.items()},
            "step": self.step, "metrics": {n: as_json(v) for n, v in self.metrics.items()},
            "metadata": self.metadata, "tree": to_json(self.tree),
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [("array", "shape", "dtype", "bytes", "sharding")]
        for e in self.arrays:
            shape = "×".join(map(str, e.shape)) or "scalar"
            kind = e.dtype if e.key is None else f"key of {e.key}"
            rows.append((e.path or "(the tree)", shape, kind, in_bytes(e.nbytes), _divided(e)))
        rows += [(p, "", type(v).__name__, "", brief(v)) for p, v in self.values.items()]
        by = f"written {self.created} by {self.library}"
        if self.processes > 1:
            by += f" in {self.processes} processes"
        head = f"{self.path}: {pluralize(len(self.arrays), 'array')}, {in_bytes(self.nbytes)}, {by}"
        return "\n".join(map(plain_text, [head, *_said_with(self), *columns(rows)]))


def _said_with(c: Checkpoint) -> Iterator[str]:
    """The step, metrics and metadata of a checkpoint, in lines."""
    if c.step is not None:
        yield f"step: {c.step}"
    if c.metrics:
        yield f"metrics: {', '.join([f'{name} {value!r}' for name, value in c.metrics.items()])}"
    if c.metadata is None:
        return
    whole = f"metadata: {json.dumps(c.metadata, ensure_ascii=False)}"
    if isinstance(c.metadata, dict) and len(whole) > _WIDEST:
        yield "metadata:"
        for name, value in c.metadata.items():
            yield f"  {name}: {json.dumps(value, ensure_ascii=False)}"
    else:
        yield whole


def _divided(e: Entry) -> str:
    if e.sharding is None:
        return ""
    if "spec" not in e.sharding:
        return f"in shards of {tuple(e.sharding['shards'])}"
    names = [" ".join(axes) if axes else "-" for axes in e.sharding["spec"]]
    mesh = ", ".join([f"{n}={size}" for n, size in e.sharding["mesh"].items()])
    return f"[{', '.join(names)}] over {mesh}"


# --------------------------------------------------------------------------------------- files


def with_metrics(step: int, metrics: Mapping[str, float], metadata: Any) -> dict[str, Any]:
    """The metadata that a manager saves; numbers as strings, so that no digits are lost."""
    said = {str(name): repr(float(value)) for name, value in metrics.items()}
    return {"step": step, "metrics": said, "metadata": metadata}


def _of_manager(metadata: Any) -> tuple[int | None, dict[str, float], Any]:
    """Step, metrics and user metadata; only the metadata if no manager wrote it."""
    with suppress(TypeError, ValueError, AttributeError):
        if {*metadata} == {"step", "metrics", "metadata"} and type(metadata["step"]) is int:
            metrics = metadata["metrics"]
            if all([isinstance(text, str) for text in metrics.values()]):
                numbers = {name: float(text) for name, text in metrics.items()}
                return metadata["step"], numbers, metadata["metadata"]
    return None, {}, metadata


def written(
    tree: Node, arrays: Sequence[Entry], metadata: Any, processes: int, files: Mapping[str, str]
) -> bytes:
    """The contents of a manifest. files: the digests of all files, by name."""
    content = {
        "id": uuid.uuid4().hex,  # so that no two manifests are equal
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "library": f"shardwise {__version__}", "processes": processes, "metadata": metadata,
        "tree": to_json(tree), "arrays": [_entry_json(entry) for entry in arrays],
        "files": dict(sorted(files.items())),
    }  # fmt: skip
    about = {"format": FORMAT, "version": VERSION, "sha256": _digest(content), "content": content}
    return json.dumps(about).encode()  # `indent` would take ten times as long


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(entry).items()}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read(what: str, place: Place) -> Checkpoint:
    """The manifest of the checkpoint at a place.

    Raises:
      FileNotFoundError: nothing is there.
      CheckpointError: it is not a checkpoint, has a newer version, or is damaged.
    """
    there = found(place)
    data = there.get(MANIFEST)
    if data is None:
        raise _none(what, there)
    try:
        about = json.loads(data)
        kind, version = about["format"], about["version"]
        if type(kind) is not str or type(version) is not int:
            raise TypeError("no format, or no version")
        content = about["content"]
        whole = _digest(content) == about["sha256"]
    except (ValueError, LookupError, TypeError, RecursionError):
        kind, version, content, whole = FORMAT, VERSION, None, False
    if kind != FORMAT:
        raise CheckpointError(
            f"{what}: {place.text}/{MANIFEST} has format {brief(kind)}, not {FORMAT!r}. Another "
            "program wrote it: read it with that program."
        )
    if version != VERSION:
        raise CheckpointError(
            f"{what}: {place.text} is a checkpoint of version {brief(version)}, but this release "
            f"(shardwise {__version__}) reads version {VERSION}. Read it with a newer release."
        )
    if not whole:
        raise CheckpointError(
            f"{what}: {place.text}/{MANIFEST} is damaged: its checksum does not match. Restore "
            "another checkpoint."
        )
    return _checkpoint(what, place, there, content, hashlib.sha256(data).hexdigest())


def _checkpoint(what: str, place: Place, there: Place, content: Any, digest: str) -> Checkpoint:
    try:
        _check_fields("the checkpoint", content, _FIELDS)
        arrays = tuple([_entry(row) for row in content["arrays"]])
        tree = from_json(content["tree"], len(arrays))
        step, metrics, metadata = _of_manager(content["metadata"])
        return Checkpoint(
            place.text,
            tree,
            arrays,
            metadata,
            content["created"],
            content["library"],
            content["processes"],
            step,
            metrics,
            _files(content.get("files")),
            there,
            digest,
        )
    except (ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{what}: {place.text}/{MANIFEST} is not a valid manifest: {error}."
        ) from error


def _files(rows: Any) -> dict[str, str] | None:
    """The digests of files; None in manifests of releases that wrote no digests."""
    if rows is None:
        return None
    if not isinstance(rows, dict):
        raise TypeError(f"'files' of the checkpoint is {short_repr(rows)}")
    for name, digest in rows.items():
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"{brief(digest)} is not a file digest")
        if not _FOLDER.fullmatch(name):
            raise ValueError(f"{brief(name)} is not a file in the checkpoint")
    return rows


def _check_fields(what: str, row: Any, types: dict[str, Any]) -> None:
    if not isinstance(row, dict):
        raise TypeError(f"{what} is {short_repr(row)}")
    for name, kind in types.items():
        if not isinstance(row[name], kind):
            raise TypeError(f"{name!r} of {what} is {short_repr(row[name])}")


def _entry(row: Any) -> Entry:
    _check_fields("an array", row, _ENTRY_FIELDS)
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    entry = replace(Entry(**known), path=plain_text(row["path"]))
    if not _FOLDER.fullmatch(entry.folder):
        raise ValueError(f"{brief(entry.folder)} is not a folder in the checkpoint")
    sizes = (*entry.physical, *entry.chunks)
    if (
        not all([type(n) is int and 0 <= n < LARGEST for n in sizes])
        or 0 in entry.chunks
        or (len(entry.chunks) != len(entry.physical))
    ):
        raise ValueError(
            f"{brief(entry.chunks)} is not a chunk shape for an array of shape "
            f"{brief(entry.physical)}"
        )
    if entry.sharding is not None and not _is_sharding(entry.sharding):
        raise ValueError(f"{brief(entry.sharding)} is not a sharding")
    kind, stored = canonicalize_name(entry.dtype), canonicalize_name(entry.stored)
    for dtype in (kind, stored):
        if dtype.kind not in "biufcV" or not dtype.itemsize:
            raise ValueError(f"{dtype.name!r} is not a numeric dtype")
    if kind.itemsize != stored.itemsize:
        raise ValueError(f"{entry.stored!r} differs in size from {entry.dtype!r}")
    if (entry.key is not None) != bool(entry.inner) or (entry.inner and kind.kind != "u"):
        raise ValueError(f"{kind.name}{[*entry.inner]} is not a key of {brief(entry.key)}")
    if max(math.prod(entry.physical), math.prod(entry.chunks)) * kind.itemsize >= LARGEST or (
        len(entry.physical) > MOST_DIMS
    ):
        raise ValueError(f"an array cannot have shape {brief(entry.physical)}")
    return entry


def _is_sharding(x: dict[str, Any]) -> bool:
    def all_are(kind: type, values: Any) -> bool:
        return isinstance(values, list) and all([type(v) is kind for v in values])

    if {*x} == {"shards"}:
        return all_are(int, x["shards"])
    return {*x} == {"mesh", "spec"} and (
        isinstance(x["mesh"], dict)
        and all_are(int, [*x["mesh"].values()])
        and all_are(list, x["spec"])
        and all([all_are(str, axes) for axes in x["spec"]])
    )


def check_is_there(what: str, checkpoint: Checkpoint) -> None:
    """Raises if the checkpoint has been replaced since its manifest was read: some of the arrays
    read could be those of the new one."""
    place = checkpoint.place
    if place is None or not checkpoint.digest:
        return
    data = place.get(MANIFEST)
    if data is None or hashlib.sha256(data).hexdigest() != checkpoint.digest:
        raise CheckpointError(
            f"{what}: {checkpoint.path} was replaced or removed while it was read. Restore it "
            "again, and save each step into its own folder if other programs read it."
        )


def some(names: Sequence[str]) -> str:
    """The first few of many names, for messages."""
    return ", ".join([*names[:3], "..."] if len(names) > 3 else names)


def _none(what: str, place: Place) -> Exception:
    if place.folder is not None and place.folder.is_file():
        return CheckpointError(
            f"{what}: {place.text} is a file, but a checkpoint is a folder. To read a safetensors "
            "file, use load_safetensors."
        )
    there = place.names()
    if not there:
        beside = ""
        if place.folder is not None and place.folder.parent.is_dir():
            steps = sorted(name for name in os.listdir(place.folder.parent) if STEP.match(name))
            beside = f" The last one in the same folder is {steps[-1]}." if steps else ""
        return FileNotFoundError(f"{what}: there is no checkpoint at {place.text}.{beside}")
    if any(name.endswith(".distcp") for name in there):
        return CheckpointError(
            f"{what}: {place.text} is a distributed checkpoint of PyTorch, whose .metadata is a "
            "pickle: reading it would execute code from it, so shardwise does not. Convert it in "
            "PyTorch with torch.distributed.checkpoint.format_utils.dcp_to_torch_save, then "
            "safetensors.torch.save_file, and read the result with load_safetensors."
        )
    if "_METADATA" in there or "_CHECKPOINT_METADATA" in there:
        return CheckpointError(
            f"{what}: {place.text} is an Orbax checkpoint: read it with load_orbax."
        )
    steps = sorted({top for name in there if STEP.match(top := name.partition("/")[0])})
    if steps:
        return CheckpointError(
            f"{what}: {place.text} contains the checkpoints of a run: name one of them, such as "
            f"{place.text}/{steps[-1]}, or use CheckpointManager({place.text!r})."
        )
    return CheckpointError(
        f"{what}: {place.text} has no {MANIFEST}, but {some(there)}: it is not a checkpoint, or "
        "its writer was stopped before it finished."
    )


@hides_frames
def describe(path: Any) -> Checkpoint:
    """The contents of a checkpoint: its arrays with shapes, dtypes and shardings, its other values,
    when it was written, and its metadata. Reads no array data.

    Args:
      path: a folder, or an address such as gs://bucket/folder.

    Returns:
      A record that prints as a table; `to_dict()` returns it as data.

    Raises:
      FileNotFoundError: nothing is there.
      CheckpointError: it is not a checkpoint, has a newer version, or is damaged.
    """
    return read("describe", Place.at("describe", path))
