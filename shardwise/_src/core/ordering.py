"""Ordered effects: a token passed through a program makes its host calls happen in order.

A token is an integer whose value is irrelevant. Each ordered op takes one and returns one, so that
it runs after the op that returned its token; ops that contain programs pass it through them
(`Op.sequence`). Tokens are added last, when a program is lowered: transforms do not see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.core.program import Atom, Equation, Literal, Program, Var
from shardwise._src.core.program_tools import derived
from shardwise._src.types.array_type import array_type

ORDERED = "ordered"  # the effect of ops that run in program order
TOKEN = array_type((), np.dtype("int32"))


@derived
def sequenced(program: Program) -> Program:
    """The program with a token passed through all of its ordered ops."""
    start = Literal(np.int32(0), TOKEN)
    equations, _ = _chained(program.equations, start)
    return program.replace(equations=equations)


@derived
def with_token(program: Program, at: int, out: int) -> Program:
    """The program with a token as argument number `at` and as result number `out`."""
    token = Var(TOKEN)
    equations, last = _chained(program.equations, token)
    at += len(program.constants)
    inputs = [*program.inputs[:at], token, *program.inputs[at:]]
    outputs = [*program.outputs[:out], last, *program.outputs[out:]]
    return program.replace(inputs=inputs, outputs=outputs, equations=equations)


@derived
def ignoring_token(program: Program, at: int) -> Program:
    """The program with a token as argument number `at`, which is unused."""
    at += len(program.constants)
    return program.replace(inputs=[*program.inputs[:at], Var(TOKEN), *program.inputs[at:]])


def _chained(equations: Sequence[Equation], token: Atom) -> tuple[list[Equation], Atom]:
    """The equations with the token passed from one ordered op to the next, and the last token."""
    found: list[Equation] = []
    for eqn in equations:
        if ORDERED in eqn.effects:
            eqn, token = _passing(eqn, token)
        found.append(eqn)
    return found, token


def _passing(eqn: Equation, token: Atom) -> tuple[Equation, Var]:
    if eqn.op.sequence is None:
        raise eqn.op.missing("sequence", "ordered effects")
    params, at, out = eqn.op.sequence(eqn.op, eqn.params, with_token)
    following = Var(TOKEN)
    inputs = [*eqn.inputs[:at], token, *eqn.inputs[at:]]
    outputs = [*eqn.outputs[:out], following, *eqn.outputs[out:]]
    return eqn.replace(params=params, inputs=inputs, outputs=outputs), following


def through_program(
    op: Op, params: dict[str, Any], add: Callable[..., Program]
) -> tuple[dict[str, Any], int, int]:
    """The `sequence` rule of ops that call one nested program, their parameter `program`."""
    return params | {"program": add(params["program"], 0, 0)}, 0, 0
