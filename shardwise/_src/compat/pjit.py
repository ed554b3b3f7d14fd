"""`pjit`, the former name of `jit`, with the former names of its sharding arguments.

In `with mesh:`, functions of `pjit` run on the devices of the mesh if their arguments are
uncommitted, as those of `jit` do in `set_mesh`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, overload

from shardwise._src.base.context import Context, current
from shardwise._src.jit.jit import Jitted, P, R, jit
from shardwise._src.jit.stages import Lowered


class OnMesh(Jitted[P, R]):
    """A function of `pjit`."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if current().mesh is None:
            return super().__call__(*args, **kwargs)
        with _on_mesh():
            return super().__call__(*args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        with _on_mesh():
            return super().lower(*args, **kwargs)


def _on_mesh() -> AbstractContextManager[Context]:
    return current().replace(on_mesh=True).entered()


@overload
def pjit(
    fun: Callable[P, R], in_shardings: Any = None, out_shardings: Any = None, **options: Any
) -> Jitted[P, R]: ...
@overload
def pjit(**options: Any) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def pjit(
    fun: Callable[..., Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    *,
    in_axis_resources: Any = None,
    out_axis_resources: Any = None,
    **options: Any,
) -> Any:
    """`jit`; `in_axis_resources` and `out_axis_resources` are former names of its shardings.

    A bare spec needs a mesh in scope. None leaves arguments unchanged, and lets the partitioner
    choose the shardings of results.

    Raises:
      ValueError: a sharding is given under both names.
    """
    options["in_shardings"] = _one("in", in_shardings, in_axis_resources)
    options["out_shardings"] = _one("out", out_shardings, out_axis_resources)
    if fun is None:
        return lambda fun: pjit(fun, **options)
    return OnMesh(fun, jit(fun, **options)._options)


def _one(which: str, sharding: Any, resources: Any) -> Any:
    if sharding is not None and resources is not None:
        raise ValueError(
            f"pjit got both {which}_shardings and {which}_axis_resources, which mean the same; "
            f"pass only {which}_shardings."
        )
    return resources if sharding is None else sharding
