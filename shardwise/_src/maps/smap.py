"""`smap`: `shard_map` over one axis of the mesh, with dimensions instead of specs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

from shardwise._src.arguments.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.arguments.signatures import check_function
from shardwise._src.core.program import Program
from shardwise._src.maps.mapped_axes import axis_of
from shardwise._src.maps.shard_map import Infer, inferred, mesh_of, on_parts, reject_keywords
from shardwise._src.messages.argument_names import name_of, parameters_of
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import P, T
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.partition_spec import AxisName, PartitionSpec


@overload
def smap(
    f: Callable[P, T], /, *, in_axes: Any = Infer, out_axes: Any, axis_name: AxisName
) -> Callable[P, T]: ...


@overload
def smap(
    f: None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: AxisName
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def smap(
    f: Callable[..., Any] | None = None,
    /,
    *,
    in_axes: Any = Infer,
    out_axes: Any,
    axis_name: AxisName,
) -> Any:
    """Maps `f` over one axis of the mesh in scope; along the others it sees global values.

    It is `shardwise.shard_map` with this axis in `axis_names`, and dimensions instead of specs.

    Args:
      in_axes: which dimension of each argument is sharded: an int, None (all devices get the same),
        or a tuple with an entry for each argument, which may be a prefix of its pytree. By default
        inferred from the types of arguments, if the axis is Explicit.
      out_axes: which dimension of each result is assembled from shards: an int, None (if all are
        the same), or a prefix of the pytree of results.
      axis_name: the axis of the mesh.

    Returns:
      The mapped function.

    Raises:
      TypeError: if axes are not ints, or there are several names.
      ValueError: as `shardwise.shard_map`.
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    check_function("smap", f)
    what = f"smap of {name_of(f)}"
    _check_axes(what, in_axes, out_axes, axis_name)

    @functools.wraps(f)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        reject_keywords(what, kwargs, "in_axes has dimensions")
        mesh = mesh_of(what, None, "Enter one")
        _check_free(what, mesh, axis_name)

        def specs_of(values: Sequence[Any], names: Sequence[str]) -> list[Any]:
            if in_axes is Infer:
                return inferred(what, "in_axes", values, mesh, (axis_name,))
            dims = broadcast_to_arguments(in_axes, args, f"{what}: in_axes", parameters_of(f))
            return [
                _spec(axis_of(what, lambda: [*names], i, x, d), axis_name)
                for i, (x, d) in enumerate(zip(values, dims, strict=True))
            ]

        def out_specs(program: Program, tree: Any) -> Any:
            skeleton = tree.unflatten(range(tree.num_leaves))
            dims = broadcast_prefix(out_axes, skeleton, f"{what}: out_axes", None, "result")
            rows = zip(dims, program.out_types, strict=True)
            return tree.unflatten(
                [
                    _spec(_of_result(what, path_in("result", tree, i), t, d, axis_name), axis_name)
                    for i, (d, t) in enumerate(rows)
                ]
            )

        return on_parts(what, f, args, mesh, (axis_name,), specs_of, out_specs, True)

    return mapped


def _check_free(what: str, mesh: Mesh | AbstractMesh, axis_name: Any) -> None:
    if axis_name not in mesh.axis_names:
        raise ValueError(
            f"{what}: axis_name must be an axis of the mesh; got {axis_name!r}, and {mesh} has "
            f"{join(mesh.axis_names)}."
        )
    if axis_name in mesh.abstract_mesh.manual_axes:
        raise ValueError(
            f"{what}: {axis_name!r} is already manual, by an enclosing map. Name another "
            "axis of the mesh."
        )


def _spec(axis: int | None, name: Any) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, name)


def _of_result(what: str, path: str, t: Any, axis: int | None, name: Any) -> int | None:
    if axis is None:
        if name in t.varying:
            raise ValueError(
                f"{what}: {path}, of type {t.str_short(True)}, may vary along {name!r}, but "
                "out_axes has None for it. Specify the dimension along which to concatenate the "
                "shards, or combine them with a collective, such as "
                f"`shardwise.lax.psum(x, {name!r})`."
            )
        return None
    if not -t.ndim <= axis < t.ndim:
        raise ValueError(
            f"{what}: {path} is of type {t.str_short(True)}, which has no "
            f"dimension {axis} to concatenate shards along. Choose another one in out_axes, or "
            "None where all devices have the same value."
        )
    return axis % t.ndim


def _check_axes(what: str, in_axes: Any, out_axes: Any, axis_name: Any) -> None:
    if isinstance(axis_name, tuple | list | set | frozenset):
        raise TypeError(
            f"{what}: axis_name must be one axis of the mesh; got {short_repr(axis_name)}. Use "
            "`shardwise.shard_map` for several."
        )
    if not (in_axes is None or in_axes is Infer or isinstance(in_axes, int | tuple)):
        raise TypeError(
            f"{what}: in_axes must be an int, None, or a tuple with an entry for each argument; "
            f"got {short_repr(in_axes)}."
        )
    given = {"in_axes": None if in_axes is Infer else in_axes, "out_axes": out_axes}
    for argument, axes in given.items():
        if bad := [a for a in flatten(axes)[0] if not isinstance(a, int)]:
            raise TypeError(f"{what}: {argument} must have ints or None; got {short_repr(bad[0])}.")
