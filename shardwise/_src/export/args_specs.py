"""`symbolic_args_specs`: argument types with symbolic shapes, for `export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.export.symbolic_shapes import SymbolicScope, symbolic_shape
from shardwise._src.tree.functions import broadcast, map


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """The types of a pytree of arguments, with shapes from strings.

    Args:
      args: arrays, or `ShapeDtypeStruct`s, which provide dtypes, and sizes for `_` and `...`.
      shapes_specs: a string as for `symbolic_shape`: one for all, or a pytree of them that is a
        prefix of `args`; None for the shapes of `args`.
      constraints, scope: see `symbolic_shape`.

    Returns:
      A pytree of `ShapeDtypeStruct`s.
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
