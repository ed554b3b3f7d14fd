"""What a program says of where its values lie, and in which order they are computed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

from shardwise._src.api.placement import device_put
from shardwise._src.api.prefixes import broadcast_prefix
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.control.bodies import leaf
from shardwise._src.ops.control_dep import control_dep as control_dep_op
from shardwise._src.ops.layouts import layout_constraint
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import ArrayLike
from shardwise._src.types.layout import Format, Layout

T = TypeVar("T")


def with_layout_constraint(x: T, layouts: Any) -> T:
    """The values, each in a layout of its own.

    Args:
      x: a tree of arrays.
      layouts: a `Layout` for each, or for trees of them.

    Returns:
      The same values. Inside of a jitted function the compiler keeps the order of elements at that
      place; eagerly the arrays are of that layout, but under a transform as they were.

    Raises:
      TypeError: for something that is no Layout.
      ValueError: for a layout that is for another number of dimensions.
    """
    who = "with_layout_constraint"
    leaves, tree = flatten(x)
    chosen = broadcast_prefix(layouts, x, f"{who} layouts")
    for layout in chosen:
        if not isinstance(layout, Layout):
            raise TypeError(
                f"{who}: layouts must have a `shardwise.experimental.layout.Layout` for each "
                f"array, or for trees of them; got {layout!r}."
            )
    values = [leaf(v, who, "x", tree, i) for i, v in enumerate(leaves)]
    if current().interpreter.eager:
        return tree.unflatten([
            device_put(v, Format(layout, v.sharding if isinstance(v, Array) else None))
            for v, layout in zip(values, chosen, strict=True)
        ])
    return tree.unflatten([
        layout_constraint(v, layout=layout) for v, layout in zip(values, chosen, strict=True)
    ])


def control_dep(src: ArrayLike, dst: ArrayLike) -> None:
    """Has the instruction that computes `dst` run after that of `src`, in a compiled program.

    Eagerly it does nothing: there each is a program of its own. Over several devices it is for
    functions of `shard_map`.
    """
    control_dep_op(src, dst)


def schedule(ops: Sequence[ArrayLike]) -> None:
    """Has the instructions that compute the values run one after the other, in their order."""
    for src, dst in itertools.pairwise(ops):
        control_dep(src, dst)
