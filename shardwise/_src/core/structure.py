"""The structure of a program: equal for programs that do the same, whatever their objects.

A program that is staged again from the same code is another object; results derived from the first
can be found by its structure.
"""

from __future__ import annotations

import weakref
from typing import Any

from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.core.program import Atom, Literal, Program
from shardwise._src.messages import source


def structure_of(program: Program, lines: bool = False) -> tuple[Any, ...] | None:
    """A key that is equal for equal programs; None if a parameter is unhashable.

    Programs in parameters, and constants, compare by identity. lines: whether equations are equal
    only if they are from the same source line.
    """
    number: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
    key: list[Any] = [v.aval for v in program.inputs]
    key += map(id, program.consts)
    named = source.names_used
    for eqn in program.eqns:
        key.append(eqn.op)
        if named:
            key.append(source.scope_of(eqn.site))
        if lines:
            key.append(source.place_of(eqn.site))
        for name, value in eqn.params.items():
            # NaN is unequal to itself.
            key += (name, repr(value) if value.__class__ is float else value, exact(value))
        for atom in eqn.invars:
            key.append(_form(atom, number))
        for v in eqn.outvars:
            number[v] = len(number)
            key.append(v.aval)
    for atom in program.outvars:
        key.append(_form(atom, number))
    found = tuple(key)
    try:
        hash(found)
    except TypeError:
        return None
    return found


_shared: weakref.WeakValueDictionary[tuple[Any, ...], Program] = weakref.WeakValueDictionary()


def shared(program: Program) -> Program:
    """The canonical program for all those with the same equations, in one context.

    Caches compare programs by identity. A body that is staged again, because its function is a new
    closure each time, finds what was derived from an equal one. Equal equations on different lines
    are not shared: reports and errors would name the wrong line. User rules in equations compare by
    function, though they may do something else in another context.
    """
    structure = structure_of(program, lines=True)
    if structure is None:
        return program
    return _shared.setdefault((current().trace_key, program.name, structure), program)


def _form(atom: Atom, number: dict[Any, int]) -> Any:
    if isinstance(atom, Literal):
        return atom.aval, repr(atom.value), exact(atom.value)
    return number[atom]
