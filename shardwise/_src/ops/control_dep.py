"""`control_dep`: orders one instruction after another without a data dependency."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters

ORDER = "order"  # the effect of ordering instructions


def _dims(op: Op, first: ArrayType, then: ArrayType) -> Dims:
    names = letters(first.ndim + then.ndim)
    return Dims((names[: first.ndim], names[first.ndim :]), ())


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> list[str]:
    e.note("control_dep", "orders instructions", xs, ins)
    return []


control_dep = Op(
    "control_dep",
    multiple=True,
    elements=Elements.MOVED,
    type_rule=lambda op, first, then: (),
    dims=_dims,
    lower=_lower,
    jvp=lambda op, primals, tangents: (op(*primals), []),
    transpose=lambda op, cts, first, then: [None, None],
    batch=lambda op, mapped, args, dims: (op(*args), []),
    eager=lambda op, args, params: [],
    effects=frozenset({ORDER}),
)
