"""`shard_alike`: two values that the partitioner shards identically."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _dims(op: Op, x: ArrayType, y: ArrayType) -> Dims:
    """Over explicit axes, each value keeps the sharding of its type."""
    names = letters(2 * x.ndim)
    rows = names[: x.ndim], names[x.ndim :]
    return Dims(rows, rows)


def _jvp(op: Op, primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
    return shard_alike(*primals), _of_linear(tangents)


def _of_linear(values: Any) -> list[Any]:
    """Tangents or cotangents; if one is zero, the sharding of the other is unconstrained."""
    return list(values) if any(v is None for v in values) else shard_alike(*values)


shard_alike = Op(
    "shard_alike",
    type_rule=lambda op, x, y: (x, y),
    dims=_dims,
    lower=lambda op, e, ins, outs, *xs: e.shard_alike(xs, ins),
    jvp=_jvp,
    transpose=lambda op, cts, x, y: _of_linear(cts),
    batch=batch_leading,
    multiple=True,
    elements=Elements.MOVED,
)
