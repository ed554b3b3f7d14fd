"""`replicated`: the same value, whose last dimension the partitioner does not shard.

For values that are read at arbitrary places many times: each read of a sharded one communicates.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _dims(op: Op, x: ArrayType) -> Dims:
    names = letters(x.ndim)
    return Dims((names,), (names,))


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    if t.explicit_sharding is not None:
        return x
    return e.replicate_dims(x, t, [t.ndim - 1])


def _jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return replicated(*primals), tangents[0]


replicated = Op(
    "replicated",
    type_rule=lambda op, x: x,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=lambda op, ct, x: [ct],
    batch=batch_leading,
    elements=Elements.MOVED,
)
