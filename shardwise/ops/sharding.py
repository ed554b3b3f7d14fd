"""`sharding_constraint`: an identity that tells the partitioner where its value lives."""

from __future__ import annotations

from typing import Any

from shardwise.core.op import Op
from shardwise.types.array_type import ArrayType
from shardwise.types.dims import Dims, letters
from shardwise.types.partition_spec import PartitionSpec


def _type(x: ArrayType, *, sharding: Any) -> ArrayType:
    sharding.shard_shape(x.shape)  # raises where rank or sizes do not fit
    return x


def _dims(x: ArrayType, *, sharding: Any) -> Dims:
    names = letters(x.ndim)
    return Dims((names,), (names,))


def _lower(e: Any, ins: Any, outs: Any, x: str, *, sharding: Any) -> str:
    if e.devices == 1:
        return x
    held = e.sharding(sharding, ins[0].ndim)
    return e.let(f"sdy.sharding_constraint {x} {held} : {e.ty(ins[0])}")


def _jvp(primals: Any, tangents: Any, *, sharding: Any) -> tuple[Any, Any]:
    constrain = sharding_constraint
    return constrain(primals[0], sharding=sharding), constrain(tangents[0], sharding=sharding)


def _transpose(ct: Any, x: Any, *, sharding: Any) -> list[Any]:
    return [sharding_constraint(ct, sharding=sharding)]


def _batch(
    size: int, args: Any, dims: Any, *, sharding: Any, batch_axes: Any = None
) -> tuple[Any, int]:
    """The hidden dimension is free, or over the mesh axes that `vmap(spmd_axis_name=)` names."""
    (x,), (d,) = args, dims
    parts = [*sharding.spec, *[None] * (x.ndim - 1 - len(sharding.spec))]
    parts.insert(d, batch_axes if batch_axes is not None else PartitionSpec.UNCONSTRAINED)
    return sharding_constraint(x, sharding=sharding.with_spec(PartitionSpec(*parts))), d


sharding_constraint = Op(
    "sharding_constraint",
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)
