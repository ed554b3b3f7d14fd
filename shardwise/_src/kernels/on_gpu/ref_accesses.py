"""The accesses of a ref in a kernel's program, through loops, branches and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.kernels.accesses import kernel_load, kernel_store
from shardwise._src.ops.indexing.gather_scatter import (
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
)

# Writes at arrays of indices, and how they combine a value with the elements.
SCATTERED = {scatter: "set", scatter_add: "add", scatter_max: "max", scatter_min: "min"}


class Nested(NamedTuple):
    """A program in an equation: its inputs and results, and those of the equation that they are."""

    program: Program
    operands: Sequence[Any]
    results: Sequence[tuple[Any, Any]]


def nested(eqn: Equation) -> list[Nested]:
    """The programs that an equation runs; slices of operands, and stacked results, are left out."""
    op, ins, outs = eqn.op, eqn.invars, eqn.outvars
    if op is scan:
        own = ScanParams(**eqn.params)
        n = own.num_carry
        consts, carry, _ = own.parts(ins)
        pairs = [*zip(own.body.outvars[:n], outs[:n], strict=True)]
        return [Nested(own.body, [*consts, *carry], pairs)]
    if op is while_loop:
        own = WhileParams(**eqn.params)
        for_test, for_body, carry = own.parts(ins)
        pairs = [*zip(own.body.outvars, outs, strict=True)]
        return [
            Nested(own.test, [*for_test, *carry], []),
            Nested(own.body, [*for_body, *carry], pairs),
        ]
    operands = ins[1:] if op is cond else ins
    return [
        Nested(p, operands, [*zip(p.outvars, outs, strict=True)])
        for p in eqn.programs()
        if len(p.invars) == len(operands) and len(p.outvars) == len(outs)
    ]


def accesses(program: Program, first: Var) -> tuple[list[Equation], list[Equation]]:
    """The loads and stores of a ref whose first version is this input, and other uses."""
    found: list[Equation] = []
    others: list[Equation] = []
    _follow(program, {first}, found, others)
    return found, others


def versions(program: Program, first: Var) -> set[Any]:
    """The variables of a program that are versions of the ref whose first one is this input."""
    return _follow(program, {first}, [], [])


def _follow(
    program: Program, versions: set[Any], found: list[Equation], others: list[Equation]
) -> set[Any]:
    for eqn in program.eqns:
        used = [a for a in eqn.invars if a.__class__ is Var and a in versions]
        if not used:
            continue
        if eqn.op is kernel_load or eqn.op is kernel_store:
            (found if eqn.invars[0] in used else others).append(eqn)
            if eqn.op is kernel_store and eqn.invars[0] in used:
                versions.add(eqn.outvars[0])
            continue
        inside = nested(eqn)
        if not inside:
            others.append(eqn)
            if eqn.op in SCATTERED and eqn.invars[0] in used:
                versions.add(eqn.outvars[0])
        for program_, operands, results in inside:
            own = {
                v
                for v, a in zip(program_.invars, operands, strict=False)
                if a.__class__ is Var and a in versions
            }
            own = _follow(program_, own, found, others)
            versions |= {out for inner, out in results if inner in own}
    return versions
