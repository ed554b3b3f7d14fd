"""`xla_metadata_value`: an identity; the instruction of its operand gets attributes."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.source import marked
from shardwise._src.ops.rules import batch_in_place, elementwise_dims, linear_jvp, same_type


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, xla_metadata_kvs: Any) -> str:
    e.mark(x, marked(dict(xla_metadata_kvs)))
    return x


xla_metadata_value = Op(
    "xla_metadata_value",
    type_rule=same_type,
    dims=elementwise_dims,
    lower=_lower,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [ct],
    batch=batch_in_place,
    eager=lambda op, args, params: args[0],
    elements=Elements.MOVED,
    pointwise=True,
)
