"""Pytree prefixes: `in_axes`, shardings and similar arguments, one entry for an entire subtree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.messages.argument_names import Parameters
from shardwise._src.messages.formatting import pluralize
from shardwise._src.messages.tree_paths import prefix_difference
from shardwise._src.runtime.pytree import flatten


def broadcast_prefix(
    prefix: Any, tree: Any, what: str, is_leaf: Callable[[Any], bool] | None = None, root: str = "x"
) -> list[Any]:
    """One entry of `prefix` for every leaf of `tree`.

    A leaf of the prefix applies to the entire subtree at its position. `None` is a leaf of the
    prefix.
    what, root: for messages: the prefix, its own name last; the start of paths into `tree`.
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
            f"{what} must be a pytree prefix of the values that it describes, with one entry for "
            f"each value or for a whole subtree: {where}."
        ) from None
    out: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        out += [leaf] * len(flatten(subtree)[0])
    return out


def broadcast_to_arguments(
    prefix: Any,
    args: tuple,
    what: str,
    parameters: Parameters,
    is_leaf: Callable[[Any], bool] | None = None,
) -> list[Any]:
    """`broadcast_prefix` for the positional arguments of a call, which messages name.

    A tuple has an entry for each argument; any other value applies to all of them.
    """
    if not isinstance(prefix, tuple) or (is_leaf is not None and is_leaf(prefix)):
        return broadcast_prefix(prefix, args, what, is_leaf, "args")
    if len(prefix) != len(args):
        raise ValueError(_other_count(what, len(prefix), len(args), parameters))
    out: list[Any] = []
    for i, (entry, arg) in enumerate(zip(prefix, args, strict=True)):
        out += broadcast_prefix(entry, arg, what, is_leaf, parameters.at(i))
    return out


def _other_count(what: str, count: int, given: int, parameters: Parameters) -> str:
    known = map(parameters.at, range(given))
    names = f" ({', '.join(known)})" if given and parameters.kinds is not None else ""
    return (
        f"{what} has {pluralize(count, 'entry', 'entries')}, but the call has "
        f"{pluralize(given, 'positional argument')}{names}; a tuple must have one entry for "
        "each. Arguments passed by keyword have none."
    )
