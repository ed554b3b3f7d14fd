"""Peels the first and the last iteration of a loop over a grid: its branches become programs.

    @when(k == 0)                 →    first(0)
    def _(): total[...] = 0            for k in range(n): every(k)
    total[...] += …                    last(n - 1)
    @when(k == n - 1)
    def _(): out[...] = total[...]

The loop then consists of a product and a sum, which compilers of GPUs can pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.call import call
from shardwise._src.control.cond import cond
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import without_dead_code
from shardwise._src.ops.elementwise import eq, le, lt
from shardwise._src.ops.families import add


def peeled(
    body: Program, index: int, size: int, state: Sequence[int]
) -> tuple[Program | None, Program, Program | None]:
    """The parts of a body: of the first iteration, of every iteration, and of the last iteration.

    index: the input that is the number of the iteration, of `size` iterations. state: the inputs
    that are the first versions of the results.
    """
    body = body.replace(eqns=without_dead_code(body.outvars, body.eqns))
    own = [body.invars[i] for i in state]
    first, body = _first(body, body.invars[index], own)
    last, body = _last(body, body.invars[index], size, own)
    return first, body, last


def _iteration_of(body: Program, flag: Any, iteration: Var) -> int | None:
    """The only iteration in which a flag is True, if it is `iteration == n`."""
    for eqn in body.eqns:
        if flag is eqn.outvars[0] and eqn.op is eq and iteration in eqn.invars:
            (other,) = [a for a in eqn.invars if a is not iteration] or [None]
            return int(other.value) if isinstance(other, Literal) else None
    return None


def _branches_of(eqn: Equation, body: Program, iteration: Var, number: int) -> bool:
    if eqn.op is not cond or len(eqn.params["branches"]) != 2:
        return False
    flag = eqn.invars[0]
    return flag.aval.dtype.name == "bool" and _iteration_of(body, flag, iteration) == number


def _called(eqn: Equation) -> Equation:
    """The call of the branch that runs if the flag is True."""
    branch = eqn.params["branches"][1]
    return eqn.replace(op=call, invars=eqn.invars[1:], params={"program": branch})


def _kept_by(eqn: Equation) -> list[Any]:
    """For each result, the operand that it is if the flag is False; None if it is computed."""
    idle, operands = eqn.params["branches"][0], eqn.invars[1:]
    return [operands[idle.invars.index(a)] if a in idle.invars else None for a in idle.outvars]


def _uses(body: Program, v: Any, but: Equation) -> bool:
    return v in body.outvars or any(v in eqn.invars for eqn in body.eqns if eqn is not but)


def _first(body: Program, iteration: Var, own: Sequence[Var]) -> tuple[Program | None, Program]:
    for eqn in body.eqns:
        if not _branches_of(eqn, body, iteration, 0):
            continue
        kept = _kept_by(eqn)
        inputs = all(isinstance(a, Literal) or a in body.inputs for a in eqn.invars[1:])
        changed = dict(zip(kept, eqn.outvars, strict=True))
        if not inputs or any(a not in own for a in kept) or len(changed) != len(kept):
            continue
        same = eqn.params["branches"][1]
        fixed = {
            a for a, b in zip(kept, same.outvars, strict=True)
            if b in same.invars and eqn.invars[1 + same.invars.index(b)] is a
        }  # fmt: skip
        if any(_uses(body, a, eqn) for a in kept if a not in fixed):
            continue
        first = body.replace(eqns=[_called(eqn)], outvars=[changed.get(v, v) for v in own])
        renamed = {out: a for a, out in changed.items()}
        return first, _renamed(body, eqn, renamed)
    return None, body


def _last(
    body: Program, iteration: Var, size: int, own: Sequence[Var]
) -> tuple[Program | None, Program]:
    for eqn in body.eqns:
        if not _branches_of(eqn, body, iteration, size - 1):
            continue
        kept = _kept_by(eqn)
        renamed = dict(zip(eqn.outvars, kept, strict=True))
        if any(a is None for a in kept) or any(
            a in renamed for other in body.eqns for a in other.invars
        ):
            continue
        rest = _renamed(body, eqn, renamed)
        ends = dict(zip(rest.outvars, own, strict=True))
        given = [
            a if isinstance(a, Literal) else ends.get(a, a if a in body.inputs and a not in own
            else None)
            for a in eqn.invars[1:]
        ]  # fmt: skip
        if any(a is None for a in given):
            continue
        ran = _called(eqn).replace(invars=given)
        outs = [a if a in renamed else v for a, v in zip(body.outvars, own, strict=True)]
        return body.replace(eqns=[ran], outvars=outs), rest
    return None, body


class Bounded(NamedTuple):
    """Iterations of which only the first ones do something: those with `low + iteration <= high`.

    limits: the program of these two numbers, from the inputs of the body. every: the program of one
    such iteration.
    """

    limits: Program
    every: Program
    inclusive: bool


def bounded_iterations(body: Program, index: int, refs: Sequence[int]) -> Bounded | None:
    """The iterations of a body that is a branch, which runs if a number that grows with them is
    below a limit; None if the body is different. A loop with this limit has no branch.

    refs: the inputs that are refs, which may differ between iterations.
    """
    iteration, outs = body.invars[index], {*body.outvars}
    found = [eqn for eqn in body.eqns if eqn.op is cond]
    varying = {iteration, *[body.invars[i] for i in refs]}
    made: dict[Any, Equation] = {}
    for eqn in body.eqns:
        made |= dict.fromkeys(eqn.outvars, eqn)
        if eqn.op.programs and eqn.op is not cond:
            return None
        if not varying.isdisjoint([a for a in eqn.invars if isinstance(a, Var)]):
            varying |= {*eqn.outvars}
    rest = {v for eqn in body.eqns if eqn not in found for v in eqn.outvars}
    if len(found) != 1 or len(found[0].params["branches"]) != 2 or outs & rest:
        return None
    (chosen,) = found
    test = made.get(chosen.invars[0])
    kept = _kept_by(chosen)
    if test is None or test.op not in (le, lt) or any(a not in body.inputs for a in kept):
        return None
    number, high = test.invars
    low: Any = Literal(np.int32(0), iteration.aval)
    if number is not iteration:
        grows = made.get(number)
        if grows is None or grows.op is not add or iteration not in grows.invars:
            return None
        (low,) = [a for a in grows.invars if a is not iteration] or [iteration]
    if low in varying or high in varying or high.aval.dtype != iteration.aval.dtype:
        return None
    limits = body.replace(outvars=[low, high], eqns=without_dead_code([low, high], body.eqns))
    eqns = [_called(eqn) if eqn is chosen else eqn for eqn in body.eqns]
    every = body.replace(eqns=without_dead_code(body.outvars, eqns))
    return Bounded(limits, every, test.op is le)


def _renamed(body: Program, gone: Equation, names: dict[Any, Any]) -> Program:
    """The program without an equation, whose results have other names."""
    eqns = [
        eqn.replace(invars=[names.get(a, a) if isinstance(a, Var) else a for a in eqn.invars])
        for eqn in body.eqns
        if eqn is not gone
    ]
    return body.replace(eqns=eqns, outvars=[names.get(a, a) for a in body.outvars])
