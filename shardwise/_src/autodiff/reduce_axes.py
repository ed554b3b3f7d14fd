"""`axis_name` of `grad` and `vjp`: sums derivatives with respect to shared arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.core.infer import is_operand, type_of
from shardwise._src.ops.sharded.sharing import share
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import is_inexact


def sharing_axes(axis_name: Any, reduce_axes: Sequence[Any]) -> tuple[Any, ...]:
    """The names, from either argument."""
    given = () if axis_name is None else axis_name
    rows = [tuple(x) if isinstance(x, tuple | list) else (x,) for x in (given, reduce_axes)]
    return tuple(dict.fromkeys(rows[0] + rows[1]))


def sharing(fun: Callable[..., Any], who: str, names: tuple[Any, ...]) -> Callable[..., Any]:
    """The function, with the cotangents of its arguments summed over the axes along which they do
    not vary. who: the transform, for messages.
    """

    @functools.wraps(fun)
    def shared(*args: Any) -> Any:
        scope = current()
        axes = [scope.axis(name, f"shardwise.{who}: ") for name in names]
        pairs = [
            (pair, unit)
            for unit, axis in enumerate(axes)
            if not axis.tracked
            for pair in axis.parts or ((axis.name, axis.size),)
        ]
        if not pairs:  # if types track varying axes, derivatives are already summed
            return fun(*args)
        params = {
            "names": tuple([name for (name, _), _ in pairs]),
            "sizes": tuple([size for (_, size), _ in pairs]),
            "units": tuple([unit for _, unit in pairs]),
        }
        leaves, tree = flatten(args)
        moving = [is_operand(x) and is_inexact(type_of(x).dtype) for x in leaves]
        given = [share(x, x, **params) if m else x for x, m in zip(leaves, moving, strict=True)]
        return fun(*tree.unflatten(given))

    return shared
