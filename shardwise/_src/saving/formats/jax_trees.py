"""Saves pytrees of arrays to a folder and loads them: `save`, `load`, in JAX's format.

    save({"w": w, "b": None}, "/ckpt/step_10")
    params = load("/ckpt/step_10", sharding)

A folder contains `pytreedef.json`, the structure with a string per leaf, and `array_store`, a
TensorStore database with the arrays, keyed by leaf number. All processes write into one folder.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.export import tree_records
from shardwise._src.export.export_files import TREE
from shardwise._src.export.tables import Damaged, read, write
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tree_paths import paths_in
from shardwise._src.placement.device_put import process_count, process_index
from shardwise._src.runtime.pytree import PyTreeDef, flatten
from shardwise._src.runtime.threads import submit
from shardwise._src.saving import tensorstore_specs
from shardwise._src.saving.arrays import (
    combine_kvstores,
    run,
    run_deserialization,
    run_serialization,
    tensorstore,
)  # fmt: skip
from shardwise._src.saving.async_manager import first_process, in_steps, together
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format

REPR, LEAF_IDS = "__jax_pytreedef_repr", "__jax_leaf_ids"
_TREE_FILE, _ARRAYS = "pytreedef.json", "array_store"
_OWN = (_TREE_FILE, _ARRAYS, "archive.zip")  # entries that may exist in a folder to be overwritten
_WAIT = 300  # timeout in seconds for waiting for other processes
_GB_AT_A_TIME = 10  # that are read
_numbers = itertools.count()  # of calls of `save`, in the same order in all processes
_threads = ThreadPoolExecutor(32, "shardwise-checkpoint")


def _is_none(x: Any) -> bool:
    return x is None


def _folder(what: str, directory: str | PathLike[str]) -> Path:
    if re.match(r"(gs|s3):/", str(directory)):
        raise NotImplementedError(
            f"{what}: directory is {str(directory)!r}. Pytrees are written to folders of the file "
            "system only; to write single arrays to such an address, use "
            "`shardwise.experimental.array_serialization.serialization.GlobalAsyncCheckpointManager`."
        )
    return Path(directory).expanduser().resolve()


# -------------------------------------------------------------------------------------- writing


def save(
    data: Any, directory: str | PathLike[str], *, overwrite: bool = True, ts_specs: Any = None
) -> None:
    """Writes a pytree of arrays into a folder and waits until all processes have done so.

    Args:
      data: a pytree whose leaves are arrays, NumPy arrays, or None.
      directory: the folder, the same for all processes. Its parent folders must exist.
      overwrite: whether to remove an existing checkpoint first.
      ts_specs: overrides for TensorStore's array specifications: one for all arrays, or a pytree of
        them that is a prefix of `data`.

    Raises:
      ValueError: a leaf has another type; the folder has files and `overwrite` is False; processes
        pass different folders; or `ts_specs` does not match.
      RuntimeError: the folder has files that do not belong to a checkpoint, or another process
        fails.
      ImportError: tensorstore is not installed.
    """
    _save(f"shardwise/save/{next(_numbers)}", data, directory, overwrite, ts_specs)


def nonblocking_save(
    data: Any, directory: str | PathLike[str], *, overwrite: bool = True, ts_specs: Any = None
) -> PyTreeFuture:
    """`save` in a thread. Returns a future; its `pytree` has the types of `data`.

    Until it is done, do not delete or donate arrays, and do not modify NumPy arrays.
    """
    name = f"pytree save {next(_numbers)}"
    leaves, tree = flatten(data)
    types = [ShapeDtypeStruct(x.shape, x.dtype) if _is_array(x) else x for x in leaves]
    future = submit(_threads, _save, name, data, directory, overwrite, ts_specs)
    return PyTreeFuture(future, tree.unflatten(types))


def _is_array(x: Any) -> bool:
    return isinstance(x, Array | np.ndarray) and not isinstance(x.dtype, ExtendedDType)


def _save(
    name: str, data: Any, directory: str | PathLike[str], overwrite: bool, ts_specs: Any
) -> None:
    tensorstore()
    leaves, tree = flatten(data, _is_none)
    for path, x in zip(paths_in("data", tree), leaves, strict=True):
        if x is not None and not _is_array(x):
            raise ValueError(f"save: {path} must be an array or None; got {short_repr(x)}.")
    root = _folder("save", directory)
    about = serialize_pytreedef(tree)
    about[LEAF_IDS] = [
        x if x is None else f"Array({x.dtype.name}[{', '.join(map(str, x.shape))}])" for x in leaves
    ]
    given = _broadcast_specs("save", ts_specs, data)
    rows = [(x, _spec(root, i, given[i], x)) for i, x in enumerate(leaves) if x is not None]

    def commit() -> None:
        if rows and process_count() > 1:
            run(lambda: _combine(root))
        (root / _TREE_FILE).write_text(json.dumps(about, indent=2))

    places = together(f"{name}/start", lambda: str(root), _WAIT)
    if len({*places}) > 1:
        raise ValueError(f"save: directory must be the same in all processes; got {places}.")
    steps: dict[str, Callable[[], object]] = {
        "folder": first_process(lambda: _make_empty(root, overwrite)),
        "arrays": lambda: run_serialization(*zip(*rows, strict=True)) if rows else None,
        "end": first_process(commit),
    }
    in_steps(name, steps, _WAIT)


def _broadcast_specs(what: str, ts_specs: Any, tree: Any) -> list[Any]:
    """A specification, or None, for each leaf of a pytree in which None is a leaf."""
    leaf = tensorstore_specs.is_tensorstore_spec_leaf
    return broadcast_prefix(ts_specs, _numbered(tree), f"{what}: ts_specs", leaf, "data")


def _numbered(tree: Any) -> Any:
    """The pytree with each leaf, including None, replaced by its number."""
    leaves, whole = flatten(tree, _is_none)
    return whole.unflatten([*range(len(leaves))])


def _spec(root: Path, leaf: int, given: Any, x: Any = None) -> Any:
    """The specification of a leaf with the user's overrides. x: the array, if it is written."""
    process = process_index() if x is not None and process_count() > 1 else None
    own = tensorstore_specs.get_tensorstore_spec(root / _ARRAYS / str(leaf), True, process, x)
    whole = tensorstore_specs.merge_nested_ts_specs(own, given)
    at = own["kvstore"]["base"]["path"]
    tensorstore_specs.verify_tensorstore_spec(whole, x, at, True, check_metadata=x is not None)
    return whole


def _make_empty(root: Path, overwrite: bool) -> None:
    present = list(root.iterdir()) if root.exists() else []
    if present and not overwrite:
        raise ValueError(
            f"save: {root} has files, and overwrite is False. Pass overwrite=True, or choose "
            "another folder."
        )
    others = [path.name for path in present if path.name not in _OWN]
    if others:
        raise RuntimeError(
            f"save: {root} has {', '.join(sorted(others))}, which is not part of a checkpoint, so "
            "it is not overwritten. Remove it, or choose another folder."
        )
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()


async def _combine(root: Path) -> None:
    """Merges the databases of the processes into one."""

    def store(process: int | None) -> Any:
        spec = tensorstore_specs.get_tensorstore_spec(root / _ARRAYS / "any", True, process)
        found = spec["kvstore"]
        return {k: v for k, v in found.items() if k != "path"}

    await combine_kvstores(store(None), [store(i) for i in range(process_count())])


# -------------------------------------------------------------------------------------- reading


def load_pytreedef(directory: str | PathLike[str]) -> Any:
    """The pytree saved in a folder, with a `ShapeDtypeStruct` in place of each array.

    Raises:
      FileNotFoundError: there is no checkpoint in the folder.
      ValueError: its file is damaged.
    """
    about = json.loads((_folder("load_pytreedef", directory) / _TREE_FILE).read_text())
    return deserialize_pytreedef(about).unflatten([_from_word(w) for w in about[LEAF_IDS]])


def _from_word(word: Any) -> Any:
    found = re.fullmatch(r"Array\((\w+)\[([0-9, ]*)\]\)", word or "")
    if found is None:
        return word
    shape = [int(n) for n in found[2].split(",") if n.strip()]
    return ShapeDtypeStruct(shape, found[1])


def load(
    directory: str | PathLike[str], shardings: Any, *, mask: Any = None, ts_specs: Any = None
) -> Any:
    """Reads a pytree of arrays that was written by `save` or by JAX.

    Args:
      directory: the folder.
      shardings: where arrays go: one sharding for all, or a pytree of them that is a prefix of the
        saved one; or `ShapeDtypeStruct`s with shardings, whose dtype and layout are used.
      mask: a prefix pytree of bools: where it is False, the result has None.
      ts_specs: overrides for TensorStore's specifications, as in `save`.

    Raises:
      FileNotFoundError: there is no checkpoint in the folder.
      ValueError: an argument does not match the checkpoint, or a file is damaged.
      NotImplementedError: for a `Format`: pass a `ShapeDtypeStruct` with it instead.
      ImportError: tensorstore is not installed.
    """
    tensorstore()
    root = _folder("load", directory)
    tree = load_pytreedef(root)
    numbered = _numbered(tree)
    places = broadcast_prefix(shardings, numbered, "load: shardings", root="data")
    if any(isinstance(p, Format) for p in places):
        raise NotImplementedError(
            "load: shardings has a Format, whose layout would apply to arrays of any shape. Pass "
            "ShapeDtypeStruct(shape, dtype, sharding=format)."
        )
    given = _broadcast_specs("load", ts_specs, tree)
    wanted = broadcast_prefix(True if mask is None else mask, numbered, "load: mask", root="data")
    leaves, treedef = flatten(tree, _is_none)
    numbers = [i for i, x in enumerate(leaves) if x is not None and wanted[i]]
    specs = [_spec(root, i, given[i]) for i in numbers]
    read = run_deserialization([places[i] for i in numbers], specs, concurrent_gb=_GB_AT_A_TIME)
    arrays = dict(zip(numbers, read, strict=True))
    return treedef.unflatten([arrays.get(i) for i in range(len(leaves))])


def nonblocking_load(
    directory: str | PathLike[str], shardings: Any, *, mask: Any = None, ts_specs: Any = None
) -> PyTreeFuture:
    """`load` in a thread. Returns a future; its `pytree` has the types of the result."""
    types = load_pytreedef(directory)
    read = partial(load, mask=mask, ts_specs=ts_specs)
    return PyTreeFuture(submit(_threads, read, directory, shardings), types)


# ------------------------------------------------------------------------- structures, futures


def serialize_pytreedef(node: PyTreeDef) -> dict[str, Any]:
    """The structure of a pytree as a JSON-serializable dict, with a number for each leaf.

    Raises:
      ValueError: it has custom containers that are not registered with
        `register_pytree_node_serialization`.
      TypeError: it has a dict whose keys are not strings.
    """
    data = write(TREE, tree_records.written(node))
    return {REPR: base64.b64encode(data).decode(), LEAF_IDS: list(range(node.num_leaves))}


def deserialize_pytreedef(pytreedef_repr: dict[str, Any]) -> PyTreeDef:
    """The structure from a dict that `serialize_pytreedef` or JAX wrote.

    Raises:
      ValueError: the dict is malformed, or has containers that are not registered here.
    """
    try:
        fields = read(TREE, base64.b64decode(pytreedef_repr[REPR], validate=True))
        return tree_records.read(fields, len(pytreedef_repr[LEAF_IDS]), "tree")
    except (KeyError, ValueError, Damaged) as error:
        raise ValueError(
            f"deserialize_pytreedef: this is not a serialized PyTreeDef: {error}."
        ) from None


class PyTreeFuture(Future[Any]):
    """A pending result, which can be awaited. pytree: the types of the result."""

    def __init__(self, future: Future[Any], pytree: Any = None):
        super().__init__()
        self._future, self.pytree = future, pytree

    def done(self) -> bool:
        """Whether the result is ready."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """The result, or its error, once it is ready."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error of the result; None if it succeeded."""
        return self._future.exception(timeout)

    def __await__(self) -> Generator[None, None, Any]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        return f"PyTreeFuture(done={self.done()}, pytree={self.pytree})"
