"""`dce_sink`: consumes a value, so that it is computed even if unused.

A program retains it like an op with an effect; run eagerly, it does nothing.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters

SINK = "sink"  # the effect that keeps a value alive


def _type(op: Op, x: ArrayType, *, prevent_mlir_dce: bool) -> tuple[ArrayType, ...]:
    return ()


def _dims(op: Op, x: ArrayType, *, prevent_mlir_dce: bool) -> Dims:
    return Dims((letters(x.ndim),), ())


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, prevent_mlir_dce: bool) -> list[str]:
    if prevent_mlir_dce:
        what = "keeps a value of several devices (prevent_mlir_dce=True)"
        e.note("dce_sink", what, [x], ins)
    return []


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[list[Any], list[Any]]:
    return dce_sink(*primals, **p), []


def _transpose(op: Op, cts: Any, x: Any, **p: Any) -> list[Any]:
    return [None]


def _batch(op: Op, mapped: Any, args: Any, dims: Any, **p: Any) -> tuple[list[Any], list[Any]]:
    return dce_sink(*args, **p), []


dce_sink = Op(
    "dce_sink",
    multiple=True,
    elements=Elements.MOVED,
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    eager=lambda op, args, params: [],
    effects=frozenset({SINK}),
)
