"""Pytrees in messages: paths of leaves, and descriptions of how two pytrees differ.

For example:

    carry['w'] is a tuple of 2 in init and a list of 2 in the result; only init has carry['b']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from shardwise._src.messages.formatting import brief
from shardwise._src.runtime.pytree import flatten_one_level, flatten_with_path, steps

T = TypeVar("T")
_NUMBER = re.compile(r"\d+")
SHOWN = 5  # paths in a message


def path_text(path: Sequence[Any]) -> str:
    """`['w'][0].x`: the steps to a leaf."""
    return "".join(str(step) for step in path)


def tree_text(tree: Any) -> str:
    """The text of a treedef: `{'a': *, 'b': (*, None)}`."""
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


def leaf_paths(tree: Any) -> list[str]:
    """The path of every leaf, in flattening order."""
    return [path_text(path) for path, _ in flatten_with_path(tree)[0]]


def paths_in(root: str, tree: Any) -> list[str]:
    """The paths of all leaves of a treedef, beginning with `root`."""
    try:
        example = tree.unflatten(range(tree.num_leaves))
    except Exception:  # a class whose constructor checks its leaves
        return [f"leaf {i} of {root}" for i in range(tree.num_leaves)]
    return [root + path for path in leaf_paths(example)]


def path_in(root: str, tree: Any, i: int) -> str:
    """`xs['a'][0]`: the path of leaf `i`."""
    return paths_in(root, tree)[i]


def similar(rows: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> list[tuple[str, list[T]]]:
    """Groups rows with equal keys, whose first item is a path that may differ in numbers.

    Returns the path of each group, such as `['layers'][*]['w']`, with its rows.
    """
    alike: dict[tuple[Any, ...], list[T]] = {}
    for row in rows:
        path, *others = key(row)
        alike.setdefault((_NUMBER.sub("*", path), *others), []).append(row)
    return [(k[0] if len(same) > 1 else key(same[0])[0], same) for k, same in alike.items()]


def tree_difference(a_name: str, a: Any, b_name: str, b: Any, root: str) -> str:
    """A description of how two treedefs differ. root: the prefix of their paths."""
    one, other = (t.unflatten(range(t.num_leaves)) for t in (a, b))
    return _in_words(a_name, b_name, _differences(one, other, root, None))


def prefix_difference(
    a_name: str,
    prefix: Any,
    b_name: str,
    tree: Any,
    root: str,
    is_leaf: Callable[[Any], bool] | None = None,
) -> str:
    """A description of why `prefix` is not a prefix of `tree`; empty if it is one.

    is_leaf: whether a node counts as a leaf of `prefix`, in addition to the usual leaves.
    """
    rows = _differences(prefix, tree, root, is_leaf or (lambda _: False))
    return _in_words(a_name, b_name, rows)


def _in_words(a_name: str, b_name: str, rows: Iterator[_Row]) -> str:
    unlike: list[str] = []
    only: dict[str, list[str]] = {a_name: [], b_name: []}
    for path, x, y in rows:
        if x is None or y is None:
            only[b_name if x is None else a_name].append(path)
        else:
            unlike.append(f"{path or 'the root'} is {x} in {a_name} and {y} in {b_name}")
    parts = _first(unlike)
    alone = [f"only {_has(n)} {', '.join(_first(found))}" for n, found in only.items() if found]
    return "; ".join([*parts, " and ".join(alone)] if alone else parts)


def _has(name: str) -> str:
    return f"{name} {'have' if name.startswith('the ') and name.endswith('s') else 'has'}"


def _first(rows: list[str]) -> list[str]:
    return rows if len(rows) <= SHOWN else [*rows[:SHOWN], f"{len(rows) - SHOWN} more"]


# Path, description of the first tree's node there, and of the second's; None if absent.
_Row = tuple[str, str | None, str | None]


def _differences(a: Any, b: Any, path: str, ends: Callable[[Any], bool] | None) -> Iterator[_Row]:
    """ends: if `a` is a prefix, whether a node ends it; None if the two must be equal."""
    if ends is not None and ends(a):
        return
    mine, theirs = flatten_one_level(a), flatten_one_level(b)
    if mine is None and (theirs is None or ends is not None):
        return
    if mine is None or theirs is None or type(a) is not type(b):
        yield path, _kind(a), _kind(b)
        return
    first, second = _entries(a, mine), _entries(b, theirs)
    found = False
    for step in [*first, *(s for s in second if s not in first)]:
        if step not in second:
            rows: list[_Row] = [(path + step, "", None)]
        elif step not in first:
            rows = [(path + step, None, "")]
        else:
            rows = list(_differences(first[step], second[step], path + step, ends))
        found = found or bool(rows)
        yield from rows
    if not found and mine[1] != theirs[1]:
        yield path, f"{_a(a)} with {brief(mine[1])}", f"one with {brief(theirs[1])}"


def _entries(x: Any, parts: tuple[Iterable[Any], Any]) -> dict[str, Any]:
    entries = list(parts[0])
    names = [str(s) for s in steps(x)] or [f"[{i}]" for i in range(len(entries))]
    return dict(zip(names, entries, strict=True))


def _kind(x: Any) -> str:
    if x is None:
        return "None"
    parts, kind = flatten_one_level(x), type(x).__name__
    if parts is None:
        return "a leaf"
    if not isinstance(x, list | tuple | dict):
        return _a(x)
    count = len(list(parts[0]))
    return f"{_a(x)} of {count}" if count else f"an empty {kind}"


def _a(x: Any) -> str:
    name = type(x).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
