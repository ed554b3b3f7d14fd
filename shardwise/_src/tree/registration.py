"""Classes as pytree containers, keys and paths, and `shardwise.tree` under its longer names.

A class is registered once, with functions that flatten and unflatten an object:

    @register_dataclass
    @dataclass
    class Layer:
        weight: Array
        activation: str = field(metadata=dict(static=True), default="relu")

Layers may then be arguments and results of `jit`, `grad`, `vmap` and all other transforms: their
data are leaves, their static fields are part of the structure (hashable, compared by `==`).
Registration applies to shardwise only, which ignores classes registered with other libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from shardwise._src.arguments.partial_container import Partial as Partial
from shardwise._src.runtime import pytree as _pytree
from shardwise._src.runtime.pytree import DictKey as DictKey
from shardwise._src.runtime.pytree import FlattenedIndexKey as FlattenedIndexKey
from shardwise._src.runtime.pytree import GetAttrKey as GetAttrKey
from shardwise._src.runtime.pytree import KeyEntry as KeyEntry
from shardwise._src.runtime.pytree import KeyPath as KeyPath
from shardwise._src.runtime.pytree import PyTreeDef as PyTreeDef
from shardwise._src.runtime.pytree import SequenceKey as SequenceKey
from shardwise._src.runtime.pytree import registry as default_registry
from shardwise._src.tree.functions import IsLeaf
from shardwise._src.tree.functions import all as tree_all
from shardwise._src.tree.functions import broadcast as tree_broadcast
from shardwise._src.tree.functions import flatten as tree_flatten
from shardwise._src.tree.functions import flatten_with_path as tree_flatten_with_path
from shardwise._src.tree.functions import leaves as tree_leaves
from shardwise._src.tree.functions import leaves_with_path as tree_leaves_with_path
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.tree.functions import map_with_path as tree_map_with_path
from shardwise._src.tree.functions import reduce as tree_reduce
from shardwise._src.tree.functions import reduce_associative as tree_reduce_associative
from shardwise._src.tree.functions import structure as tree_structure
from shardwise._src.tree.functions import transpose as tree_transpose
from shardwise._src.tree.functions import unflatten as tree_unflatten

# fmt: off
__all__ = [
    "tree_map", "tree_leaves", "tree_structure", "tree_flatten", "tree_unflatten", "tree_all",
    "tree_reduce", "tree_reduce_associative", "tree_transpose", "tree_broadcast",
    "tree_map_with_path", "tree_flatten_with_path", "tree_leaves_with_path", "PyTreeDef",
    "treedef_tuple", "treedef_children", "treedef_is_leaf", "all_leaves", "DictKey", "SequenceKey",
    "GetAttrKey", "FlattenedIndexKey", "KeyEntry", "KeyPath", "keystr", "register_pytree_node",
    "register_pytree_node_class", "register_pytree_with_keys", "register_pytree_with_keys_class",
    "register_dataclass", "register_static", "flatten_one_level", "flatten_one_level_with_keys",
    "is_tree_node", "default_registry", "Partial",
]
# fmt: on

T = TypeVar("T", bound=type)


# ------------------------------------------------------------------------------------ structures


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees with these structures."""
    return _pytree.treedef_tuple(default_registry, list(treedefs))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the entries of the outermost container; none for a leaf."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the tree is a leaf or a container without entries, with nothing below it."""
    return treedef.num_nodes == 1


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether each of these objects is itself a leaf."""
    leaf = tree_structure(0)
    return all(tree_structure(x, is_leaf) == leaf for x in iterable)


def is_tree_node(typ: type) -> bool:
    """Whether objects of this class are containers."""
    return default_registry.is_node(typ)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """(entries, static part) of a container; raises ValueError for a leaf."""
    parts = _pytree.flatten_one_level(tree)
    if parts is None:
        raise _leaf_error("flatten_one_level", tree)
    return parts


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[KeyEntry, Any]], Hashable]:
    """([(key, entry), ...], static part) of a container; raises ValueError for a leaf."""
    parts = _pytree.flatten_one_level(tree)
    if parts is None:
        raise _leaf_error("flatten_one_level_with_keys", tree)
    return tuple(zip(_pytree.steps(tree), parts[0], strict=True)), parts[1]


def _leaf_error(name: str, leaf: Any) -> ValueError:
    return ValueError(
        f"tree_util.{name}: expected a container, but objects of type {type(leaf).__name__} are "
        "leaves."
    )


_PLAIN = {DictKey: "key", SequenceKey: "idx", GetAttrKey: "name", FlattenedIndexKey: "key"}


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A path as a string: `['w'][0].scale`, or `w/0/scale` with `simple=True, separator="/"`."""
    if not simple:
        return separator.join(str(key) for key in keys)
    return separator.join(
        str(getattr(key, _PLAIN[type(key)]) if type(key) in _PLAIN else key) for key in keys
    )


# ---------------------------------------------------------------------------------- registration


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Registers a class as a container: `flatten_func(x)` returns (entries, static part).

    `unflatten_func(static, entries)` rebuilds the object, and must accept any objects as entries:
    transforms put their own there. `flatten_with_keys_func` returns (key, entry) pairs instead of
    entries, for paths. Raises ValueError for a class that is already registered.
    """
    _pytree.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """`register_pytree_node` by (key, entry) pairs; `flatten_func` is faster, without keys."""

    def entries(x: Any) -> tuple[Iterable[Any], Hashable]:
        pairs, static = flatten_with_keys(x)
        return [entry for _, entry in pairs], static

    _pytree.register_node(nodetype, flatten_func or entries, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: T) -> T:
    """Registers a class by its methods `tree_flatten(self)` and `tree_unflatten(cls, static, xs)`.

    For use as a decorator; `tree_unflatten` is a class method.
    """
    _require(cls, "register_pytree_node_class", "tree_flatten", "tree_unflatten")
    made: Any = cls
    register_pytree_node(cls, made.tree_flatten, made.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: T) -> T:
    """Registers a class by its methods `tree_flatten_with_keys` and `tree_unflatten`.

    Its `tree_flatten`, if present, is used where no paths are needed.
    """
    name = "register_pytree_with_keys_class"
    _require(cls, name, "tree_flatten_with_keys", "tree_unflatten")
    made: Any = cls
    plain = getattr(cls, "tree_flatten", None)
    register_pytree_with_keys(cls, made.tree_flatten_with_keys, made.tree_unflatten, plain)
    return cls


def _require(cls: type, what: str, *methods: str) -> None:
    for method in methods:
        if not hasattr(cls, method):
            needs = " and ".join(methods)
            raise AttributeError(
                f"tree_util.{what}: {cls.__name__} has no {method}; it needs the methods {needs}."
            )


def register_static(cls: T) -> T:
    """Registers a class as containers without entries: part of the structure.

    Objects must be hashable and compare by `==`: a jitted function is recompiled for others.
    """

    def parts(x: Any) -> tuple[tuple[()], Hashable]:
        return (), x

    register_pytree_node(cls, parts, lambda x, _: x, parts)
    return cls


def register_dataclass(
    nodetype: T,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> T:
    """Registers a class with these fields as a container; usable as a decorator.

    `data_fields` are entries, `meta_fields` (hashable) the static part. For a dataclass both may be
    omitted: fields with `metadata={"static": True}` are then static. `drop_fields` are in neither;
    their defaults are restored. They must contain the fields that `__init__` does not take.
    """
    if (data_fields is None) != (meta_fields is None):
        given, missing = ("data_fields", "meta_fields")[:: 1 if meta_fields is None else -1]
        raise TypeError(
            f"tree_util.register_dataclass: got {given} without {missing}; list all fields in "
            "the two, or leave both out for a dataclass."
        )
    made: Any = nodetype
    if dataclasses.is_dataclass(made):
        fields = [f for f in dataclasses.fields(made) if f.name not in drop_fields]
        if data_fields is None or meta_fields is None:
            data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
            meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
        _check_fields(nodetype, {f.name for f in fields if f.init}, data_fields, meta_fields)
    elif data_fields is None or meta_fields is None:
        raise TypeError(
            f"tree_util.register_dataclass: {nodetype.__name__} is not a dataclass, so its fields "
            "are unknown: pass data_fields and meta_fields."
        )
    both = sorted({*data_fields} & {*meta_fields})
    if both:
        raise ValueError(
            f"tree_util.register_dataclass: fields of {nodetype.__name__} are both in data_fields "
            f"and in meta_fields: {', '.join(both)}."
        )
    _pytree.register_dataclass(nodetype, list(data_fields), list(meta_fields))
    return nodetype


def _check_fields(
    cls: type, expected: set[str], data_fields: Sequence[str], meta_fields: Sequence[str]
) -> None:
    given = {*data_fields, *meta_fields}
    if missing := sorted(expected - given):
        raise ValueError(
            f"tree_util.register_dataclass: fields of {cls.__name__} are neither in data_fields "
            f"nor in meta_fields: {', '.join(missing)}. List those to be rebuilt from their "
            "defaults in drop_fields."
        )
    if unknown := sorted(given - expected):
        raise ValueError(
            f"tree_util.register_dataclass: __init__ of {cls.__name__} does not accept the fields: "
            f"{', '.join(unknown)}. Fields that it does not take belong in drop_fields."
        )


# --------------------------------------------------------------------------------------- Partial
