"""Broadcasting the operands of elementwise functions to one shape.

The ops take operands of one shape, and scalars. The functions of `lax` also broadcast sizes of 1 if
the operands have equal ranks; those of `shardwise.numpy` broadcast everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.values.convert import broadcast_to


def alike(*operands: Any) -> Sequence[Any]:
    """The operands, broadcast to a common shape; unchanged if the op will reject them."""
    try:
        shapes = {type_of(x).shape for x in operands}
    except TypeError:  # the op reports which operand is not an array
        return operands
    shapes.discard(())
    if len(shapes) < 2 or len({len(s) for s in shapes}) > 1:
        return operands
    shape = tuple([_joint(sizes) for sizes in zip(*shapes, strict=True)])
    if any(m != n and m != 1 for s in shapes for m, n in zip(s, shape, strict=True)):
        return operands
    return [broadcast_to(x, shape) if type_of(x).shape else x for x in operands]


def _joint(sizes: Sequence[int]) -> int:
    """The size that is not 1, if any."""
    return next((n for n in sizes if n != 1), 1)
