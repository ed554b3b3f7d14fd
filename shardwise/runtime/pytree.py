"""Nested containers of leaves, by jaxlib's C++ registry (a private instance).

Tuples, lists, dicts, named tuples, `None`, ordered and default dicts are known; classes are added
with `register_node` and `register_dataclass`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Callable, Iterable

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
    kind: type, to_iter: Callable, from_iter: Callable, to_iter_with_keys: Callable | None = None
) -> None:
    registry.register_node(kind, to_iter, from_iter, to_iter_with_keys)


def register_dataclass(kind: type, data_fields: list[str], meta_fields: list[str]) -> None:
    registry.register_dataclass_node(kind, data_fields, meta_fields)


registry.register_node(
    OrderedDict,
    lambda d: (tuple(d.values()), tuple(d.keys())),
    lambda keys, values: OrderedDict(zip(keys, values, strict=True)),
)
registry.register_node(
    defaultdict,
    lambda d: (tuple(d[k] for k in sorted(d)), (d.default_factory, tuple(sorted(d)))),
    lambda meta, values: defaultdict(meta[0], zip(meta[1], values, strict=True)),
)
