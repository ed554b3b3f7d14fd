"""Nested containers of leaves, by jaxlib's C++ registry (a private instance).

Tuples, lists, dicts, named tuples, `None`, ordered and default dicts are known; classes are added
with `register_node` and `register_dataclass`.
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from jaxlib import _jax

from shardwise._src.base.pickles import read_by, reduced

registry = _jax.pytree.PyTreeRegistry(
    enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True
)
if TYPE_CHECKING:  # for programs of users: jaxlib has no stubs
    PyTreeDef = Any
else:
    PyTreeDef = _jax.pytree.PyTreeDef
flatten = registry.flatten
flatten_with_path = registry.flatten_with_path
DictKey = _jax.pytree.DictKey
SequenceKey = _jax.pytree.SequenceKey
GetAttrKey = _jax.pytree.GetAttrKey
FlattenedIndexKey = _jax.pytree.FlattenedIndexKey
treedef_tuple = _jax.pytree.treedef_tuple
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
flatten_one_level = registry.flatten_one_level


def _reduced(found: Any) -> Any:
    """How trees pickle: by the registry of whoever reads them; those of others as before."""
    return reduced("trees") if found is registry else found.__reduce__()


def _reduced_method(found: Any) -> Any:
    """Of a registry's methods, which functions that cloudpickle writes down refer to."""
    return getattr, (found.__self__, found.__name__)


read_by("trees", lambda: registry)
copyreg.pickle(_jax.pytree.PyTreeRegistry, _reduced)
copyreg.pickle(cast(Any, type(flatten)), _reduced_method)


def tree_of(node_data: Any, children: Any) -> Any:
    """The tree of a container, by what `PyTreeDef.node_data` says of it, over other trees."""
    return _jax.pytree.PyTreeDef.from_node_data_and_children(registry, node_data, children)


def register_node(
    kind: type, to_iter: Callable[..., Any], from_iter: Callable[..., Any],
    to_iter_with_keys: Callable[..., Any] | None = None,
) -> None:
    try:
        registry.register_node(kind, to_iter, from_iter, to_iter_with_keys)
    except ValueError as error:
        raise _registered_before(kind) from error


def register_dataclass(kind: type, data_fields: list[str], meta_fields: list[str]) -> None:
    try:
        registry.register_dataclass_node(kind, data_fields, meta_fields)
    except ValueError as error:
        raise _registered_before(kind) from error


def _registered_before(kind: type) -> ValueError:
    return ValueError(
        f"{kind.__module__}.{kind.__qualname__} is a container of pytrees already: a class can be "
        "registered once."
    )


def steps(node: Any) -> tuple[KeyEntry, ...]:
    """The keys of a container's entries. (jaxlib's own, for a named tuple, repeat the first.)"""
    parts = registry.flatten_one_level_with_keys(node)
    if parts is None:
        return ()
    if parts[1] is type(node) and hasattr(node, "_fields"):  # a named tuple
        return tuple(GetAttrKey(name) for name in node._fields)
    return tuple(key for key, _ in parts[0])


def _parts_of_ordered(d: OrderedDict[Any, Any]) -> tuple[Any, Any]:
    return tuple(d.values()), tuple(d.keys())


def _ordered(keys: Any, values: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(keys, values, strict=True))


def _parts_of_default(d: defaultdict[Any, Any]) -> tuple[Any, Any]:
    keys = tuple(sorted(d))
    return tuple(d[k] for k in keys), (d.default_factory, keys)


def _default(made_of: Any, values: Any) -> defaultdict[Any, Any]:
    factory, keys = made_of
    return defaultdict(factory, zip(keys, values, strict=True))


def _with_keys(parts: Callable[[Any], tuple[Any, Any]]) -> Callable[[Any], tuple[Any, Any]]:
    """As `parts`, which gives entries in the order of the keys at the end of the static part."""

    def pairs(d: Any) -> tuple[Any, Any]:
        values, made_of = parts(d)
        keys = made_of if isinstance(d, OrderedDict) else made_of[1]
        return tuple((DictKey(k), v) for k, v in zip(keys, values, strict=True)), made_of

    return pairs


register_node(OrderedDict, _parts_of_ordered, _ordered, _with_keys(_parts_of_ordered))
register_node(defaultdict, _parts_of_default, _default, _with_keys(_parts_of_default))
