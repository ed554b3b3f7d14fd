"""Calls the functions of `inspect_sharding` with the shardings in the compiled program.

The inspected values become results of a second program, which the compiler shards in the same way;
it is compiled only for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import inlined
from shardwise._src.ops.sink import INSPECT


def report_shardings(program: Program, compiled: Callable[[Program], Any]) -> None:
    """Calls each function with its value's sharding.

    compiled: makes the executable of a program with the results of the given one, and more.
    """
    flat = inlined(program, _looking)
    seen = [e for e in flat.eqns if INSPECT in e.op.effects]
    rest = [e for e in flat.eqns if INSPECT not in e.op.effects]
    if any(INSPECT in e.effects for e in rest):
        raise NotImplementedError(
            f"{program.name}: inspect_array_sharding is not supported inside a loop, a "
            "branch, a shard_map or a function with a custom derivative. Return the value from it, "
            "and inspect it outside."
        )
    results = (*flat.outvars, *[e.invars[0] for e in seen])
    found = compiled(flat.replace(outvars=results, eqns=rest)).out_sigs[len(flat.outvars) :]
    for eqn, sig in zip(seen, found, strict=True):
        eqn.params["callback"](sig.sharding)


def _looking(eqn: Equation) -> Program | None:
    """The program that an equation calls, if it inspects a sharding."""
    held = eqn.called
    return held if held is not None and INSPECT in held.effects else None
