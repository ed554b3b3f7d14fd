"""`pjit`, the former name of `jit`, with the former names of its sharding arguments.

In `with mesh:`, functions of `pjit` run on the devices of the mesh if their arguments are
uncommitted, as those of `jit` do in `set_mesh`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, overload

from shardwise._src.base.context import Context, current
from shardwise._src.base.lazy import public
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.jit.jit import Jitted, P, R, jit, packed, unpacked
from shardwise._src.jit.options import Options
from shardwise._src.jit.stages import Lowered, Traced
from shardwise._src.messages.argument_names import name_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec

UNSPECIFIED = object()


@public("shardwise.experimental.pjit")
class FromGda(enum.Enum):
    """The type of `FROM_GDA`: the sharding of an argument is its own."""

    FROM_GDA = enum.auto()

    def __repr__(self) -> str:
        return self.name


FROM_GDA = FromGda.FROM_GDA


@public("shardwise.experimental.pjit")
@dataclass(frozen=True, slots=True)
class AUTO:
    """Leaves a sharding open, for `pjit` in `with mesh:`.

    The partitioner chooses the shardings of such results. Arguments are taken as they are: unlike
    XLA's own search, no other sharding is tried for them (`shardwise.explain.suggest` does).
    """

    mesh: Mesh


class OnMesh(Jitted[P, R]):
    """A function of `pjit`.

    in_mesh: the function that it is if a mesh is in scope. required: the meshes of its `AUTO`s.
    """

    __slots__ = ("in_mesh", "required")
    in_mesh: Jitted[P, R]
    required: tuple[Mesh, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_scope()
        if current().mesh is None:
            return super().__call__(*args, **kwargs)
        with _on_mesh():
            return self.in_mesh(*args, **kwargs)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Traced:
        self._check_scope()
        if current().mesh is None:
            return super().trace(*args, **kwargs)
        with _on_mesh():
            return self.in_mesh.trace(*args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        with _on_mesh():
            return self.trace(*args, **kwargs).lower()

    def __reduce__(self) -> Any:
        options = packed(self._options), packed(self.in_mesh._options)
        return self._name_in_module() or reduced("pjit", self._fun, *options, self.required)

    def _check_scope(self) -> None:
        for mesh in self.required:
            if mesh is not current().mesh:
                raise ValueError(
                    f"pjit of {name_of(self._fun)}: AUTO({mesh}) is for programs on this mesh, and "
                    f"{current().mesh or 'no mesh'} is in scope. Call it in `with mesh:`."
                )


def _restored(
    fun: Callable[..., Any], own: Any, in_mesh: Any, required: tuple[Mesh, ...] = ()
) -> OnMesh[..., Any]:
    return _made(fun, unpacked(own), unpacked(in_mesh), required)


def _made(
    fun: Callable[..., Any], own: Options, in_mesh: Options, required: tuple[Mesh, ...]
) -> OnMesh[..., Any]:
    new = OnMesh(fun, own)
    new.in_mesh, new.required = Jitted(fun, in_mesh), required
    return new


read_by("pjit", _restored)


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
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    *,
    in_axis_resources: Any = None,
    out_axis_resources: Any = None,
    **options: Any,
) -> Any:
    """`jit`; `in_axis_resources` and `out_axis_resources` are former names of its shardings.

    A bare spec needs a mesh in scope. If a mesh is in scope at a call, None means replicated. Left
    out, as `FROM_GDA` and as `AUTO`, arguments are unchanged; the partitioner chooses unspecified
    results.

    Raises:
      ValueError: a sharding is given under both names; at a call, the mesh of an `AUTO` is not in
        scope.
    """
    given = (
        _one("in", in_shardings, in_axis_resources),
        _one("out", out_shardings, out_axis_resources),
    )
    if fun is None:
        return lambda fun: pjit(fun, *given, **options)

    def options_of(none: Any) -> Options:
        ins, outs = (_meant(s, none) for s in given)
        return jit(fun, in_shardings=ins, out_shardings=outs, **options)._options

    required = tuple({s.mesh: None for s in flatten(given)[0] if isinstance(s, AUTO)})
    return _made(fun, options_of(None), options_of(PartitionSpec()), required)


def _meant(shardings: Any, none: Any) -> Any:
    """The pytree as `jit` takes it. none: what None means."""
    leaves, tree = flatten(shardings, lambda x: x is None)
    return tree.unflatten([none if s is None else None if _is_free(s) else s for s in leaves])


def _is_free(sharding: Any) -> bool:
    return sharding in (UNSPECIFIED, FROM_GDA) or isinstance(sharding, AUTO)


def _one(which: str, sharding: Any, resources: Any) -> Any:
    if sharding is not UNSPECIFIED and resources is not None:
        raise ValueError(
            f"pjit got both {which}_shardings and {which}_axis_resources, which mean the same; "
            f"pass only {which}_shardings."
        )
    return sharding if resources is None else resources
