"""Ops that expand to programs on some platform (`Op.expand`): replaced by calls before lowering.

Properties of an entire program (its effects, the host functions that it calls, its constants) are
known only after expansion.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.control.call import call
from shardwise._src.control.cond import cond
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.ops.create import number_of, platform_number
from shardwise._src.runtime.platforms import Platform


@derived
def is_expandable(program: Program) -> bool:
    """Whether an equation in it, or in a nested program, depends on the platform."""
    return any(eqn.op.expand is not None or eqn.op is platform_number for eqn in walk(program))


@derived
def expanded(program: Program, platform: Platform) -> Program:
    """The program with calls in place of ops that expand on this platform, and of a `cond` whose
    index is the number of the platform: the other branches need not be possible on it."""
    if not is_expandable(program):
        return program
    numbers: dict[Any, int] = {}
    equations: list[Equation] = []
    for eqn in program.eqns:
        if eqn.op is platform_number:
            numbers[eqn.outvars[0]] = number_of(platform, **eqn.params)
        elif eqn.op is cond and isinstance(eqn.invars[0], Var) and eqn.invars[0] in numbers:
            branch = eqn.params["branches"][numbers[eqn.invars[0]]]
            eqn = eqn.replace(op=call, invars=eqn.invars[1:], params={"program": branch})
        equations.append(_expanded(eqn, platform))
    return program.replace(eqns=equations)


def _expanded(eqn: Equation, platform: Platform) -> Equation:
    op = eqn.op
    if op.expand is not None:
        types = tuple([a.aval for a in eqn.invars])
        body = op.expand(op, types, eqn.params, platform)
        if body is not None:
            return eqn.replace(op=call, params={"program": expanded(body, platform)})
    if not op.programs:
        return eqn
    return eqn.replace(params=eqn.params | _held(op, eqn.params, platform))


def _held(op: Op, params: dict[str, Any], platform: Platform) -> dict[str, Any]:
    return {
        name: tuple([expanded(p, platform) for p in held]) if isinstance(held, tuple)
        else expanded(held, platform)
        for name in op.programs if (held := params.get(name)) is not None
    }  # fmt: skip
