"""Tells the functions of `inspect_sharding` how a compiled program shards what they look at.

The values become results of a second program, which the compiler places as it does those of the
first; it is compiled only for this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.core.program import Atom, Equation, Program, Var
from shardwise._src.ops.inspect import INSPECT


def report_shardings(program: Program, compiled: Callable[[Program], Any]) -> None:
    """Calls each function with its value's sharding.

    compiled: makes the executable of a program with the given one's results, and more.
    """
    flat = _Flat()
    outputs = flat.add(program, program.arguments)
    seen = [e for e in flat.equations if e.op.name == INSPECT]
    rest = [e for e in flat.equations if e.op.name != INSPECT]
    if any(INSPECT in e.effects() for e in rest):
        raise NotImplementedError(
            f"{program.name}: inspect_array_sharding cannot look into a loop, a branch or a "
            "function with a derivative of its own. Return the value from it, and inspect that."
        )
    inputs = (*flat.constants, *program.arguments)
    results = (*outputs, *[e.inputs[0] for e in seen])
    wider = Program(inputs, results, rest, flat.constants.values(), program.name)
    found = compiled(wider).out_sigs[len(outputs) :]
    for eqn, sig in zip(seen, found, strict=True):
        eqn.params["callback"](sig.sharding)


class _Flat:
    """Equations of which calls that inspect something are replaced by what they call."""

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self.constants: dict[Var, Any] = {}

    def add(self, program: Program, arguments: Sequence[Atom]) -> list[Atom]:
        """Adds a program's equations, with variables of their own; gives its results."""
        own = [Var(v.aval) for v in program.constant_vars]
        self.constants.update(zip(own, program.constants, strict=True))
        env: dict[Atom, Atom] = dict(zip(program.inputs, (*own, *arguments), strict=True))
        for eqn in program.equations:
            given = [env.get(a, a) for a in eqn.inputs]
            held = eqn.params["program"] if eqn.op.name == "jit" else None
            if held is not None and INSPECT in held.effects:
                outs = self.add(held, given)
            else:
                outs = [Var(v.aval) for v in eqn.outputs]
                self.equations.append(eqn.replace(inputs=given, outputs=outs))
            env.update(zip(eqn.outputs, outs, strict=True))
        return [env.get(a, a) for a in program.outputs]
