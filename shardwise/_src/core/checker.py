"""Checks that a program is well formed: every pass must preserve this.

Each variable is defined once and before its use. The results of each equation have exactly the
inferred types. Nested programs are checked too, and must accept the operands of their equation.
"""

from __future__ import annotations

from shardwise._src.base.errors import JaxprTypeError
from shardwise._src.core.infer import infer
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import programs_in
from shardwise._src.types.array_type import in_parens


class ProgramError(AssertionError, JaxprTypeError):
    """A program that is not well formed, with the equation and the printed program."""

    __module__ = "shardwise.testing"


def check_program(jaxpr: Program) -> None:
    """Raises `ProgramError` if the program, or a nested one, is not well formed."""
    for found in programs_in(jaxpr):
        _check(found)


def _check(program: Program) -> None:
    defined: set[Var] = set()
    for var in program.inputs:
        _define(program, var, defined, "an input")
    for number, eqn in enumerate(program.eqns):
        for atom in eqn.invars:
            _check_use(program, atom, defined, f"equation {number} ({eqn.op.name})")
        _check_types(program, number, eqn)
        for var in eqn.outvars:
            _define(program, var, defined, f"equation {number} ({eqn.op.name})")
    for atom in program.outvars:
        _check_use(program, atom, defined, "the outputs")


def _define(program: Program, var: Var, defined: set[Var], where: str) -> None:
    if var in defined:
        raise ProgramError(f"{where} defines a variable a second time, in\n{program}")
    defined.add(var)


def _check_use(program: Program, atom: Var | Literal, defined: set[Var], where: str) -> None:
    if isinstance(atom, Literal):
        return
    if atom not in defined:
        raise ProgramError(
            f"{where} uses a variable of type {atom.aval.str_short(True)} before it is defined, "
            f"in\n{program}"
        )


def _check_types(program: Program, number: int, eqn: Equation) -> None:
    types = tuple(a.aval for a in eqn.invars)
    found = infer(eqn.op, types, eqn.params)
    expected = tuple(found) if eqn.op.multiple else (found,)
    stated = tuple(v.aval for v in eqn.outvars)
    if expected != stated:
        raise ProgramError(
            f"equation {number} ({eqn.op.name}) states {in_parens(stated)}, but its rule infers "
            f"{in_parens(expected)} for operands {in_parens(types)}, in\n{program}"
        )
