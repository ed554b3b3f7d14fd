"""`device_put` as an op, for traced values: a transfer when run eagerly, as under `grad`, and a
constraint for the partitioner inside a compiled program.

Its cotangents go back to the operand's sharding: `src`, or the sharding of a concrete operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.sharded.sharding_ops import lower_over, type_over, with_dim
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


def _jvp(op: Op, primals: Any, tangents: Any, *, sharding: Any, src: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    home = src if src is not None else _home(x)
    return device_put(x, sharding=sharding, src=src), device_put(t, sharding=sharding, src=home)


def _home(x: Any) -> Any:
    """The sharding of a concrete operand, or of the value that a traced operand represents."""
    value = x.concrete() if hasattr(x, "concrete") else x
    return getattr(value, "sharding", None)


def _transpose(op: Op, ct: Any, x: Any, *, sharding: Any, src: Any) -> list[Any]:
    return [ct if src is None else device_put(ct, sharding=src, src=sharding)]


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, sharding: Any, src: Any
) -> tuple[Any, int]:
    """The batch dimension is free, or over the mesh axes of `vmap(spmd_axis_name=)`."""
    (x,), (d,) = args, dims
    ndim = type_of(x).ndim - 1
    wide = with_dim(sharding, d, ndim, mapped.split_over)
    home = None if src is None else with_dim(src, d, ndim, mapped.split_over)
    return device_put(x, sharding=wide, src=home), d


def _eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    (x,), target = args, params["sharding"]
    return eval_trace().place(x, placed_over(target, getattr(x, "sharding", None)))


def placed_over(target: Any, own: Any) -> Any:
    """A target as a sharding for data: over devices, with nothing left to the compiler."""
    if not isinstance(target, NamedSharding):
        return target
    mesh, entries = target.mesh, list(target.spec)
    if not isinstance(mesh, Mesh):
        held = own.mesh if isinstance(own, NamedSharding) else current().mesh
        if not isinstance(held, Mesh) or held.shape_tuple != mesh.shape_tuple:
            raise ValueError(
                f"{target} is over a mesh without devices, and the value is not on a mesh of this "
                "shape. Enter one with `set_mesh`, or use a sharding over a Mesh."
            )
        mesh = held.update(axis_types=mesh.axis_types)
    if PartitionSpec.UNCONSTRAINED in entries:
        entries = [None if e is PartitionSpec.UNCONSTRAINED else e for e in entries]
    elif mesh is target.mesh:
        return target
    return NamedSharding(mesh, target.spec.update(partitions=entries), target.memory_kind)


device_put = Op(
    "device_put",
    type_rule=type_over,
    lower=lower_over,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    eager=_eager,
    shardings=("sharding",),
    elements=Elements.MOVED,
)
