"""Pytrees at the border of the transforms: flattening, prefixes, paths for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.core.trees import leaf_paths as leaf_paths
from shardwise.core.trees import path_text as path_text
from shardwise.core.trees import tree_difference as tree_difference
from shardwise.core.trees import tree_text as tree_text
from shardwise.runtime.pytree import flatten, registry
from shardwise.types.frozen import counted, listed


def leaf_name(tree: Any, i: int) -> str:
    """The path of leaf `i` of a tree of positional arguments: `args[0]['w']`."""
    return "args" + leaf_paths(tree.unflatten(range(tree.num_leaves)))[i]


def argument_names(args: tuple, kwargs: dict, parameters: Sequence[str]) -> list[str]:
    """A name for every leaf of a call's arguments: `params['w']`."""
    names = []
    for i, arg in enumerate(args):
        base = parameters[i] if i < len(parameters) else f"args[{i}]"
        names += [base + path for path in leaf_paths(arg)]
    for key in sorted(kwargs):
        names += [key + path for path in leaf_paths(kwargs[key])]
    return names


def _difference(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool], path: str) -> str:
    """Where and how `prefix` is not a prefix of `tree`; empty where it is."""
    if is_leaf(prefix) or (mine := registry.flatten_one_level(prefix)) is None:
        return ""
    theirs = registry.flatten_one_level(tree)
    where = f"at {path}" if path else "at the top"
    if theirs is None or type(prefix) is not type(tree):
        value = "single" if theirs is None else f"a {type(tree).__name__}"
        return f"{where} it has a {type(prefix).__name__}, but the value is {value}"
    (children, keys), (values, names) = mine, theirs
    if isinstance(prefix, dict) and keys != names:
        return f"{where} it has the keys {listed(keys)}, but the value has {listed(names)}"
    if len(children) != len(values):
        entries = counted(len(children), "entry", "entries")
        return f"{where} it has {entries}, but the value has {len(values)}"
    steps = keys if isinstance(prefix, dict) else range(len(children))
    for step, child, value in zip(steps, children, values, strict=True):
        found = _difference(child, value, is_leaf, f"{path}[{step!r}]")
        if found:
            return found
    return "" if keys == names else f"{where} the static fields of the two differ"


def broadcast_prefix(
    prefix: Any, tree: Any, what: str, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any]:
    """One entry of `prefix` for every leaf of `tree`.

    A leaf of the prefix stands for the whole subtree at its place. `None` is a leaf of the prefix.
    """

    def leafish(x: Any) -> bool:
        return x is None or (is_leaf is not None and is_leaf(x))

    leaves, treedef = flatten(prefix, leafish)
    try:
        subtrees = treedef.flatten_up_to(tree)
    except ValueError as error:
        where = _difference(prefix, tree, leafish, "") or str(error)
        raise ValueError(
            f"{what} must be a prefix of the tree of values that it describes, with one entry for "
            f"each value or for a whole subtree: {where}."
        ) from None
    out: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        out += [leaf] * len(flatten(subtree)[0])
    return out
