"""The structure of a program: equal for programs that do the same, whichever objects they are of.

A program that is staged again from the same code is another object; what was made of the first can
be found by its structure.
"""

from __future__ import annotations

import weakref
from typing import Any

from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.core.program import Atom, Literal, Program
from shardwise._src.messages import source


def structure_of(program: Program, lines: bool = False) -> tuple[Any, ...] | None:
    """A key that is equal for equal programs; None where a parameter cannot be hashed.

    Programs in parameters, and constants, count by identity. lines: whether equations are equal
    only if they are of the same place in the source.
    """
    number: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
    key: list[Any] = [v.aval for v in program.inputs]
    key += map(id, program.constants)
    named = source.names_used
    for eqn in program.equations:
        key.append(eqn.op)
        if named:
            key.append(source.scope_of(eqn.site))
        if lines:
            key.append(source.place_of(eqn.site))
        for name, value in eqn.params.items():
            # A NaN equals no other.
            key += (name, repr(value) if value.__class__ is float else value, exact(value))
        for atom in eqn.inputs:
            key.append(_form(atom, number))
        for v in eqn.outputs:
            number[v] = len(number)
            key.append(v.aval)
    for atom in program.outputs:
        key.append(_form(atom, number))
    found = tuple(key)
    try:
        hash(found)
    except TypeError:
        return None
    return found


_shared: weakref.WeakValueDictionary[tuple[Any, ...], Program] = weakref.WeakValueDictionary()


def shared(program: Program) -> Program:
    """The one program that stands for all that have the same equations, in one context.

    Caches compare programs by identity. A body that is staged anew, because its function is a new
    closure each time, finds what was derived from an equal one. One that says the same on another
    line does not: reports and errors would name the first's. Rules of users that equations hold
    count as equal by function, though they may do something else in another context.
    """
    structure = structure_of(program, lines=True)
    if structure is None:
        return program
    return _shared.setdefault((current().trace_key, program.name, structure), program)


def _form(atom: Atom, number: dict[Any, int]) -> Any:
    if isinstance(atom, Literal):
        return atom.aval, repr(atom.value), exact(atom.value)
    return number[atom]
