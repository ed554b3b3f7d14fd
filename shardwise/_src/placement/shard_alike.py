"""`shard_alike`: values that get the same sharding."""

from __future__ import annotations

from typing import Any

from shardwise._src.control.bodies import leaf
from shardwise._src.core.infer import type_of
from shardwise._src.messages.tree_paths import path_in, tree_difference
from shardwise._src.ops.sharded.shard_alike_op import shard_alike as alike
from shardwise._src.runtime.pytree import flatten

_WHO = "shard_alike"


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """The two values, which the partitioner shards alike over Auto axes of a mesh.

    It chooses the sharding from both values and their users. Explicit axes are part of types, which
    do not change. Derivatives are sharded alike, too.

    Args:
      x, y: pytrees of arrays, of equal structure and shapes; dtypes may differ.

    Returns:
      The pair of both.

    Raises:
      ValueError: if structures or shapes differ.
    """
    xs, tree = flatten(x)
    ys, other = flatten(y)
    if tree != other:
        where = tree_difference("x", tree, "y", other, "")
        raise ValueError(f"{_WHO}: x and y must have the same pytree structure; {where}.")
    pairs: list[Any] = []
    for i, (a, b) in enumerate(zip(xs, ys, strict=True)):
        a, b = leaf(a, _WHO, "x", tree, i), leaf(b, _WHO, "y", tree, i)
        if type_of(a).shape != type_of(b).shape:
            raise ValueError(
                f"{_WHO}: {path_in('x', tree, i)} is of type {type_of(a).str_short(True)} and "
                f"{path_in('y', tree, i)} of type {type_of(b).str_short(True)}; values that are "
                "sharded alike must have the same shape."
            )
        pairs.append(alike(a, b))
    return tree.unflatten([a for a, _ in pairs]), tree.unflatten([b for _, b in pairs])
