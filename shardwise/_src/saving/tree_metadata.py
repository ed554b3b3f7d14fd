"""Pytrees as data: their containers and leaves.

    node, leaves = flatten_tree("save", "tree", {"w": w, "step": 3})
    # Node("dict", names=("w", "step"), ...); ends: w with the path "tree['w']" and steps ("w",)

Only the names of classes are stored, so that reading a pytree does not import, let alone execute,
anything: named tuples and dataclasses are restored as dicts keyed by field name, or with their
original classes if the reader provides an example (`matched`).
"""

from __future__ import annotations

import base64
import copy
import dataclasses
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import brief, pluralize, short_repr, to_register
from shardwise._src.messages.tree_paths import SHOWN
from shardwise._src.runtime.pytree import flatten, flatten_one_level, unordered_keys
from shardwise._src.runtime.pytree import steps as keys_of

PLAIN = (bool, int, float, complex, str, bytes)
_KEYS = (str, int, float, bool, type(None))  # dict keys
_DEEPEST = 100  # maximum nesting: all code that reads and writes pytrees is recursive
_BY_NAME = ("dict", "namedtuple", "dataclass", "object")
Steps = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Node:
    """A container or a leaf.

    kind: "dict", "list", "tuple", "namedtuple", "dataclass", "object" (another class, by names),
    "sequence" (another class, by numbers); or a leaf: "none", "bool", "int", "float", "complex",
    "str", "bytes", "array".
    names: of the entries, if they have names; items: the entries.
    type: name of the class, for human readers.
    value: of a leaf; for an array, its number.
    static: plain-valued fields of a dataclass that are not entries.
    """

    kind: str
    names: tuple[Any, ...] = ()
    items: tuple[Node, ...] = ()
    type: str = ""
    value: Any = None
    static: tuple[tuple[str, Node], ...] = ()


class Leaf(NamedTuple):
    """A leaf of a pytree. path: as a string, for messages."""

    steps: Steps
    path: str
    value: Any


class _Parts(NamedTuple):
    kind: str
    names: tuple[Any, ...]
    texts: tuple[str, ...]  # of the keys, for messages
    items: Sequence[Any]
    again: Callable[[Sequence[Any]], Any]  # rebuilds the container from other entries


def _parts(x: Any) -> _Parts | None:
    """A container, flattened by one level; None for a leaf."""
    if x is None:
        return None
    found = flatten_one_level(x)
    if found is None:
        is_object = dataclasses.is_dataclass(x) and not isinstance(x, type)
        return _parts_of_dataclass(x) if is_object and type(x) is not ShapeDtypeStruct else None
    keys = keys_of(x)
    items = list(found[0])
    names = tuple([getattr(k, a) for k in keys for a in ("key", "idx", "name") if hasattr(k, a)])
    if len(names) != len(items):
        names = tuple(range(len(items)))
    texts = tuple([str(k) for k in keys]) if keys else tuple([f"[{i}]" for i in names])

    def again(new: Sequence[Any]) -> Any:
        return flatten(x, lambda y: y is not x)[1].unflatten(new)

    return _Parts(_kind(x, names), names, texts, items, again)


def _kind(x: Any, names: Sequence[Any]) -> str:
    if isinstance(x, dict) and type(x) in (dict, OrderedDict, defaultdict):
        return "dict"
    if type(x) in (list, tuple):
        return type(x).__name__
    if isinstance(x, tuple):
        return "namedtuple"
    if dataclasses.is_dataclass(x):
        return "dataclass"
    return "object" if all(isinstance(n, str) for n in names) else "sequence"


def _parts_of_dataclass(x: Any) -> _Parts:
    """Flattens an unregistered dataclass: all of its fields are entries."""
    names = tuple([f.name for f in dataclasses.fields(x)])

    def again(items: Sequence[Any]) -> Any:
        new = copy.copy(x)
        for name, item in zip(names, items, strict=True):
            object.__setattr__(new, name, item)  # also works for frozen ones
        return new

    texts = tuple([f".{n}" for n in names])
    return _Parts("dataclass", names, texts, [getattr(x, n) for n in names], again)


# ----------------------------------------------------------------------------------- flattening


def flatten_tree(what: str, root: str, tree: Any) -> tuple[Node, list[Leaf]]:
    """A pytree as data, with its arrays, by number.

    Arrays are shardwise arrays, NumPy arrays and scalars, and `ShapeDtypeStruct`s.

    Raises:
      TypeError: a leaf is neither an array nor plain (None, bool, number, string, bytes); or a dict
        has keys that are not plain or cannot be sorted.
      ValueError: the pytree contains itself, or is nested too deeply.
    """
    ends: list[Leaf] = []
    return _node(what, Leaf((), root, tree), ends, {}), ends


def _node(what: str, at: Leaf, ends: list[Leaf], above: dict[int, str]) -> Node:
    """above: the enclosing containers, by identity, with their paths."""
    x = at.value
    if x is None:
        return Node("none")
    if type(x) in PLAIN:
        return Node(type(x).__name__, value=x)
    if is_array(x):
        ends.append(at)
        return Node("array", value=len(ends) - 1)
    _check_depth(what, at, above)
    _check_order(what, at)
    parts = _parts(x)
    if parts is None:
        raise TypeError(
            f"{what}: {at.path} is {short_repr(x)}. A checkpoint can contain arrays, numbers, "
            f"strings, bytes and None, in pytree containers.{to_register(x)}"
        )
    _check_names(what, at.path, parts)
    inside = {**above, id(x): at.path}
    rows = zip(parts.names, parts.texts, parts.items, strict=True)
    below = [Leaf((*at.steps, str(name)), at.path + text, item) for name, text, item in rows]
    items = [_node(what, leaf, ends, inside) for leaf in below]
    names = () if parts.kind in ("list", "tuple", "sequence") else parts.names
    kind = type(x)
    plain = parts.kind in ("list", "tuple") or kind is dict
    name = "" if plain else f"{kind.__module__}.{kind.__qualname__}"
    return Node(parts.kind, names, tuple(items), name, static=_static(x, parts))


def is_array(x: Any) -> bool:
    """Whether it is a shardwise or NumPy array, or a `ShapeDtypeStruct`."""
    return isinstance(x, Array | np.ndarray | np.generic | ShapeDtypeStruct)


def _check_depth(what: str, at: Leaf, above: dict[int, str]) -> None:
    if id(at.value) in above:
        raise ValueError(
            f"{what}: {at.path} is {above[id(at.value)]} itself: the pytree contains itself. Leave "
            "that entry out."
        )
    if len(above) >= _DEEPEST:
        raise ValueError(
            f"{what}: {at.path[:60]}... is nested in {_DEEPEST} containers, the most that a "
            "checkpoint supports. Save the pytree as a list of its parts."
        )


def _check_order(what: str, at: Leaf) -> None:
    """Raises for a dict whose keys cannot be sorted, so that it is not a pytree."""
    found = unordered_keys(at.value)
    if found is None:
        return
    _check_keys(what, at.path, [*at.value])
    raise TypeError(
        f"{what}: {at.path} is a dict with the keys {short_repr(found[0])} and "
        f"{short_repr(found[1])}, which cannot be sorted; the entries of a pytree are sorted by "
        "key. Use keys of one type, such as strings."
    )


def _check_keys(what: str, path: str, keys: Sequence[Any]) -> None:
    wrong = [k for k in keys if type(k) not in _KEYS]
    if wrong:
        raise TypeError(
            f"{what}: {path} is a dict with the key {short_repr(wrong[0])}. Keys in a checkpoint "
            "must be strings, numbers, bools or None."
        )


def _check_names(what: str, path: str, parts: _Parts) -> None:
    _check_keys(what, path, parts.names)
    texts = [str(n) for n in parts.names]
    if twice := repeated(texts):
        raise TypeError(
            f"{what}: {path} has two keys written as {twice[0]!r}, which would be stored in the "
            "same file. Rename one of them."
        )


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur several times, in order."""
    return sorted([name for name, count in Counter(names).items() if count > 1])


def _static(x: Any, parts: _Parts) -> tuple[tuple[str, Node], ...]:
    """The plain fields of a dataclass that are not among its entries."""
    if parts.kind != "dataclass" or not dataclasses.is_dataclass(x):
        return ()
    rest = [f.name for f in dataclasses.fields(x) if f.name not in parts.names]
    values = [(name, getattr(x, name, None)) for name in rest if hasattr(x, name)]
    return tuple([(n, _node("", Leaf((), "", v), [], {})) for n, v in values if _is_plain(v)])


def _is_plain(x: Any) -> bool:
    if type(x) in (tuple, list):
        return all(_is_plain(y) for y in x)
    return x is None or type(x) in PLAIN


# --------------------------------------------------------------------------------- unflattening


def plain(node: Node, take: Callable[[Node], Any]) -> Any:
    """The pytree with plain containers: dicts, lists and tuples. take: the value of a leaf."""
    items = [plain(item, take) for item in node.items]
    if node.kind in _BY_NAME:
        static = {name: plain(value, take) for name, value in node.static}
        return {**dict(zip(node.names, items, strict=True)), **static}
    if node.kind == "tuple":
        return tuple(items)
    return items if node.kind in ("list", "sequence") else take(node)


def leaves_of(node: Node, steps: Steps = (), path: str = "") -> Iterator[tuple[Steps, str, Node]]:
    """The leaves of a tree as data, with their key paths as tuples and as strings."""
    if node.kind in ("list", "tuple", "sequence"):
        rows = [(str(i), f"[{i}]") for i in range(len(node.items))]
    elif node.kind == "dict":
        rows = [(str(n), f"[{n!r}]") for n in node.names]
    elif node.kind in _BY_NAME:
        rows = [(str(n), f".{n}") for n in node.names]
    else:
        yield steps, path, node
        return
    for (name, text), item in zip(rows, node.items, strict=True):
        yield from leaves_of(item, (*steps, name), path + text)


def matched(what: str, node: Node, like: Any, take: Callable[[Node, str, Any], Any]) -> Any:
    """Rebuilds saved data as a pytree with the structure of `like`, matching entries by name.

    take: returns the value of a leaf, from its saved node, its path, and the leaf of `like`.

    Raises:
      CheckpointError: one of them has leaves that the other lacks.
    """
    saved = {steps: (path, end) for steps, path, end in leaves_of(node, path="like")}
    shape, _ = flatten_tree(what, "like", like)
    wanted = {steps: path for steps, path, _ in leaves_of(shape, path="like")}
    sides = [
        ("only the checkpoint has", [path for s, (path, _) in saved.items() if s not in wanted]),
        ("only `like` has", [path for s, path in wanted.items() if s not in saved]),
    ]
    rows = [f"{text} {_some(paths)}" for text, paths in sides if paths]
    if rows:
        raise CheckpointError(
            f"{what}: `like` does not have the structure of the saved pytree: "
            f"{' and '.join(rows)}. `describe(path)` shows what the checkpoint contains."
        )

    def rebuilt(x: Any, steps: Steps) -> Any:
        if steps in saved:
            return take(saved[steps][1], wanted[steps], x)
        parts = _parts(x)
        assert parts is not None
        rows = zip(parts.names, parts.items, strict=True)
        return parts.again([rebuilt(item, (*steps, str(name))) for name, item in rows])

    return rebuilt(like, ())


def _some(paths: Sequence[str]) -> str:
    rest = len(paths) - SHOWN
    return ", ".join([*paths[:SHOWN], f"{rest} more"] if rest > 0 else paths)


# ---------------------------------------------------------------------------------------- JSON


def to_json(node: Node) -> dict[str, Any]:
    """A tree as JSON-serializable data."""
    out: dict[str, Any] = {"kind": node.kind}
    if node.kind in _BY_NAME:
        out["names"] = [_encode(n) if type(n) is float else n for n in node.names]
    if node.kind in _BY_NAME or node.kind in ("list", "tuple", "sequence"):
        out["items"] = [to_json(item) for item in node.items]
    elif node.kind != "none":
        out["value"] = _encode(node.value)
    if node.type:
        out["type"] = node.type
    if node.static:
        out["static"] = {name: to_json(value) for name, value in node.static}
    return out


def from_json(data: Any, count: int, depth: int = 0) -> Node:
    """Parses and checks the output of `to_json`. count: of arrays; depth: nesting depth so far.

    Raises:
      ValueError, KeyError, TypeError: the data is malformed.
    """
    if depth > 2 * _DEEPEST:  # the fields of a dataclass at that depth nest further
        raise ValueError(f"the pytree is nested more than {2 * _DEEPEST} levels deep")
    static = _of_type(dict, _of_type(dict, data).get("static", {}))
    fields = tuple([(n, from_json(v, 0, depth + 1)) for n, v in static.items()])
    kind = _of_type(str, data["kind"])
    if kind == "none":
        return Node(kind)
    if kind in _BY_NAME or kind in ("list", "tuple", "sequence"):
        rows = _of_type(list, data["items"])
        items = tuple([from_json(item, count, depth + 1) for item in rows])
        names = _names_heard(data, len(items)) if kind in _BY_NAME else ()
        return Node(kind, names, items, _of_type(str, data.get("type", "")), static=fields)
    if kind == "array":
        if type(data["value"]) is not int or not 0 <= data["value"] < count:
            raise ValueError(f"there is no array {brief(data['value'])}")
        return Node(kind, value=data["value"])
    if kind not in [p.__name__ for p in PLAIN]:
        raise ValueError(f"there is no kind {brief(kind)}")
    return Node(kind, value=_decode(kind, data["value"]))


def _of_type(kind: type, x: Any) -> Any:
    if not isinstance(x, kind):
        raise TypeError(f"{brief(x)} is not of type {kind.__name__}")
    return x


def _names_heard(data: dict[str, Any], count: int) -> tuple[Any, ...]:
    """The names of the entries; count: how many."""
    rows = _of_type(list, data["names"])
    names = tuple([_decode("float", n) if isinstance(n, dict) else n for n in rows])
    if len(names) != count:
        raise ValueError(
            f"{pluralize(len(names), 'name')} for {pluralize(count, 'entry', 'entries')}"
        )
    if not all([type(n) in _KEYS for n in names]) or len({str(n) for n in names}) < count:
        raise ValueError(f"{brief(names)} are not valid entry names")
    return names


def _encode(x: Any) -> Any:
    """A plain value as JSON: floats as strings, which represent all values exactly."""
    if type(x) is float:
        return {"float": repr(x)}
    if type(x) is complex:
        return [repr(x.real), repr(x.imag)]
    return base64.b64encode(x).decode() if type(x) is bytes else x


def _decode(kind: str, x: Any) -> Any:
    if kind == "float":
        return float(_of_type(str, x["float"]))
    if kind == "complex":
        return complex(*[float(_of_type(str, part)) for part in (x[0], x[1])])
    if kind == "bytes":
        return base64.b64decode(x, validate=True)
    if type(x).__name__ != kind:
        raise ValueError(f"{brief(x)} is not of type {kind}")
    return x
