"""`shard_alike`: two values that the partitioner shards identically."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import broadcast_in_dim, move_axis
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _type(op: Op, x: ArrayType, y: ArrayType) -> tuple[ArrayType, ArrayType]:
    return x, y


def _dims(op: Op, x: ArrayType, y: ArrayType) -> Dims:
    """Over explicit axes, each value keeps the sharding of its type."""
    names = letters(2 * x.ndim)
    rows = names[: x.ndim], names[x.ndim :]
    return Dims(rows, rows)


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> list[str]:
    return e.shard_alike((x, y), ins)


def _jvp(op: Op, primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
    return shard_alike(*primals), _of_linear(tangents)


def _of_linear(values: Any) -> list[Any]:
    """Tangents or cotangents; if one is zero, the sharding of the other is unconstrained."""
    return list(values) if any(v is None for v in values) else shard_alike(*values)


def _transpose(op: Op, cts: Any, x: Any, y: Any) -> list[Any]:
    return _of_linear(cts)


def _batch(op: Op, mapped: Any, args: Any, dims: Any) -> tuple[list[Any], list[int]]:
    given = [_widened(x, d, mapped.size) for x, d in zip(args, dims, strict=True)]
    return shard_alike(*given), [0, 0]


def _widened(x: Any, d: int | None, size: int) -> Any:
    if d is not None:
        return move_axis(x, d, 0)
    shape = type_of(x).shape
    return broadcast_in_dim(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


shard_alike = Op(
    "shard_alike",
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple=True,
    elements=Elements.MOVED,
)
