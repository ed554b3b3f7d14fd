"""Optional checks in the body of a loop that `vmap` continues until its last row is done.

The body also runs for rows that are done, whose values are discarded. `body_with_flag` is the body
with a flag as its first argument; its checks only count if the flag is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation, Program, Var, eval_program
from shardwise._src.core.program_tools import derived
from shardwise._src.effects.ordering import OPTIONAL_CHECK
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.logical import bitwise_not, bitwise_or
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import everywhere
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType


@derived
def body_with_flag(body: Program, flag: ArrayType) -> Program:
    """The body that first takes a flag: whether its optional checks count."""
    if OPTIONAL_CHECK not in body.effects:
        return body.replace(inputs=[*body.constvars, Var(flag), *body.invars])
    inside = _Counted(flag)
    return program_of(
        lambda go_on, *args: inside.run(body, args, [go_on])[0], [flag, *body.in_types], body.name
    )


class _Counted(Inside):
    """The checks in the programs of an op. The state: the flag, which nothing changes."""

    name = "vmap"

    def __init__(self, flag: ArrayType):
        self.types, self.key = [flag], flag

    def has(self, program: Program) -> bool:
        return OPTIONAL_CHECK in program.effects

    def run(
        self, program: Program, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        def bind(eqn: Equation, values: list[Any]) -> Sequence[Any]:
            return self._equation(eqn, values, state[0])

        return eval_program(program, args, bind), state

    def _equation(self, eqn: Equation, values: list[Any], flag: Any) -> Sequence[Any]:
        op = eqn.op
        if OPTIONAL_CHECK in op.effects:
            values = [_unless(flag, values[0]), *values[1:]]
        elif OPTIONAL_CHECK in eqn.effects and op.contains.binds is None:
            return self.enter(eqn, values, [flag])[0]
        result = op(*values, **eqn.params)
        return result if op.multiple else [result]

    def plain(self, program: Program) -> Program:
        """The program without checks that count."""
        none = np.zeros((), bool)[()]
        return program_of(
            lambda *args: self.run(program, args, [none])[0], program.in_types, program.name
        )

    def join(self, state: Sequence[Any], states: Sequence[Any]) -> Sequence[Any]:
        return state


def _unless(flag: Any, held: Any) -> Any:
    """Whether a check holds; it does where the flag is false."""
    held, done = everywhere(held), everywhere(bitwise_not(flag))
    t = type_of(held)
    return bitwise_or(held, reshard_like(broadcast_in_dim(done, shape=t.shape, dims=()), t))
