"""Nested containers of leaves, by jaxlib's C++ registry (a private instance).

Tuples, lists, dicts, named tuples, `None`, ordered and default dicts are known; classes are added
with `register_node` and `register_dataclass`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from jaxlib import _jax

registry = _jax.pytree.PyTreeRegistry(
    enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True
)
PyTreeDef = _jax.pytree.PyTreeDef
flatten = registry.flatten
flatten_with_path = registry.flatten_with_path
DictKey = _jax.pytree.DictKey
SequenceKey = _jax.pytree.SequenceKey
GetAttrKey = _jax.pytree.GetAttrKey
FlattenedIndexKey = _jax.pytree.FlattenedIndexKey
treedef_tuple = _jax.pytree.treedef_tuple


def register_node(
    kind: type, to_iter: Callable[..., Any], from_iter: Callable[..., Any],
    to_iter_with_keys: Callable[..., Any] | None = None,
) -> None:
    registry.register_node(kind, to_iter, from_iter, to_iter_with_keys)


def register_dataclass(kind: type, data_fields: list[str], meta_fields: list[str]) -> None:
    registry.register_dataclass_node(kind, data_fields, meta_fields)


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


registry.register_node(OrderedDict, _parts_of_ordered, _ordered)
registry.register_node(defaultdict, _parts_of_default, _default)
