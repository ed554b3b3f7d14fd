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
from shardwise._src.core.program_tools import pruned
from shardwise._src.ops.elementwise import eq, le, lt
from shardwise._src.ops.families import add


def peeled(
    body: Program, index: int, size: int, state: Sequence[int]
) -> tuple[Program | None, Program, Program | None]:
    """The parts of a body: of the first iteration, of every iteration, and of the last iteration.

    index: the input that is the number of the iteration, of `size` iterations. state: the inputs
    that are the first versions of the results.
    """
    body = pruned(body, body.outvars)
    own = [body.invars[i] for i in state]
    first, body = _first(body, body.invars[index], own)
    last, body = _last(body, body.invars[index], size, own)
    return first, body, last


def _branches_in(body: Program, iteration: Var, number: int) -> list[Equation]:
    """The branches that run in one iteration only, by `iteration == number`."""
    flags = [
        eqn.outvars[0]
        for eqn in body.eqns
        if eqn.op is eq
        and iteration in eqn.invars
        and any(isinstance(a, Literal) and a.value == number for a in eqn.invars)
    ]
    return [
        eqn for eqn in body.eqns if eqn.op is cond and any(eqn.invars[0] is flag for flag in flags)
    ]


def _taken(eqn: Equation, operands: Sequence[Any]) -> Equation:
    """The branch that runs if the flag is True."""
    return eqn.replace(op=call, invars=operands, params={"program": eqn.params["branches"][1]})


def _returned(eqn: Equation, branch: int) -> list[Any]:
    """For each result of a branch, the operand that it is; None if it is computed."""
    own, operands = eqn.params["branches"][branch], eqn.invars[1:]
    return [operands[own.invars.index(a)] if a in own.invars else None for a in own.outvars]


def _uses(equations: Sequence[Equation], variables: Sequence[Any]) -> bool:
    return any(a in variables for eqn in equations for a in eqn.invars)


def _first(body: Program, iteration: Var, own: Sequence[Var]) -> tuple[Program | None, Program]:
    for eqn in _branches_in(body, iteration, 0):
        kept, operands = _returned(eqn, 0), eqn.invars[1:]
        changed = dict(zip(kept, eqn.outvars, strict=True))
        is_known = all(isinstance(a, Literal) or a in body.inputs for a in operands)
        if not is_known or any(a not in own for a in kept) or len(changed) != len(kept):
            continue
        moved = [a for a, b in zip(kept, _returned(eqn, 1), strict=True) if a is not b]
        others = [e for e in body.eqns if e is not eqn]
        if _uses(others, moved) or any(a in moved for a in body.outvars):
            continue
        outs = [changed.get(v, v) for v in own]
        first = body.replace(eqns=[_taken(eqn, operands)], outvars=outs)
        return first, _without(body, eqn, kept)
    return None, body


def _last(
    body: Program, iteration: Var, size: int, own: Sequence[Var]
) -> tuple[Program | None, Program]:
    for eqn in _branches_in(body, iteration, size - 1):
        kept = _returned(eqn, 0)
        if None in kept or _uses(body.eqns, eqn.outvars):
            continue
        every = _without(body, eqn, kept)
        ends: dict[Any, Any] = {v: v for v in body.inputs if v not in own}
        ends |= dict(zip(every.outvars, own, strict=True))
        operands = [a if isinstance(a, Literal) else ends.get(a) for a in eqn.invars[1:]]
        if None in operands:
            continue
        outs = [a if a in eqn.outvars else v for a, v in zip(body.outvars, own, strict=True)]
        return body.replace(eqns=[_taken(eqn, operands)], outvars=outs), every
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
    kept = _returned(chosen, 0)
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
    limits = pruned(body, [low, high])
    eqns = [_taken(eqn, eqn.invars[1:]) if eqn is chosen else eqn for eqn in body.eqns]
    every = pruned(body.replace(eqns=eqns), body.outvars)
    return Bounded(limits, every, test.op is le)


def _without(body: Program, gone: Equation, names: Sequence[Any]) -> Program:
    """The program without an equation, whose results have other names."""
    renamed: dict[Any, Any] = dict(zip(gone.outvars, names, strict=True))
    eqns = [
        eqn.replace(invars=[renamed.get(a, a) for a in eqn.invars])
        for eqn in body.eqns
        if eqn is not gone
    ]
    return body.replace(eqns=eqns, outvars=[renamed.get(a, a) for a in body.outvars])
