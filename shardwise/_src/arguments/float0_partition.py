"""Values of dtype `float0`, the tangents of integers: programs cannot contain them, pytrees can.

The functions, in which a *trivial* value is one of dtype `float0`:

    apart(leaves, tree)  ->  the other leaves, and a pytree that contains trivial ones as zeros
    places(tree)         ->  the positions of the other leaves, in such a pytree
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.runtime.pytree import PyTreeDef, flatten, register_node
from shardwise._src.types.dtypes import float0

_HOST = (np.ndarray, np.generic)


class _Zeros:
    """An empty container: a pytree node that unflattens to trivial values of this shape."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape


def _made(shape: tuple[int, ...], _: Any) -> np.ndarray:
    return np.zeros(shape, float0)


register_node(_Zeros, lambda zeros: ((), zeros.shape), _made)


def is_trivial(x: Any) -> bool:
    return isinstance(x, _HOST) and x.dtype.kind == "V" and x.dtype == float0


def apart(leaves: Sequence[Any], tree: PyTreeDef) -> tuple[Sequence[Any], PyTreeDef]:
    """The leaves that are not trivial, and the pytree of which they are the only leaves."""
    if not any(map(is_trivial, leaves)):
        return leaves, tree
    return flatten(tree.unflatten([_Zeros(x.shape) if is_trivial(x) else x for x in leaves]))


def places(tree: PyTreeDef) -> Any:
    """The pytree with positions for its leaves, and nothing for trivial values."""
    return unflattened(tree, range(tree.num_leaves), lambda x: None)


def unflattened(tree: PyTreeDef, leaves: Sequence[Any], of: Callable[[Any], Any]) -> Any:
    """The pytree with these leaves as values, and with the results of `of` for zeros."""
    found = tree.unflatten(leaves)
    every, whole = flatten(found)
    if len(every) == len(leaves):
        return found
    return whole.unflatten([of(x) if is_trivial(x) else x for x in every])


def along(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """A trivial value for each of `size` examples."""
    return np.repeat(np.expand_dims(x, axis), size, axis)


def of_one(x: np.ndarray, axis: int) -> np.ndarray:
    """The trivial value of one example, from the one for all examples along an axis."""
    return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], float0)
