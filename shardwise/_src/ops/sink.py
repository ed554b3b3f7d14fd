"""Ops with an effect and no results.

`dce_sink`:         consumes a value, so that it is computed even if unused. A program retains it
                    like an op with an effect; run eagerly, it does nothing.
`control_dep`:      orders one instruction after another without a data dependency.
`inspect_sharding`: passes the sharding of a value to a user function. Run eagerly, it calls the
                    function immediately; in a program it does nothing itself: the executable calls
                    the function after compiling the program.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.rules import sink

SINK = "sink"  # the effect that keeps a value alive
ORDER = "order"  # the effect of ordering instructions
INSPECT = "inspect_sharding"


def _sink_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, prevent_mlir_dce: bool
) -> list[str]:
    if prevent_mlir_dce:
        what = "keeps a value of several devices (prevent_mlir_dce=True)"
        e.note("dce_sink", what, [x], ins)
    return []


dce_sink = sink(
    "dce_sink",
    SINK,
    elements=Elements.MOVED,
    lower=_sink_lower,
    transpose=lambda op, cts, x, **p: [None],
)


def _order_lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> list[str]:
    e.note("control_dep", "orders instructions", xs, ins)
    return []


control_dep = sink(
    "control_dep",
    ORDER,
    elements=Elements.MOVED,
    lower=_order_lower,
    transpose=lambda op, cts, first, then: [None, None],
)


def _inspect_eager(op: Op, args: Any, params: dict[str, Any]) -> list[Any]:
    params["callback"](args[0].sharding)
    return []


inspect_sharding = sink(INSPECT, INSPECT, user_code=True, eager=_inspect_eager)
