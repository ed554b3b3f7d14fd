"""Byte exchange between processes: all-gather and broadcast of host values.

Small values are sent with a meeting at the coordinator, in one round trip. Larger ones go through
memory that all processes share, if they run on one machine; else through XLA, over the first device
of each process. Bytes arrive unchanged, so a NaN keeps its payload and a zero its sign.

    Site.of("process_allgather", "tree", tree).gathered([...])
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.base.caches import cached
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.core.eval_context import eval_context
from shardwise._src.distributed import start
from shardwise._src.distributed.shared_memory import Note, SharedMemory, are_together, disable
from shardwise._src.jit.jit import jit
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tree_paths import leaf_paths, tree_text
from shardwise._src.random.keys import key_data, wrap_key_data
from shardwise._src.runtime import backend
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers import parts, transfer
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.dtypes import short_name
from shardwise._src.types.extended import ExtendedDType, KeyDType
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding, SingleDeviceSharding

LITTLE = 1 << 16  # bytes, of all processes together, that are sent through the coordinator
WORD = 4  # bytes of the integers that are added up


class Leaf(NamedTuple):
    """One leaf of a pytree.

    name: with its path; value: C-contiguous, on the host; dtype: that of the leaf, also for typed
    keys, whose `value` has the underlying integers.
    """

    name: str
    value: np.ndarray
    dtype: Any
    shape: tuple[int, ...]

    @property
    def type(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


def named_leaves(what: str, tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves of a pytree with their names, and its treedef. Leaves must not be traced."""
    leaves, treedef = flatten(tree)
    named = list(zip([f"in_tree{path}" for path in leaf_paths(tree)], leaves, strict=True))
    for name, x in named:
        if isinstance(x, Tracer):
            raise UnexpectedTracerError(
                f"{what}: {name} is a {x!r}. Values are exchanged between processes when the "
                "program runs, not when it is traced: call it outside of jit, grad, vmap. Inside, "
                "use collectives such as `shardwise.lax.all_gather`."
            )
    return named, treedef


def on_host(what: str, name: str, x: Any) -> Leaf:
    """The host value of a process-local or fully replicated leaf."""
    dtype = x.dtype if isinstance(x, Array) else None
    with eval_context():
        value = np.asarray(key_data(x) if isinstance(dtype, ExtendedDType) else x)
    if value.dtype.hasobject:
        raise TypeError(
            f"{what}: {name} is {short_repr(x)}, but must be an array or a number: only their "
            "bytes can be sent."
        )
    shape = np.shape(x) if dtype is None else x.shape
    return Leaf(name, np.asarray(value, order="C"), dtype or value.dtype, shape)


def result(leaf: Leaf, value: np.ndarray) -> Any:
    """The user-visible value of received data: a key array for keys, else a NumPy array."""
    if not isinstance(leaf.dtype, KeyDType):
        return value
    with eval_context():
        return wrap_key_data(value, dtype=leaf.dtype)


# --------------------------------------------------------------------------------- agreement


def here() -> start.Here | None:
    """The membership of this process; starts devices first, as a launched program joins then."""
    backend.client()
    return start.here()


def gather_notes(
    what: str, treedef: Any, types: Sequence[tuple[str, str]], note: Any = None
) -> list[Any]:
    """The notes of all processes, by rank, after checking that all have the same tree structure.

    types: name and type of each leaf. note: a JSON-serializable value of this process.

    Raises:
      ValueError: trees or types differ; raised in all processes.
    """
    about = [tree_text(treedef), [list(row) for row in types]]
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]
    said = meeting(what, {"digest": digest, "note": note})
    if len({one["digest"] for one in said}) > 1:
        raise ValueError(f"{what}: {_difference(meeting(what, {'about': about}))}")
    return [one["note"] for one in said]


def meeting(what: str, message: Any) -> list[Any]:
    """Joins a meeting of all processes, and returns the messages of all: JSON-serializable."""
    at = here()
    assert at is not None
    return [json.loads(one) for one in at.watch.meet(what, payload=json.dumps(message))]


def _difference(said: Sequence[dict[str, Any]]) -> str:
    """Describes how the pytrees of other processes differ from that of process 0."""
    tree, types = said[0]["about"]
    for rank, one in enumerate(said):
        other, theirs = one["about"]
        if other != tree:
            return (
                f"the pytree is {tree} in process 0 and {other} in process {rank}. Its structure "
                "must be the same in all processes."
            )
        for (name, a), (_, b) in zip(types, theirs, strict=True):
            if a != b:
                return (
                    f"{name} is {a} in process 0 and {b} in process {rank}. Its shape and dtype "
                    "must be the same in all processes: pad shorter arrays, and send the lengths "
                    "separately."
                )
    raise AssertionError("digests that differ, of trees that do not")


def through_memory(
    what: str,
    memory: SharedMemory,
    notes: Sequence[Sequence[str]],
    maker: int,
    parts: Sequence[tuple[int, np.ndarray]],
) -> list[np.ndarray] | None:
    """The arrays that all processes write to memory that one of them has made; None if they cannot
    share it.

    notes: of all processes, from `SharedMemory.announce`, as JSON; parts: of this process.
    """
    known = [Note(*note) for note in notes]
    if not are_together(known, maker):
        return None
    # By the name, a call of another thread, or after an exception, is not taken for this one.
    written = meeting(
        f"{what} through memory {known[maker].name}", memory.write(known[maker], parts)
    )
    if all(written):
        return memory.map()
    disable()
    return None


def as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# ------------------------------------------------------------------------------- over devices


def _processes() -> Mesh:
    return _first_devices(tuple(backend.devices()))


@cached(16)
def _first_devices(devices: tuple[Any, ...]) -> Mesh:
    """The first device of each process."""
    first: dict[int, Any] = {}
    for device in devices:
        first.setdefault(device.process_index, device)
    return Mesh([first[i] for i in sorted(first)], ("process",))


def _over_processes(own: np.ndarray, mesh: Mesh) -> tuple[Array, Any]:
    """The array whose row i is on the i-th device of a mesh of one device of each process, and a
    fully replicated sharding.

    `own` must not change during the array's lifetime: the array may alias its memory.
    """
    (device,) = mesh.local_devices
    row = parts.aliased(own.reshape(1, -1), SingleDeviceSharding(device), True)
    rows = NamedSharding(mesh, PartitionSpec("process"))
    whole = parts.assemble((mesh.size, own.size), rows, [row], own.dtype, "process_allgather")
    return whole, rows.with_spec(PartitionSpec())


def all_rows(own: np.ndarray, mesh: Mesh | None = None) -> np.ndarray:
    """The bytes of all processes, u8[processes, n], from u8[n] in each; n is the same in all.

    mesh: one device of each process, in the order of the rows; None for all processes.
    """
    words = own if own.size % WORD else own.view(np.uint32)
    whole, everywhere = _over_processes(words, mesh or _processes())
    with eval_context():
        return np.asarray(transfer.move(whole, everywhere)).view(np.uint8)


def from_one(own: np.ndarray | None, size: int) -> np.ndarray:
    """Broadcasts the bytes u8[size] of the one process that passes `own`.

    They are summed as integers with the zeros of the other processes, which changes no bit.
    """
    padded = -size % WORD
    if own is None:
        words = np.zeros((size + padded) // WORD, np.uint32)
    else:
        words = (np.pad(own, (0, padded)) if padded else own).view(np.uint32)
    whole, everywhere = _over_processes(words, _processes())
    with eval_context():
        out = _adder(everywhere)(whole)
    return np.asarray(out).view(np.uint8)[:size]


@cached(16)
def _adder(everywhere: Any) -> Any:
    def added_up(rows: Any) -> Any:
        return rows.sum(0, dtype=rows.dtype)

    return jit(added_up, out_shardings=everywhere)
