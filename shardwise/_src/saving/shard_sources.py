"""The data that a process writes for each array of a pytree: `Source`, and manifest entries."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.core.eval_context import eval_context
from shardwise._src.messages.formatting import short_repr
from shardwise._src.placement.device_put import process_index
from shardwise._src.random.keys import key_data, key_impl
from shardwise._src.saving.chunks import chunk_shape, stored_dtype
from shardwise._src.saving.manifest import Entry
from shardwise._src.saving.tree_metadata import Leaf
from shardwise._src.transfers.regions import Bounds, bounds_of
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.extended import KeyDType
from shardwise._src.types.mesh import BaseMesh
from shardwise._src.types.sharding import NamedSharding

_FILES = ("", "zarr.json", "checkpoint.json", "checkpoint.writer")  # reserved names
_LONGEST = 120  # maximum characters of a folder name
Shard = tuple[Bounds, Callable[[], np.ndarray]]  # a region, and a function that gives its values


@dataclass
class Source:
    """An array to save: its entry, and the shards that this process writes.

    parts: regions, with functions that return their values on the host.
    fixed: whether the values cannot change while they are referenced.
    """

    entry: Entry
    parts: list[Shard]
    fixed: bool

    @property
    def nbytes(self) -> int:
        """Bytes that this process writes."""
        return sum([self.nbytes_of(bounds) for bounds, _ in self.parts])

    def nbytes_of(self, bounds: Bounds) -> int:
        """Bytes of a region."""
        stored = self.entry.stored
        return np.dtype(stored if stored in np.sctypeDict else "u1").itemsize * _size(bounds)

    def taken(self) -> Source:
        """The same with values copied to the host: the array may now be changed or donated."""
        copied = [(b, value() if self.fixed else np.array(value())) for b, value in self.parts]
        return replace(self, parts=[(b, lambda held=held: held) for b, held in copied])


def _size(bounds: Bounds) -> int:
    return math.prod([stop - start for start, stop in bounds])


def source_of(what: str, end: Leaf) -> Source:
    """An array of a pytree, with the shards of it that this process writes.

    Raises:
      TypeError: an array's dtype cannot be written.
      UnexpectedTracerError: an array is traced.
      ValueError: an array is unreduced (partial sums).
      RuntimeError: an array has been deleted or donated.
    """
    x, key, scalar = end.value, None, isinstance(end.value, np.generic)
    if isinstance(x, Tracer):
        raise UnexpectedTracerError(
            f"{what}: {end.path} is a {x!r}. Checkpoints are written when a program runs, not when "
            "it is traced: call it outside of jit, grad, vmap."
        )
    if not isinstance(x, Array | np.ndarray | np.generic):
        raise TypeError(f"{what}: {end.path} is {short_repr(x)}, which has no values.")
    if isinstance(x, Array):
        _check_lives(what, end.path, x)
    shape = tuple(x.shape)
    if isinstance(x.dtype, KeyDType):
        key = key_impl(x)
        if not isinstance(key, str):
            raise TypeError(
                f"{what}: {end.path} has keys of a custom generator, which cannot be restored. "
                "Save `shardwise.random.key_data(keys)`."
            )
        with eval_context():
            x = key_data(x)
    x = x if isinstance(x, Array) else np.asarray(x)
    if x.dtype.kind not in "biufcV" or x.dtype.hasobject or x.dtype.names:
        raise TypeError(
            f"{what}: {end.path} is an array of dtype {x.dtype}. A checkpoint can contain only "
            "numbers and bools."
        )
    if x.dtype.kind in "fc" and x.dtype.itemsize > (8 if x.dtype.kind == "f" else 16):
        raise TypeError(
            f"{what}: {end.path} is an array of dtype {x.dtype}, which differs between machines. A "
            "checkpoint can contain real numbers of up to 64 bits and complex numbers of up to 128 "
            "bits."
        )
    if isinstance(end.value, np.ma.MaskedArray):
        raise TypeError(
            f"{what}: {end.path} is a masked array, whose mask would be lost. Save its `data` and "
            "its `mask`."
        )
    parts, shard, tiles, sharding = _divided(what, end.path, x)
    chunks = chunk_shape(shard, tiles, x.dtype.itemsize)
    path = end.path.removeprefix("tree")
    entry = Entry(
        path,
        folder_of(end.steps),
        shape,
        x.dtype.name,
        stored_dtype(x.dtype),
        chunks,
        sharding,
        cast("str | None", key),
        tuple(x.shape[len(shape) :]),
        scalar,
    )
    return Source(entry, parts, isinstance(x, Array))


def _check_lives(what: str, path: str, x: Array) -> None:
    try:
        x._itself()
    except RuntimeError as error:
        raise RuntimeError(f"{what}: {path} has no values: {error}") from None


def _divided(what: str, path: str, x: Any) -> tuple[Any, Any, Any, dict[str, Any] | None]:
    """The regions that this process writes; the shape of a shard, the number of shards along each
    dimension, and the sharding as data. Process-local values are written by process 0."""
    if not isinstance(x, Array) or (x.is_fully_addressable and len(x.sharding.devices) == 1):
        own = [(tuple([(0, n) for n in x.shape]), lambda: np.asarray(x))]
        return own if process_index() == 0 else [], x.shape, (1,) * x.ndim, None
    if x.sharding.partial_axes[0]:
        raise ValueError(
            f"{what}: {path} of type {x.aval.str_short(True)} is unreduced (partial sums). Reshard "
            "it first to reduce it."
        )
    foreign = x.is_fully_addressable and process_index() > 0
    shards = [s for s in x.addressable_shards if s.replica_id == 0 and not foreign]
    parts = []
    for s in shards:
        bounds = bounds_of(s.index, x.shape)
        if _size(bounds):
            parts.append((bounds, lambda s=s: _fetched(x, s)))
    tiles = x.sharding.tiling(x.ndim).dims
    return parts, x.sharding.shard_shape(x.shape), tiles, _as_data(x.sharding, x.shape)


def _fetched(x: Array, shard: Any) -> np.ndarray:
    (part,) = [s for s in x.addressable_shards if s.device == shard.device]
    return np.asarray(part.data)


def _as_data(sharding: Any, shape: Sequence[int]) -> dict[str, Any]:
    """A sharding as data."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, BaseMesh):
        mesh = {str(name): size for name, size in sharding.mesh.shape.items()}
        spec = [[str(a) for a in axes] for axes in sharding.spec.dims(len(shape))]
        return {"mesh": mesh, "spec": spec}
    return {"shards": list(sharding.shard_shape(tuple(shape)))}


def folder_of(steps: Sequence[str]) -> str:
    """The folder of an array, from its key path; human-readable."""
    return "/".join([_name(step) for step in steps]) or "value"


def _in_hexadecimal(found: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass")])


def _name(step: str) -> str:
    """A key as a folder name: characters that some systems reject become hexadecimal."""
    text = re.sub(r"[^A-Za-z0-9_.\-]", _in_hexadecimal, step)
    if text in _FILES or text.startswith((".", "checkpoint.files.")):
        text = f"%{ord(text[0]):02X}{text[1:]}" if text else "%"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}-{hashlib.sha256(step.encode()).hexdigest()[:16]}"
    return text
