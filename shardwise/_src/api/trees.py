"""Pytrees at the border of the transforms: flattening, prefixes, paths for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.messages.trees import leaf_paths as leaf_paths
from shardwise._src.messages.trees import path_in as path_in
from shardwise._src.messages.trees import path_text as path_text
from shardwise._src.messages.trees import prefix_difference
from shardwise._src.messages.trees import tree_difference as tree_difference
from shardwise._src.messages.trees import tree_text as tree_text
from shardwise._src.messages.words import counted
from shardwise._src.runtime.pytree import flatten, flatten_with_path


def leaf_name(tree: Any, i: int, roots: Sequence[str] = ()) -> str:
    """The path of leaf `i` of a tree of positional arguments: `params['w']`, or `args[0]['w']`.

    roots: names of the first arguments, as far as they are known.
    """
    path = flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0][i][0]
    n = path[0].idx
    return f"{roots[n] if n < len(roots) else f'args[{n}]'}{path_text(path[1:])}"


def argument_names(args: tuple, kwargs: dict, parameters: Sequence[str]) -> list[str]:
    """A name for every leaf of a call's arguments: `params['w']`."""
    names = []
    for i, arg in enumerate(args):
        base = parameters[i] if i < len(parameters) else f"args[{i}]"
        names += [base + path for path in leaf_paths(arg)]
    for key in sorted(kwargs):
        names += [key + path for path in leaf_paths(kwargs[key])]
    return names


def broadcast_prefix(
    prefix: Any, tree: Any, what: str, is_leaf: Callable[[Any], bool] | None = None,
    root: str = "x",
) -> list[Any]:
    """One entry of `prefix` for every leaf of `tree`.

    A leaf of the prefix stands for the whole subtree at its place. `None` is a leaf of the prefix.
    what, root: for messages: the prefix, its own name last; what paths into `tree` begin with.
    """

    def leafish(x: Any) -> bool:
        return x is None or (is_leaf is not None and is_leaf(x))

    leaves, treedef = flatten(prefix, leafish)
    try:
        subtrees = treedef.flatten_up_to(tree)
    except ValueError as error:
        own = what.rpartition(" ")[2]
        where = prefix_difference(own, prefix, "the value", tree, root, leafish) or str(error)
        raise ValueError(
            f"{what} must be a prefix of the tree of values that it describes, with one entry for "
            f"each value or for a whole subtree: {where}."
        ) from None
    out: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        out += [leaf] * len(flatten(subtree)[0])
    return out


def broadcast_to_arguments(
    prefix: Any, args: tuple, what: str, parameters: Sequence[str],
    is_leaf: Callable[[Any], bool] | None = None,
) -> list[Any]:
    """`broadcast_prefix` for the positional arguments of a call, which messages name.

    A tuple has an entry for each argument; anything else is for all of them.
    """
    if not isinstance(prefix, tuple) or (is_leaf is not None and is_leaf(prefix)):
        return broadcast_prefix(prefix, args, what, is_leaf, "args")
    if len(prefix) != len(args):
        raise ValueError(_other_count(what, len(prefix), len(args), parameters))
    out: list[Any] = []
    for i, (entry, arg) in enumerate(zip(prefix, args, strict=True)):
        root = parameters[i] if i < len(parameters) else f"args[{i}]"
        out += broadcast_prefix(entry, arg, what, is_leaf, root)
    return out


def _other_count(what: str, count: int, given: int, parameters: Sequence[str]) -> str:
    names = f" ({', '.join(parameters[:given])})" if 0 < given <= len(parameters) else ""
    return (
        f"{what} has {counted(count, 'entry', 'entries')}, but the call has "
        f"{counted(given, 'positional argument')}{names}; a tuple has one entry for each. "
        "Arguments that come by name have none."
    )
