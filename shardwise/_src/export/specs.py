"""`symbolic_args_specs`: types of arguments with symbolic shapes, for `export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.api.shapes import ShapeDtypeStruct
from shardwise._src.export.shapes import SymbolicScope, symbolic_shape
from shardwise._src.tree.functions import broadcast, map


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """The types of a tree of arguments, with shapes that are given as text.

    Args:
      args: arrays, or `ShapeDtypeStruct`s: their dtypes count, and sizes for `_` and `...`.
      shapes_specs: text as `symbolic_shape` takes it: one for all, or a tree of them that `args`
        may have below its leaves; None for the shapes of `args`.
      constraints, scope: see `symbolic_shape`.

    Returns:
      A tree of `ShapeDtypeStruct`s.
    """
    if scope is not None and constraints:
        raise ValueError(
            "symbolic_args_specs: constraints are for a new scope; pass either constraints or "
            "scope."
        )
    one = SymbolicScope(constraints) if scope is None else scope

    def spec(text: str | None, arg: Any) -> ShapeDtypeStruct:
        like = ShapeDtypeStruct.like(arg)
        shape = symbolic_shape("..." if text is None else text, scope=one, like=like.shape)
        return ShapeDtypeStruct(shape, like.dtype, weak_type=like.weak_type)

    none = lambda x: x is None  # noqa: E731
    return map(spec, broadcast(shapes_specs, args, none), args, is_leaf=none)
