"""Meshes and outside values, as seen inside `shard_map` and other maps over devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwise._src.base.context import Context, current

if TYPE_CHECKING:
    from shardwise._src.types.array_type import ArrayType
    from shardwise._src.types.mesh import AbstractMesh, Mesh


def entered_as(mesh: Mesh, here: Context) -> Mesh | AbstractMesh:
    """Returns the mesh as seen in a context; in `shard_map`, some of its axes are manual.

    Raises:
      ValueError: if it would shadow a named axis, or differs from the mesh of an enclosing map.
    """
    outer = here.mesh
    names = () if outer is None else outer.axis_names
    for name, size, *_ in here.axes:
        if name in mesh.axis_names and name not in names:
            raise ValueError(
                f"entering {mesh} would shadow the axis {name!r} of size {size}, which something "
                "other than a mesh (a map or a serial loop) has put in scope. Rename one of them."
            )
    return mesh if outer is None else within(mesh, outer, f"entering {mesh}")


def within(mesh: Mesh | AbstractMesh, outer: Mesh | AbstractMesh, what: str) -> Mesh | AbstractMesh:
    """`mesh` if `outer` is in scope; or `outer`, if it is the same mesh with some manual axes.

    what: the caller, for the error message.
    """
    if not outer.abstract_mesh.manual_axes:
        return mesh
    if outer.shape_tuple != mesh.shape_tuple:
        raise ValueError(
            f"{what}: an enclosing map runs this code on each device of {outer}, and {mesh} is "
            "another mesh. Inside a map no other mesh can be used: use axes of that one which are "
            "not manual yet, or `shardwise.vmap`."
        )
    return outer


def inside_of_maps(t: ArrayType) -> ArrayType:
    """The type here of an outside value: it is replicated along manual axes."""
    scope = current().mesh
    mesh = None if scope is None else scope.abstract_mesh
    if mesh is None or t.mesh is None or t.spec is None or t.mesh is mesh:
        return t
    manual = {*mesh.manual_axes}
    if mesh.shape_tuple != t.mesh.shape_tuple or not manual > {*t.mesh.manual_axes}:
        return t
    rows = [tuple([a for a in names if a not in manual]) for names in t.spec.dims(t.ndim)]
    return t.update(mesh=mesh, spec=t.spec.update(partitions=rows))
