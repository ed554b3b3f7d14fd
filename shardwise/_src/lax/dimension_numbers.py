"""User-supplied dimension numbers, converted to the ints and tuples that ops take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.messages.called import by_name, public_call
from shardwise._src.messages.formatting import brief
from shardwise._src.ops.shape import canonical_axis as axis_of
from shardwise._src.types.symbolic import as_integer
from shardwise._src.values.convert import reject_traced

__all__ = ["axis_of", "sizes"]


def sizes(values: Sequence[Any]) -> tuple[int, ...]:
    """Shapes, dimensions or permutations, given as integers of any type, as a tuple of ints."""
    try:
        return tuple([as_integer(v) for v in values])
    except TypeError as error:
        for v in values if isinstance(values, tuple | list) else ():
            reject_traced(v, f"{public_call() or 'lax'}: a size", error)
        message = f"expected a sequence of integers; got {brief(values)}."
        raise TypeError(by_name(message)) from None
