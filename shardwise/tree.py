"""Pytrees: nested containers of leaves, mapped and flattened.

Tuples, lists, dicts, named tuples and `None` are containers; other objects are leaves, unless
their class was registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.runtime import pytree as _pytree

register_pytree_node = _pytree.register_node


def map(f: Callable, tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`f` on each leaf of `tree`, with the leaves at the same places in `rest`."""
    leaves, treedef = _pytree.flatten(tree, is_leaf)
    others = [treedef.flatten_up_to(r) for r in rest]
    return treedef.unflatten([f(*xs) for xs in zip(leaves, *others, strict=True)])


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """All leaves, from left to right; dicts in the order of their keys."""
    return _pytree.flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree without its leaves."""
    return _pytree.flatten(tree, is_leaf)[1]


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """(leaves, structure)."""
    return _pytree.flatten(tree, is_leaf)


def unflatten(treedef: Any, leaves: Any) -> Any:
    """The tree of a structure and its leaves."""
    return treedef.unflatten(leaves)
