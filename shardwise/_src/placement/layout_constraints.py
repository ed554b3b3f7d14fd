"""Constraints on the layouts of a program's values, and on the order of their computation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.control.bodies import leaf
from shardwise._src.ops.layouts import layout_constraint
from shardwise._src.ops.sink import control_dep as control_dep_op
from shardwise._src.placement.device_put import device_put
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import ArrayLike
from shardwise._src.types.layout import Format, Layout

T = TypeVar("T")


def with_layout_constraint(x: T, layouts: Any) -> T:
    """Constrains the layout of each value.

    Args:
      x: a pytree of arrays.
      layouts: a `Layout` for each, or for subtrees of them.

    Returns:
      The same values. Inside a jitted function the compiler uses this order of elements at this
      point; eagerly the arrays have that layout, but under a transform they are unchanged.

    Raises:
      TypeError: for objects that are not a Layout.
      ValueError: for a layout with another number of dimensions.
    """
    who = "with_layout_constraint"
    leaves, tree = flatten(x)
    chosen = broadcast_prefix(layouts, x, f"{who} layouts")
    for layout in chosen:
        if not isinstance(layout, Layout):
            raise TypeError(
                f"{who}: layouts must have a `shardwise.experimental.layout.Layout` for each "
                f"array, or for pytrees of them; got {layout!r}."
            )
    values = [leaf(v, who, "x", tree, i) for i, v in enumerate(leaves)]
    if current().interpreter.eager:
        return tree.unflatten(
            [
                device_put(v, Format(layout, v.sharding if isinstance(v, Array) else None))
                for v, layout in zip(values, chosen, strict=True)
            ]
        )
    return tree.unflatten(
        [layout_constraint(v, layout=layout) for v, layout in zip(values, chosen, strict=True)]
    )


def control_dep(src: ArrayLike, dst: ArrayLike) -> None:
    """Makes the instruction that computes `dst` run after that of `src`, in a compiled program.

    Eagerly it does nothing, because each op is a separate program. Over several devices it is for
    functions of `shard_map`.
    """
    control_dep_op(src, dst)


def schedule(ops: Sequence[ArrayLike]) -> None:
    """Makes the instructions that compute the values run one after the other, in their order."""
    for src, dst in itertools.pairwise(ops):
        control_dep(src, dst)
