"""Transposition: a linear program run backwards, equation by equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.core.op import Linear
from shardwise.core.program import Equation, Literal, Program, Var, derived
from shardwise.ops.families import add
from shardwise.transforms.jvp import Ground
from shardwise.transforms.stage import Stage, split_captures


def transpose(program: Program, known: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of the linear arguments of a program, which follow the known ones.

    known:      values of the first arguments, in which the program need not be linear.
    cotangents: one per result; None for zero. Also None comes back for zero.
    """
    inputs = program.arguments
    env: dict[Var, Any] = dict(zip(program.inputs, (*program.constants, *known), strict=False))
    grown: dict[Var, Any] = {}
    for atom, ct in zip(program.outputs, cotangents, strict=True):
        if ct is not None and isinstance(atom, Var):
            _accumulate(grown, atom, ct)
    backward = _run_known(program, env)
    for eqn in reversed(backward):
        cts = [grown.pop(v, None) for v in eqn.outputs]
        if all(ct is None for ct in cts):
            continue
        rule = eqn.op.transpose
        if rule is None:
            raise eqn.op.missing("transpose", "reverse-mode differentiation")
        args = [_argument(a, env) for a in eqn.inputs]
        results = rule(cts if eqn.op.multiple else cts[0], *args, **eqn.params)
        for atom, ct in zip(eqn.inputs, results, strict=True):
            if ct is not None and isinstance(atom, Var) and atom not in env:
                _accumulate(grown, atom, ct)
    return [grown.get(v) for v in inputs[len(known) :]]


def _run_known(program: Program, env: dict[Var, Any]) -> list[Equation]:
    """Runs the equations of known operands only; returns the others, which are linear."""
    linear = []
    for eqn in program.equations:
        if any(a.__class__ is Var and a not in env for a in eqn.inputs):
            linear.append(eqn)
            continue
        values = [a.value if isinstance(a, Literal) else env[a] for a in eqn.inputs]
        result = eqn.op(*values, **eqn.params)
        env.update(zip(eqn.outputs, result if eqn.op.multiple else (result,), strict=True))
    return linear


def _argument(atom: Any, env: dict[Var, Any]) -> Any:
    if atom.__class__ is Literal:
        return atom.value
    value = env.get(atom)
    return Linear(atom.aval) if value is None else value


def _accumulate(grown: dict[Var, Any], var: Var, ct: Any) -> None:
    held = grown.get(var)
    grown[var] = ct if held is None else add(held, ct)


@derived
def transpose_program(
    program: Program, known: int, nonzero: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """The transpose as a program: takes the known arguments and the nonzero cotangents.

    Returns it with marks of the linear arguments whose cotangents (its results) are not zero.
    """
    stager = Stage(Ground, "transpose", program.name)
    with stager.entered():
        values = [stager.new_input(v.aval) for v in program.arguments[:known]]
        cts = [
            stager.new_input(a.aval.strong()) if has else None
            for a, has in zip(program.outputs, nonzero, strict=True)
        ]
        results = transpose(program, values, cts)
        new, captured = stager.finish([r for r in results if r is not None])
    new, _ = split_captures(new, captured)
    return new, tuple(r is not None for r in results)
