"""Values of dtype `float0`, as tangents of integers are: no program holds them, but trees can.

    apart(leaves, tree)  ->  the others, and a tree that has the trivial ones in it, as zeros
    places(tree)         ->  where the others are, in such a tree
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.runtime.pytree import PyTreeDef, flatten, register_node
from shardwise._src.types.dtypes import float0

_HOST = (np.ndarray, np.generic)


class _Zeros:
    """A container of nothing: a tree makes trivial values of this shape of it."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape


def _made(shape: tuple[int, ...], _: Any) -> np.ndarray:
    return np.zeros(shape, float0)


register_node(_Zeros, lambda zeros: ((), zeros.shape), _made)


def is_trivial(x: Any) -> bool:
    return isinstance(x, _HOST) and x.dtype.kind == "V" and x.dtype == float0


def apart(leaves: Sequence[Any], tree: PyTreeDef) -> tuple[Sequence[Any], PyTreeDef]:
    """The leaves that are not trivial, and the tree that they are the only leaves of."""
    if not any(map(is_trivial, leaves)):
        return leaves, tree
    return flatten(tree.unflatten([_Zeros(x.shape) if is_trivial(x) else x for x in leaves]))


def places(tree: PyTreeDef) -> Any:
    """The tree with positions for its leaves, and nothing for what is trivial."""
    return unflattened(tree, range(tree.num_leaves), lambda x: None)


def unflattened(tree: PyTreeDef, leaves: Sequence[Any], of: Callable[[Any], Any]) -> Any:
    """The tree with these leaves that stand for values, and with what `of` gives for zeros."""
    found = tree.unflatten(leaves)
    every, whole = flatten(found)
    if len(every) == len(leaves):
        return found
    return whole.unflatten([of(x) if is_trivial(x) else x for x in every])


def along(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """A trivial value for each of `size` examples."""
    return np.repeat(np.expand_dims(x, axis), size, axis)


def of_one(x: np.ndarray, axis: int) -> np.ndarray:
    """A trivial value of one example, of those for all along an axis."""
    return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], float0)
