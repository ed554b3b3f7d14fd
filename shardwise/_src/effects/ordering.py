"""Ordered effects: a token passed through a program makes its host calls happen in order.

A token is an integer whose value is irrelevant. Each ordered op takes one and returns one, so that
it runs after the op that returned its token; ops that contain programs pass it through them
(`Op.enter`). Tokens are added last, when a program is lowered: transforms do not see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.config import enable_x64
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program, eval_program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.transforms.entering import Inside
from shardwise._src.types.array_type import array_type

ORDERED = "ordered"  # the effect of ops that run in program order
IO = "io"  # the effect of ops that run exactly as often as requested
CHECK = "check"  # the effect of checks, which are part of a program until `checkify`
OPTIONAL_CHECK = "optional check"  # of those that do nothing without it
TOKEN = array_type((), np.dtype("int32"))


@derived
def sequenced(program: Program) -> Program:
    """The program with a token passed through all of its ordered ops."""
    with enable_x64(_has_wide_types(program)):  # as when it was traced
        new = _IN_ORDER.program(program)
    token, start = new.invars[0], Literal(np.int32(0), TOKEN)

    def started(atoms: Sequence[Any]) -> list[Any]:
        return [start if a is token else a for a in atoms]

    return new.replace(
        inputs=[v for v in new.inputs if v is not token],
        outvars=started(new.outvars[1:]),
        eqns=[eqn.replace(invars=started(eqn.invars)) for eqn in new.eqns],
    )


_WIDE = {"int64", "uint64", "float64", "complex128"}


def _has_wide_types(program: Program) -> bool:
    """Whether a value in a program has a dtype that exists only with `enable_x64`."""
    atoms = [*program.inputs, *program.outvars]
    atoms += [a for eqn in walk(program) for a in (*eqn.invars, *eqn.outvars)]
    return any(a.aval.dtype.name in _WIDE for a in atoms)


class _InOrder(Inside):
    """The state is a token."""

    name = "ordered effects"
    key = ()
    at_lowering = True
    types = (TOKEN,)

    def has(self, program: Program) -> bool:
        return ORDERED in program.effects

    def run(
        self, program: Program, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        def bind(eqn: Equation, values: list[Any]) -> Sequence[Any]:
            nonlocal state
            op = eqn.op
            if ORDERED not in eqn.effects:
                outs = op(*values, **eqn.params)
                return outs if op.multiple else [outs]
            outs, state = self.enter(eqn, values, state)
            return outs

        return eval_program(program, args, bind), state

    def fresh(self, op: Op, program: Program) -> NoReturn:
        raise NotImplementedError(
            f"[{op.name}] does not support ordered effects: there is no order in which devices "
            "could call the host. Pass ordered=False, or call the host outside of it, with the "
            "results."
        )

    def join(self, state: Sequence[Any], states: Sequence[Any]) -> NoReturn:
        raise NotImplementedError  # `fresh` raises before


_IN_ORDER = _InOrder()
