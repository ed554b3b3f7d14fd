"""Tools for ops that hold programs: adding equations, opening constants, sharing equal programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import infer
from shardwise._src.core.op import Op
from shardwise._src.core.program import Atom, Equation, Literal, Program, Var
from shardwise._src.core.structure import structure_of
from shardwise._src.messages.source import user_site
from shardwise._src.numpy.convert import cast
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.sharding import reshard, settle
from shardwise._src.transforms.jvp import DETACHED
from shardwise._src.transforms.stage import Stage, split_captures
from shardwise._src.types.array_type import ArrayType, array_type


class Extension:
    """A program's equations with some more after them."""

    def __init__(self, program: Program):
        self.name = program.name
        self.equations = list(program.equations)

    def bind(self, op: Op, *atoms: Atom, **params: Any) -> Var:
        """Adds an equation with one result."""
        out = Var(infer(op, tuple([a.aval for a in atoms]), params))
        self.equations.append(Equation(op, atoms, (out,), params, user_site(2)))
        return out

    def zeros(self, aval: ArrayType) -> Atom:
        zero: Atom = Literal(np.zeros((), aval.dtype)[()], array_type((), aval.dtype))
        if aval.shape:
            zero = self.bind(broadcast_in_dim, zero, shape=aval.shape, dims=())
        return self.fitted(zero, aval)

    def fitted(self, atom: Atom, aval: ArrayType) -> Atom:
        """The atom as exactly `aval`, which differs at most in dtype, weakness and sharding."""
        if (atom.aval.dtype, atom.aval.weak_type) != (aval.dtype, aval.weak_type):
            atom = self.bind(convert_element_type, atom, dtype=aval.dtype, weak=aval.weak_type)
        return self.settled(atom, aval)

    def settled(self, atom: Atom, aval: ArrayType) -> Atom:
        """The atom with the sharding of `aval`."""
        if atom.aval.mesh is aval.mesh and atom.aval.spec is aval.spec:
            return atom
        return self.bind(reshard, atom, sharding=aval.sharding)

    def program(self, inputs: Sequence[Var], outputs: Sequence[Atom]) -> Program:
        return Program(inputs, outputs, self.equations, (), self.name)


def fit(x: Any, t: ArrayType) -> Any:
    """The value as exactly of type `t`, from which it differs at most as `Extension.fitted` says.

    Tangents and cotangents that users give may be weak; those of programs are not.
    """
    return settle(cast(x, t.dtype, t.weak_type), t)


def with_results(
    program: Program, count: int, marks: Sequence[bool], wanted: Sequence[bool],
    types: Sequence[ArrayType],
) -> Program:
    """The program with the results that are wanted, after its first `count`.

    marks: which of these it has; of the others, zeros of the types.
    """
    new = Extension(program)
    found = iter(program.outputs[count:])
    outputs = list(program.outputs[:count])
    for has, want, t in zip(marks, wanted, types, strict=True):
        atom = next(found) if has else None
        if want:
            outputs.append(new.zeros(t) if atom is None else new.fitted(atom, t))
    return Program(program.inputs, outputs, new.equations, program.constants, program.name)


def any_of(rows: Sequence[Sequence[bool]]) -> tuple[bool, ...]:
    """Which columns have a mark in some row."""
    return tuple([any(column) for column in zip(*rows, strict=True)])


def program_of(fun: Callable, types: Sequence[ArrayType], name: str) -> Program:
    """The program of `fun(*values) → list`, a function over ops that takes nothing from outside."""
    stager = Stage(DETACHED, "program", name)
    with stager.entered():
        found, captured = stager.finish(fun(*map(stager.new_input, types)))
    return split_captures(found, captured)[0]


def opened(program: Program) -> tuple[Program, list[Any]]:
    """The program with its constants as its first arguments, and their values."""
    if not program.constants:
        return program, []
    new = Program(program.inputs, program.outputs, program.equations, (), program.name)
    return new, list(program.constants)


_shared: weakref.WeakValueDictionary[tuple, Program] = weakref.WeakValueDictionary()


def shared(program: Program) -> Program:
    """The one program that stands for all that have the same equations, in one context.

    Caches compare programs by identity. A body that is staged anew, because its function is a new
    closure each time, finds what was derived from an equal one. Rules of users that equations hold
    count as equal by function, though they may do something else in another context.
    """
    structure = structure_of(program)
    if structure is None:
        return program
    return _shared.setdefault((current().trace_key, program.name, structure), program)
