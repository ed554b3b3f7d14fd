"""Explicit mesh axes: shardings as part of types, and the scopes in which axes are explicit.

    mesh = make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with set_mesh(mesh):
        w = reshard(w, P("x", None))              # typeof(w) prints float32[8@x,4]
        h = auto_axes(f, out_sharding=P("x"))(w)  # inside f, the compiler chooses

The mesh in scope determines which of its axes are explicit. `auto_axes` and `explicit_axes` change
that inside a function, `use_abstract_mesh` inside a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, overload

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.values import as_value
from shardwise._src.base.context import CURRENT, Context, current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import join
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.ops.sharded.sharding_ops import (
    drop_sharding,
    fitted,
    own_place,
    own_sharding,
    resharded,
    target,
)
from shardwise._src.ops.sharded.sharding_ops import reshard as reshard_op
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding, T
from shardwise._src.types.array_type import explicit_spec
from shardwise._src.types.mesh import AbstractMesh, Mesh, entered_as
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import NO_AXES, PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.values.value import Value

# ------------------------------------------------------------------------- the mesh in scope


class set_mesh:
    """Puts a mesh in scope: of this thread from now on, or as a context manager for a block.

    Programs, eager ops included, then run on its devices: committed arguments on other devices are
    an error.

    mesh: a `Mesh`, to which bare PartitionSpecs then refer; None for no mesh.

    Raises:
      ValueError: under a transform, where the arguments decide; for Manual axes; or if an axis has
        the name of a serial loop in scope.
    """

    def __init__(self, mesh: Mesh | None):
        _check_untraced("set_mesh")
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"set_mesh takes a Mesh; got {mesh!r} of type {type(mesh).__name__}.")
        if mesh is not None and mesh.manual_axes:
            raise ValueError(
                f"set_mesh got {mesh}, but axes are Manual only inside of `shard_map`."
            )
        here = current()
        new = None if mesh is None else entered_as(mesh, here)
        inside = here.replace(mesh=new, on_mesh=new is not None)
        self._token: Token[Context] | None = CURRENT.set(inside)
        self.mesh = mesh

    def __enter__(self) -> Mesh | None:
        return self.mesh

    def __exit__(self, *exc_info: object) -> None:
        if self._token is None:
            raise RuntimeError("this set_mesh has already ended; create a new one.")
        CURRENT.reset(self._token)
        self._token = None


class use_abstract_mesh:
    """A context manager that puts axes and their types in scope, without devices.

    mesh: an `AbstractMesh`. If a mesh with devices is in scope, they are arranged in its axes.
    """

    def __init__(self, mesh: AbstractMesh):
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(
                f"use_abstract_mesh takes an AbstractMesh; got {mesh!r} of type "
                f"{type(mesh).__name__}."
            )
        self.mesh = mesh
        self._tokens: list[Token[Context]] = []

    def __enter__(self) -> AbstractMesh:
        here = current()
        if here.mesh is not None and here.mesh.size != self.mesh.size and self.mesh.size:
            raise ValueError(
                f"use_abstract_mesh cannot change the size of the mesh in scope, {here.mesh}, to "
                f"that of {self.mesh}."
            )
        self._tokens.append(CURRENT.set(here.replace(mesh=_like(here.mesh, self.mesh))))
        return self.mesh

    def __exit__(self, *exc_info: object) -> None:
        CURRENT.reset(self._tokens.pop())


def _like(held: Mesh | AbstractMesh | None, wanted: AbstractMesh) -> Mesh | AbstractMesh | None:
    """The devices of the mesh in scope with the axes of another one, if it is not empty."""
    if isinstance(held, Mesh) and held.shape_tuple == wanted.shape_tuple:
        return held.update(axis_types=wanted.axis_types)
    if isinstance(held, Mesh) and held.size and wanted.axis_names:
        devices = held.devices.reshape(wanted.axis_sizes)
        return Mesh(devices, wanted.axis_names, wanted.axis_types)
    return wanted if wanted.axis_names else None


def get_mesh() -> Mesh:
    """The mesh in scope; one without devices if absent.

    Raises:
      ValueError: under a transform, where only axes and their types are known.
    """
    _check_untraced("get_mesh", " Use get_abstract_mesh, which has the axes and their types.")
    mesh = current().mesh
    return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The axes and axis types of the mesh in scope; without axes if absent."""
    mesh = current().mesh
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


def _check_untraced(name: str, hint: str = "") -> None:
    interpreter = current().interpreter
    if not interpreter.eager:
        where = interpreter.describe()
        raise ValueError(f"{name} cannot be used under a transform ({where}).{hint}")


# --------------------------------------------------------------------------------- resharding


def _is_leaf(x: Any) -> bool:
    return isinstance(x, NamedSharding | PartitionSpec)


@overload
def reshard(xs: ArrayLike, out_shardings: Any) -> Array: ...
@overload
def reshard(xs: T, out_shardings: Any) -> T: ...
@hides_frames
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Reshards values over explicit mesh axes: their types change, not their elements.

    Args:
      xs: a pytree of arrays, traced or not.
      out_shardings: a NamedSharding, a PartitionSpec (over the mesh in scope, or else that of the
        value's type), or a pytree of them that is a prefix of `xs`.

    Raises:
      ValueError: if a spec names axes that are not Explicit, or does not fit a value.
    """
    leaves, tree = flatten(xs)
    wanted = broadcast_prefix(out_shardings, xs, "reshard: out_shardings", _is_leaf, "xs")
    paths = leaf_paths(xs)
    return tree.unflatten(
        [_resharded(x, s, f"reshard: x{p}") for x, s, p in zip(leaves, wanted, paths, strict=True)]
    )


def _resharded(x: Any, sharding: Any, name: str) -> Any:
    x = as_value(x)
    goal = fitted(target(sharding, name, x), type_of(x).ndim)
    _check_rank(x, goal, name)
    if not goal.mesh.explicit_axes:
        if not goal.spec.axes:
            place = own_place(x, type_of(x).shape)
            x = drop_sharding(x)
            moves = place is None or place.device_set != goal.device_set
            if moves and current().interpreter.eager and isinstance(goal.mesh, Mesh):
                return eval_trace().place(x, goal)
            return x
        raise ValueError(
            f"{name}: {goal.mesh} has no Explicit axes, so shardings over it are not part of "
            "types. Use `device_put`, or `with_sharding_constraint` in a traced function."
        )
    return x if own_sharding(x, type_of(x).shape) is goal else resharded(x, goal)


def _check_rank(x: Any, goal: NamedSharding, name: str) -> None:
    try:
        goal.spec.dims(type_of(x).ndim)
    except ValueError as error:
        raise ValueError(f"{name} of type {type_of(x).str_short(True)}: {error}") from None


# --------------------------------------------------------------------- other types of axes


def auto_axes(
    f: Callable[..., Any] | None = None,
    /,
    *,
    axes: str | Sequence[str] | None = None,
    out_sharding: OutSharding = None,
) -> Callable[..., Any]:
    """A function inside which mesh axes are Auto: the compiler chooses shardings, types omit them.

    Args:
      f: the function; without it, a decorator is returned.
      axes: a name or a tuple of names; by default all axes of the mesh in scope.
      out_sharding: of the results, as in `reshard`. May be passed to the call instead.

    Returns:
      A function of the same arguments, and of `out_sharding` if not given here.
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @functools.wraps(f)
    def with_auto_axes(*args: Any, **kwargs: Any) -> Any:
        name = f"auto_axes of {name_of(f)}"
        given = kwargs.pop("out_sharding", None) if out_sharding is None else out_sharding
        if given is None:
            raise TypeError(f"{name} needs `out_sharding`, here or at the call.")
        outer = _mesh_of((args, given))
        if outer is None:
            return f(*args, **kwargs)
        inner = _with_types(outer, axes, AxisType.Auto, name)
        if inner is outer:
            return f(*args, **kwargs)
        with current().replace(mesh=inner).entered():
            out = f(*_over(args, inner), **_over(kwargs, inner))
        with current().replace(mesh=outer).entered():
            return reshard(out, given)

    return with_auto_axes


def explicit_axes(
    f: Callable[..., Any] | None = None,
    /,
    *,
    axes: str | Sequence[str] | None = None,
    in_sharding: Any = None,
) -> Callable[..., Any]:
    """A function inside which mesh axes are Explicit: types contain shardings.

    Args:
      f: the function; without it, a decorator is returned.
      axes: a name or a tuple of names; by default all axes of the mesh in scope.
      in_sharding: of the positional arguments, as in `reshard` for the tuple of them. May
        be passed to the call instead.

    Raises:
      ValueError: if no mesh is in scope.
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def with_explicit_axes(*args: Any, **kwargs: Any) -> Any:
        name = f"explicit_axes of {name_of(f)}"
        given = kwargs.pop("in_sharding", None) if in_sharding is None else in_sharding
        if given is None:
            raise TypeError(f"{name} needs `in_sharding`, here or at the call.")
        outer = _mesh_of((args, given))
        if outer is None:
            raise ValueError(f"{name} needs a mesh in scope. Enter one with `set_mesh`.")
        inner = _with_types(outer, axes, AxisType.Explicit, name)
        with current().replace(mesh=inner).entered():
            out = f(*reshard(args, given), **_over(kwargs, inner))
        return _over(out, outer)

    return with_explicit_axes


def _mesh_of(values: Any) -> Mesh | AbstractMesh | None:
    """The mesh in scope, or else that of the first value or sharding that has one."""
    if current().mesh is not None:
        return current().mesh
    for x in flatten(values, _is_leaf)[0]:
        if isinstance(x, NamedSharding):
            return x.mesh
        t = getattr(x, "aval", None)
        own = None if t is None else own_sharding(x, t.shape)
        if own is not None:
            return own.mesh
    return None


def _with_types(mesh: Any, axes: Any, axis_type: AxisType, name: str) -> Any:
    """The mesh with some axes, or all, of another type."""
    chosen: Sequence[Any] = mesh.axis_names if axes is None else axes
    if not isinstance(chosen, tuple | list):
        chosen = (chosen,)
    unknown = [a for a in chosen if a not in mesh.axis_names]
    if unknown:
        raise ValueError(
            f"{name}: {mesh} has no axis {join(unknown)}; its axes are {join(mesh.axis_names)}."
        )
    manual = [a for a in chosen if a in mesh.manual_axes]
    if manual:
        raise NotImplementedError(
            f"{name}: {join(manual)} of {mesh} is Manual until its `shard_map` ends."
        )
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    types = tuple(axis_type if a in chosen else own for a, own in pairs)
    return mesh if types == mesh.axis_types else mesh.update(axis_types=types)


def _over(values: Any, mesh: Any) -> Any:
    """Arrays of a pytree with the axis types of another mesh; their devices stay the same."""
    leaves, tree = flatten(values)
    return tree.unflatten([_cast(x, mesh) for x in leaves])


def _cast(x: Any, mesh: Any) -> Any:
    own = _place(x)
    if own is None or own.mesh.shape_tuple != mesh.shape_tuple:
        return x
    spec = own.spec
    held = NO_AXES if mesh.are_all_axes_auto else frozenset(mesh.explicit_axes)
    spec = spec.update(unreduced=spec.unreduced & held, reduced=spec.reduced & held)
    if isinstance(own.mesh, Mesh):
        there = own.mesh.update(axis_types=mesh.axis_types)
        return reshard_op(x, sharding=NamedSharding(there, spec))
    general = mesh.abstract_mesh
    if explicit_spec(general, spec, type_of(x).ndim) is None:
        return reshard_op(x, sharding=None)
    return reshard_op(x, sharding=NamedSharding(general, spec))


def _place(x: Any) -> NamedSharding | None:
    """The sharding of a value: that of an array, else that of its type."""
    if not isinstance(x, Value):
        return None
    found = getattr(x, "sharding", None)
    if isinstance(found, NamedSharding) and isinstance(found.mesh, Mesh):
        return found
    return type_of(x).explicit_sharding
