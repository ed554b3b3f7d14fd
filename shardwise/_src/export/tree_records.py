"""Pytrees of arguments and results in files: containers by kind, custom ones by a name."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from shardwise._src.export.tables import Damaged
from shardwise._src.export.versions import WHERE
from shardwise._src.runtime.pytree import flatten, tree_of

Kind = TypeVar("Kind", bound=type)
LEAF, NONE, TUPLE, LIST, DICT, CUSTOM = range(6)
_PLAIN = {NoneType: NONE, tuple: TUPLE, list: LIST, dict: DICT}


class Registered(NamedTuple):
    """How a class of custom containers is serialized, and rebuilt from its children."""

    kind: type
    name: str
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]
    build: Callable[[Any, Any], Any] | None


_by_class: dict[type, Registered] = {}
_by_name: dict[str, Registered] = {}


def register_pytree_node_serialization(
    nodetype: Kind,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Any], Any] | None = None,
) -> Kind:
    """Registers how a class of pytree containers is serialized in files of exported functions.

    Args:
      nodetype: the class, already registered with `shardwise.tree_util`.
      serialized_name: its name in files.
      serialize_auxdata: converts a container's static part to bytes; deserialize_auxdata reads it.
      from_children: builds a container from its static part and its children; by default as
        registered for the class.

    Returns:
      The class, so that this can be used as a decorator.

    Raises:
      ValueError: the class or the name is already registered.
    """
    if nodetype in _by_class:
        raise ValueError(
            f"{WHERE}: {nodetype!r} is already registered, as {_by_class[nodetype].name!r}."
        )
    if serialized_name in _by_name:
        raise ValueError(
            f"{WHERE}: the name {serialized_name!r} is taken by {_by_name[serialized_name].kind!r}."
        )
    rest = serialize_auxdata, deserialize_auxdata, from_children
    row = Registered(nodetype, serialized_name, *rest)
    _by_class[nodetype] = _by_name[serialized_name] = row
    return nodetype


def register_namedtuple_serialization(nodetype: Kind, *, serialized_name: str) -> Kind:
    """Registers how a named tuple is serialized in exported functions: by a name and its fields.

    Raises:
      ValueError: the class is not a named tuple; and as `register_pytree_node_serialization`.
    """
    names = getattr(nodetype, "_fields", None)
    if not issubclass(nodetype, tuple) or names is None:
        raise ValueError(f"{WHERE}: {nodetype!r} is not a namedtuple class.")

    make: Any = nodetype
    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(names).encode(),
        deserialize_auxdata=json.loads,
        from_children=lambda fields, children: make(**dict(zip(fields, children, strict=True))),
    )


def written(tree: Any) -> dict[str, Any]:
    """A pytree structure as the fields of its table."""
    data, children = tree.node_data(), tree.children()
    if data is None:
        return {"kind": LEAF}
    kind, static = data
    found: dict[str, Any] = {"children": [written(c) for c in children] if children else None}
    if kind in _PLAIN:
        found["kind"] = _PLAIN[kind]
        if kind is dict:
            found["children_names"] = list(map(_key, static)) if children else None
        return found
    row = _by_class.get(kind)
    if row is None:
        raise ValueError(
            f"{WHERE}: a pytree with a {kind.__qualname__} cannot be serialized: its type is not "
            "registered for serialization. Register it with "
            "`shardwise.export.register_pytree_node_serialization` or "
            "`register_namedtuple_serialization`."
        )
    aux = row.to_bytes(static)
    if not isinstance(aux, bytes | bytearray):
        raise ValueError(
            f"{WHERE}: serialize_auxdata of {kind.__qualname__} must return bytes; got {aux!r}."
        )
    return {**found, "kind": CUSTOM, "custom_name": row.name, "custom_auxdata": bytes(aux)}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"{WHERE}: a dict with the key {key!r} cannot be serialized: only string keys are "
            "supported."
        )
    return key


register_pytree_node_serialization(
    OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=lambda keys: json.dumps([*map(_key, keys)]).encode(),
    deserialize_auxdata=lambda data: tuple(json.loads(data)),
)

_LEAF = flatten(0)[1]


def read(fields: dict[str, Any] | None, leaves: int, what: str) -> Any:
    """The pytree structure of a table, which must have the given number of leaves."""
    if fields is None:
        raise Damaged(f"it has no {what}")
    found = _node(fields, what)
    if found.num_leaves != leaves:
        raise Damaged(f"its {what} has {found.num_leaves} leaves for {leaves} types")
    return found


def _node(fields: dict[str, Any], what: str) -> Any:
    kind = fields["kind"] or 0
    if kind == LEAF:
        return _LEAF
    children = [_node(c, what) for c in fields["children"] or ()]
    if kind == NONE:
        return flatten(None)[1]
    if kind in (TUPLE, LIST):
        container: Any = () if kind == TUPLE else []
        return tree_of(flatten(container)[1].node_data(), children)
    if kind == DICT:
        names = fields["children_names"] or []
        if len(names) != len(children) or sorted({*names}) != names:
            raise Damaged(f"its {what} has a dict with the keys {names} for {len(children)} values")
        return tree_of((dict, names), children)
    row = _by_name.get(fields["custom_name"])
    if kind != CUSTOM or row is None:
        raise Damaged(
            f"its {what} has a container {fields['custom_name']!r} of kind {kind}, which is not "
            "registered here (`shardwise.export.register_pytree_node_serialization`)"
        )
    static = row.from_bytes(fields["custom_auxdata"] or b"")
    if row.build is None:
        return tree_of((row.kind, static), children)
    holes = [c.unflatten([0] * c.num_leaves) for c in children]
    return flatten(row.build(static, holes))[1]
