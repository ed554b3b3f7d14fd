"""Types of the shards that a device sees, and of the values that they are shards of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.core.program import Program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

Specs = tuple[PartitionSpec, ...]


def manual_mesh(mesh: Any, axes: Sequence[Any]) -> AbstractMesh:
    """The mesh inside `shard_map`: some of its axes are manual."""
    return mesh.abstract_mesh.update_axis_types({a: AxisType.Manual for a in axes})


def shard_type(
    t: ArrayType, place: NamedSharding, spec: PartitionSpec, axes: Any, tracked: bool
) -> ArrayType:
    """The type of a device's shard of a value of type `t`."""
    sizes = place.mesh.shape
    dims = [[a for a in names if a in axes] for names in spec.dims(t.ndim)]
    parts = [math.prod([sizes[a] for a in names]) for names in dims]
    shape = [n // count for n, count in zip(t.shape, parts, strict=True)]
    fields: dict[str, Any] = {"shape": tuple(shape), **_rest(t, place, axes)}
    if tracked:
        own = {a for names in dims for a in names}
        fields |= {"varying": t.varying.union(own)}
        fields |= {"unreduced": t.unreduced | spec.unreduced, "reduced": t.reduced | spec.reduced}
    return t.update(**fields)


def _rest(t: ArrayType, place: NamedSharding, axes: Any) -> dict[str, Any]:
    """The sharding of a value over explicit axes that are not manual."""
    if t.mesh is None or t.spec is None:
        return {}
    mesh = manual_mesh(place.mesh, axes)
    left = [tuple([a for a in names if a not in axes]) for names in t.spec.dims(t.ndim)]
    sums = {"unreduced": t.spec.unreduced.difference(axes)}
    sums["reduced"] = t.spec.reduced.difference(axes)
    return {"mesh": mesh, "spec": t.spec.update(partitions=left, **sums)}


def global_type(t: ArrayType, place: NamedSharding, spec: PartitionSpec, axes: Any) -> ArrayType:
    """The type of the value whose shards are of type `t`."""
    sizes = place.mesh.shape
    dims = spec.dims(t.ndim)
    parts = [math.prod([sizes[a] for a in names]) for names in dims]
    shape = [n * count for n, count in zip(t.shape, parts, strict=True)]
    fields: dict[str, Any] = {"shape": tuple(shape)}
    fields |= {s: getattr(t, s).difference(axes) for s in ("varying", "unreduced", "reduced")}
    mesh = place.mesh.abstract_mesh
    if mesh.explicit_axes:
        held = PartitionSpec() if t.spec is None or t.mesh is None else t.spec
        both = [a + b for a, b in zip(dims, held.dims(t.ndim), strict=True)]
        sums = {"unreduced": held.unreduced | spec.unreduced}
        sums["reduced"] = held.reduced | spec.reduced
        fields |= {"mesh": mesh, "spec": held.update(partitions=both, **sums)}
    return t.update(**fields)


def in_types(program: Program, place: NamedSharding, in_specs: Specs, axes: Any) -> list[ArrayType]:
    """The types of the operands."""
    pairs = zip(program.in_types, in_specs, strict=True)
    return [global_type(t, place, spec, axes) for t, spec in pairs]


@contextmanager
def inside(place: NamedSharding, axes: Sequence[Any], tracked: bool) -> Iterator[None]:
    """The context of the program: its axes are in scope."""
    here = current()
    mesh = manual_mesh(place.mesh, axes)
    named = [NamedAxis(a, mesh.shape[a], tracked) for a in axes]
    with here.replace(mesh=mesh).with_axes("shard_map", *named).entered():
        yield
