"""Residuals in a smaller form.

A loop stacks its residuals, and a map over devices returns them, so that the compiler cannot
compute them again in the second part, as it does within one program. A broadcast, and a conversion
to a wider dtype, cost nothing: they are repeated there, and their operands are the residuals.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import Rewriting, derived, pruned
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.transforms.linearize import Split, split_program

REPEATED = (broadcast_in_dim, convert_element_type)


@derived
def split_and_shrink(program: Program, unknown: tuple[bool, ...]) -> Split:
    """Like `split_program`, but residuals are values that the others follow from at no cost;
    except those that are results anyway."""
    split = split_program(program, unknown)
    known, rest, count = split.known, split.rest, split.unknown_out.count(False)
    computed = iter(known.outvars[count:])
    wanted = [next(computed) if i is None else known.invars[i] for i in split.forwarded]
    made = {eqn.outvars[0]: eqn for eqn in known.eqns if _grows(eqn)}
    results = {*known.outvars[:count]}
    sources: dict[Any, None] = {}
    repeated = set()
    for atom in wanted:
        while atom in made and atom not in results:
            repeated.add(atom)
            (atom,) = made[atom].invars
        sources[atom] = None
    if not repeated:
        return split
    new = Rewriting([eqn for atom, eqn in made.items() if atom in repeated])
    unknown_vars = rest.invars[len(wanted) :]
    outputs = new.add(rest, [*wanted, *unknown_vars])
    places = {v: i for i, v in enumerate(known.invars)}
    forwarded = tuple([places.get(atom) for atom in sources])
    stored = [atom for atom in sources if atom not in places]
    return Split(
        pruned(known, [*known.outvars[:count], *stored]),
        rest.replace(
            inputs=[*new.constants, *sources, *unknown_vars],
            outvars=outputs,
            eqns=new.eqns,
            consts=new.constants.values(),
        ),
        split.unknown_out,
        forwarded,
    )


def _grows(eqn: Equation) -> bool:
    """Whether an equation is a broadcast or a conversion that makes a variable larger."""
    if eqn.op not in REPEATED or len(eqn.invars) != 1 or not isinstance(eqn.invars[0], Var):
        return False
    old, new = eqn.invars[0].aval, eqn.outvars[0].aval
    return old.itemsize < new.itemsize or (old.dtype == new.dtype and old.size != new.size)
