"""`xla_metadata_value`: an identity; the instruction of its operand gets attributes."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.source import marked
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _dims(op: Op, x: ArrayType, **p: Any) -> Dims:
    names = letters(x.ndim)
    return Dims((names,), (names,))


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, xla_metadata_kvs: Any) -> str:
    e.mark(x, marked(dict(xla_metadata_kvs)))
    return x


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    return op(*primals, **p), op(*tangents, **p)


xla_metadata_value = Op(
    "xla_metadata_value",
    type_rule=lambda op, x, **p: x,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=lambda op, ct, x, **p: [ct],
    batch=lambda op, mapped, args, dims, **p: (op(*args, **p), dims[0]),
    eager=lambda op, args, params: args[0],
    elements=Elements.MOVED,
    pointwise=True,
)
