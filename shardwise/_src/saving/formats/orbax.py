"""Reads Orbax checkpoints: `load_orbax`. The files are read by TensorStore, the pytree from JSON.

For example:

    load_orbax("/ckpt/100/default", shardings)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import brief, join
from shardwise._src.saving.arrays import store_context, tensorstore
from shardwise._src.saving.manifest import Checkpoint, Entry
from shardwise._src.saving.restoring import restored
from shardwise._src.saving.storage import Place
from shardwise._src.saving.tree_metadata import Node
from shardwise._src.saving.writing import run_all

_TREE, _TEXTS = "_METADATA", "_strings.json"
_ARRAYS = ("jax.Array", "np.ndarray", "scalar")
_EMPTY = {"Dict": "dict", "List": "list", "Tuple": "tuple", "NamedTuple": "dict"}
_NUMBERED = 1  # Orbax's code for a step into a list or tuple


def load_orbax(path: str | PathLike[str], shardings: Any = None, like: Any = None) -> Any:
    """Reads a pytree that Orbax wrote, in Zarr version 2 or 3, with or without OCDBT.

    Args:
      path: the folder with the arrays, or its parent (a step of Orbax's manager) if that has a
        single item.
      shardings, like: as for `restore`.

    Returns:
      The pytree. Without `like`, all containers are dicts and lists, and numbers are NumPy scalars.
      Random keys are returned as their integers.

    Raises:
      FileNotFoundError: nothing is there.
      CheckpointError: it is not an Orbax checkpoint, is damaged, or does not match `like`.
      ImportError: tensorstore is not installed.
    """
    what = "load_orbax"
    tensorstore()
    place, text = _found(what, Place.at(what, path))
    try:
        about = json.loads(text)
        rows: list[tuple[tuple[tuple[str, bool], ...], str]] = []
        for row in about["tree_metadata"].values():
            # The path to a leaf: names, and whether each is an index into a list.
            keys = [(str(k["key"]), k["key_type"] == _NUMBERED) for k in row["key_metadata"]]
            rows.append((tuple(keys), row["value_metadata"]["value_type"]))
        texts = json.loads(place.get(_TEXTS) or b"{}")
    except (ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{what}: {place.text}/{_TREE} is not valid Orbax metadata: {error!r}."
        ) from error
    names = [".".join(name for name, _ in steps) for steps, kind in rows if kind in _ARRAYS]
    stores = run_all(lambda: _opened(what, place, names, about))
    entries: list[Entry] = []
    ends: list[tuple[Any, Node]] = []
    for steps, kind in rows:
        ends.append((steps, _end(what, place, steps, kind, len(entries), texts)))
        if kind in _ARRAYS:
            entries.append(_entry(steps, kind, stores[len(entries)]))
    by_path = {entry.path: store for entry, store in zip(entries, stores, strict=True)}
    found = Checkpoint(place.text, _tree(ends), tuple(entries), place=place, stores=by_path)
    return restored(what, found, shardings, like)


def _found(what: str, place: Place) -> tuple[Place, bytes]:
    text = place.get(_TREE)
    if text is not None:
        return place, text
    there = place.names()
    if not there:
        raise FileNotFoundError(f"{what}: there is no checkpoint at {place.text}.")
    heads = sorted({name.split("/")[0] for name in there})
    items = [(place / name, (place / name).get(_TREE)) for name in heads]
    known = [(item, text) for item, text in items if text is not None]
    if len(known) == 1:
        return known[0]
    which = [item.text.rpartition("/")[2] for item, _ in known]
    more = f"several items, {join(which)}: name one of them"
    if not known:
        more = (
            f"no {_TREE}, nor does any folder in it: it is not an Orbax checkpoint, or was written "
            "by an old release"
        )
    raise CheckpointError(f"{what}: {place.text} has {more}.")


async def _opened(
    what: str, place: Place, names: Sequence[str], about: dict[str, Any]
) -> list[Any]:
    """TensorStore's objects for arrays."""
    driver = "zarr3" if about.get("use_zarr3") else "zarr"
    has_all = bool(about.get("store_array_data_equal_to_fill_value"))

    async def one(name: str) -> Any:
        store = (place / name).store
        if about.get("use_ocdbt", True):
            store = {"driver": "ocdbt", "base": place.store, "path": f"{name}/"}
        spec = {"driver": driver, "kvstore": store, "fill_missing_data_reads": not has_all}
        try:
            return await tensorstore().open(spec, open=True, context=store_context())
        except ValueError as error:
            raise CheckpointError(
                f"{what}: {place.text} has no readable array {name!r}: {error}"
            ) from error

    return await asyncio.gather(*map(one, names))


def _entry(steps: Sequence[tuple[str, bool]], kind: str, store: Any) -> Entry:
    path = "".join([f"[{name}]" if numbered else f"[{name!r}]" for name, numbered in steps])
    dtype = store.dtype.numpy_dtype.name
    chunks = tuple(store.chunk_layout.read_chunk.shape or ())
    chunks = tuple([max(1, n) for n in chunks])
    return Entry(path, "", tuple(store.shape), dtype, dtype, chunks, scalar=kind == "scalar")


def _end(
    what: str, place: Place, steps: Sequence[tuple[str, bool]], kind: str, number: int, texts: Any
) -> Node:
    if kind in _ARRAYS:
        return Node("array", value=number)
    name = ".".join(name for name, _ in steps)
    if kind == "string" and isinstance(texts.get(name), str):
        return Node("str", value=texts[name])
    if kind == "None":
        return Node("none")
    if kind in _EMPTY:
        return Node(_EMPTY[kind])
    raise CheckpointError(
        f"{what}: {place.text} has a value of type {brief(kind)} at {name!r}, which load_orbax "
        "does not support."
    )


def _tree(ends: Sequence[tuple[Any, Node]]) -> Node:
    """Builds the tree from its leaves and their paths."""
    if len(ends) == 1 and not ends[0][0]:
        return ends[0][1]
    groups: dict[str, list[tuple[Any, Node]]] = {}
    for steps, node in ends:
        groups.setdefault(steps[0][0], []).append((steps[1:], node))
    items = {name: _tree(rows) for name, rows in groups.items()}
    if ends and ends[0][0][0][1]:
        return Node("list", items=tuple([items[name] for name in sorted(items, key=int)]))
    return Node("dict", tuple(items), tuple(items.values()))
