"""Pytrees: mapping, flattening and unflattening nested containers of leaves.

Tuples, lists, dicts, named tuples and `None` are containers; other objects are leaves, unless
their class was registered (`shardwise.tree_util`). Names and arguments are those of `jax.tree`.

    tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)
    tree.leaves_with_path({"w": [1, 2]})    # [((DictKey('w'), SequenceKey(0)), 1), ...]
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths, prefix_difference, tree_text
from shardwise._src.runtime import pytree as _pytree
from shardwise._src.types.annotations import T

register_pytree_node = _pytree.register_node

IsLeaf = Callable[[Any], bool] | None

_UNSET: Any = object()


# ------------------------------------------------------------------------- leaves and structure


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """All leaves, from left to right; dicts in the order of their sorted keys.

    If `is_leaf` returns True for a container, it counts as one leaf.
    """
    return _pytree.flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> _pytree.PyTreeDef:
    """The tree structure, without leaves."""
    return _pytree.flatten(tree, is_leaf)[1]


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], _pytree.PyTreeDef]:
    """(leaves, structure)."""
    return _pytree.flatten(tree, is_leaf)


def unflatten(treedef: _pytree.PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with the given structure and leaves."""
    return treedef.unflatten(leaves)


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[_pytree.KeyPath, Any]], _pytree.PyTreeDef]:
    """([(path, leaf), ...], structure); a path is a tuple of keys, formatted by `keystr`.

    With `is_leaf_takes_path`, `is_leaf` is called with the path and the subtree.
    """
    if is_leaf is None or is_leaf_takes_path:
        return _pytree.flatten_with_path(tree, is_leaf)
    return _pytree.flatten_with_path(tree, lambda _, subtree: is_leaf(subtree))


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[_pytree.KeyPath, Any]]:
    """[(path, leaf), ...]; see `flatten_with_path`."""
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


# -------------------------------------------------------------------------------------- mapping


@hides_frames
def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """`f` on each leaf of `tree`, with the corresponding subtrees of each tree of `rest`.

    The trees of `rest` have the nodes of `tree`, and may have subtrees at its leaves. Raises
    ValueError with the path of a mismatch.
    """
    if not callable(f):
        raise TypeError(f"tree.map takes a function as its first argument; got {short_repr(f)}.")
    leaves, treedef = _pytree.flatten(tree, is_leaf)
    others = [_up_to("tree.map", treedef, tree, r, is_leaf, i) for i, r in enumerate(rest)]
    return treedef.unflatten([f(*xs) for xs in zip(leaves, *others, strict=True)])


@hides_frames
def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `map`, but passes the leaf's path first: `f(path, leaf, *others)`."""
    found, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    plain = None if is_leaf_takes_path else is_leaf
    what = "tree.map_with_path"
    others = [_up_to(what, treedef, tree, r, plain, i) for i, r in enumerate(rest)]
    paths, leaves = zip(*found, strict=True) if found else ((), ())
    rows = zip(paths, leaves, *others, strict=True)
    return treedef.unflatten([f(*row) for row in rows])


@hides_frames
def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """`full_tree` with each leaf replaced by the leaf of `prefix_tree` at or above its path.

    `is_leaf` is for `prefix_tree` only. Raises ValueError if `prefix_tree` is not a prefix.
    """
    what = "tree.broadcast"
    prefix, treedef = _pytree.flatten(prefix_tree, is_leaf)
    subtrees = _up_to(what, treedef, prefix_tree, full_tree, is_leaf)
    counts = [_pytree.flatten(subtree)[1].num_leaves for subtree in subtrees]
    repeated = [x for x, n in zip(prefix, counts, strict=True) for _ in range(n)]
    return structure(full_tree).unflatten(repeated)


def transpose(
    outer_treedef: _pytree.PyTreeDef,
    inner_treedef: _pytree.PyTreeDef | None,
    pytree_to_transpose: Any,
) -> Any:
    """Transposes a tree of trees: a list of pairs becomes a pair of lists.

    `pytree_to_transpose` has the structure `outer_treedef`, with a tree of the structure
    `inner_treedef` at each of its leaves, by default the structure of the first. Raises TypeError
    otherwise.
    """
    places = outer_treedef.unflatten(range(outer_treedef.num_leaves))
    try:
        subtrees = outer_treedef.flatten_up_to(pytree_to_transpose)
    except ValueError as error:
        if found := _transposed_leaves(outer_treedef, inner_treedef, pytree_to_transpose):
            return found[0]
        where = prefix_difference("outer_treedef", places, "the tree", pytree_to_transpose, "")
        if not where:
            raise
        raise TypeError(
            f"tree.transpose: outer_treedef is not the outer part of the tree: {where}."
        ) from error
    if inner_treedef is None and not subtrees:
        raise ValueError(
            "tree.transpose: outer_treedef has no leaves, so the inner structure cannot be "
            "inferred from the tree: pass inner_treedef."
        )
    inner: Any = structure(subtrees[0]) if inner_treedef is None else inner_treedef
    rows = []
    for i, subtree in enumerate(subtrees):
        row, treedef = _pytree.flatten(subtree)
        if treedef != inner:
            raise TypeError(
                f"tree.transpose: the subtree {_at(leaf_paths(places)[i])} has the structure "
                f"{tree_text(treedef)}, but the inner structure is {tree_text(inner)}."
            )
        rows.append(row)
    columns = zip(*rows, strict=True) if rows else [()] * inner.num_leaves
    return inner.unflatten([outer_treedef.unflatten(column) for column in columns])


def _transposed_leaves(outer: Any, inner: Any, tree: Any) -> tuple[Any] | None:
    """The transposed tree if the entries of registered containers are leaves of their contents."""
    if inner is None:
        return None
    found, treedef = _pytree.flatten(tree)
    n, m = outer.num_leaves, inner.num_leaves
    whole = outer.unflatten([inner.unflatten(range(m)) for _ in range(n)])
    if treedef != _pytree.flatten(whole)[1]:
        return None
    return (inner.unflatten([outer.unflatten(found[i::m]) for i in range(m)]),)


# ------------------------------------------------------------------------------------- reducing


@hides_frames
def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


@hides_frames
def reduce(
    function: Callable[[T, Any], T], tree: Any, initializer: Any = _UNSET, is_leaf: IsLeaf = None
) -> T:
    """`function(function(a, b), c)` over the leaves, starting from `initializer` if given.

    Raises TypeError for a tree without leaves and no `initializer`.
    """
    if initializer is not _UNSET:
        return functools.reduce(function, leaves(tree, is_leaf), initializer)
    found = leaves(tree, is_leaf)
    if not found:
        raise TypeError(
            "tree.reduce: the tree has no leaves; pass an initializer, which is returned in that "
            "case."
        )
    return functools.reduce(function, found)


@hides_frames
def reduce_associative(
    operation: Callable[[T, T], T], tree: Any, *, identity: Any = _UNSET, is_leaf: IsLeaf = None
) -> T:
    """The leaves combined by an associative operation, in a balanced tree of calls.

    `n` leaves take about `log2(n)` sequential steps, where `reduce` takes `n - 1`. `identity` is
    the result for a tree without leaves; by default that is a TypeError.
    """
    found = leaves(tree, is_leaf)
    if not found and identity is _UNSET:
        raise TypeError(
            "tree.reduce_associative: the tree has no leaves; pass the identity, which is returned "
            "in that case."
        )

    def combined(lo: int, hi: int) -> Any:
        if hi - lo == 1:
            return found[lo]
        middle = (lo + hi) // 2
        return operation(combined(lo, middle), combined(middle, hi))

    return combined(0, len(found)) if found else identity


def static(**kwargs: Any) -> Any:
    """A dataclass field that `register_dataclass` treats as part of the structure, not a leaf.

    The arguments are those of `dataclasses.field`.
    """
    metadata = {"static": True, **(kwargs.pop("metadata", None) or {})}
    return dataclasses.field(**kwargs, metadata=metadata)


# ----------------------------------------------------------------------- structure mismatches


def _up_to(
    what: str, treedef: Any, tree: Any, other: Any, is_leaf: IsLeaf, i: int | None = None
) -> list[Any]:
    """The subtrees of `other` at the leaves of `tree`; `i` is its index among further trees."""
    try:
        return treedef.flatten_up_to(other)
    except ValueError as error:
        names = ("prefix_tree", "full_tree") if i is None else ("tree", f"rest[{i}]")
        where = prefix_difference(names[0], tree, names[1], other, "", is_leaf)
        if not where:  # raised by a registered class
            raise
        hint = ""
        if f"is None in {names[0]} " in where:
            hint = " For None as a leaf, pass is_leaf=lambda x: x is None."
        raise ValueError(
            f"{what}: {names[0]} is not a prefix of {names[1]}: {where}.{hint}"
        ) from error


def _at(path: str) -> str:
    return f"at {path}" if path else "at the top"
