"""`pjit`, the former name of `jit`, with the former names of its sharding arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from shardwise._src.base.lazy import public
from shardwise._src.jit.jit import Jitted, P, R, jit
from shardwise._src.runtime.pytree import flatten


@public("shardwise.experimental.pjit")
class FromGda:
    """The type of `FROM_GDA`."""

    def __repr__(self) -> str:
        return "FROM_GDA"


FROM_GDA = FromGda()  # of an argument: its own sharding


@overload
def pjit(fun: Callable[P, R], /, **options: Any) -> Jitted[P, R]: ...
@overload
def pjit(**options: Any) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def pjit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    in_axis_resources: Any = None,
    out_axis_resources: Any = None,
    **options: Any,
) -> Any:
    """`jit`; `in_axis_resources` and `out_axis_resources` are former names of its shardings.

    A bare spec needs a mesh in scope. None leaves arguments unchanged, as `FROM_GDA` does, and lets
    the partitioner choose the shardings of results.

    Raises:
      ValueError: a sharding is given under both names.
    """
    options["in_shardings"] = _one("in", in_shardings, in_axis_resources)
    options["out_shardings"] = _one("out", out_shardings, out_axis_resources)
    return jit(**options) if fun is None else jit(fun, **options)


def _one(which: str, sharding: Any, resources: Any) -> Any:
    if sharding is not None and resources is not None:
        raise ValueError(
            f"pjit got both {which}_shardings and {which}_axis_resources, which mean the same; "
            f"pass only {which}_shardings."
        )
    found = resources if sharding is None else sharding
    if which == "in" and found is not None:
        leaves, tree = flatten(found, lambda s: s is None)
        return tree.unflatten([None if s is FROM_GDA else s for s in leaves])
    return found
