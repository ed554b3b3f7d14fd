"""Tools for ops that contain programs: conversion of results and values to required types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.base.marks import picked
from shardwise._src.core.program import Atom, Literal, Program
from shardwise._src.core.program_tools import Rewriting, derived, used
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.sharded.sharding_ops import reshard, reshard_like
from shardwise._src.ops.sharded.varying import casts, pcast
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import constant_of
from shardwise._src.values.convert import cast


class Extension(Rewriting):
    """A program's equations with additional ones after them, which fit values to types."""

    def zeros(self, aval: ArrayType) -> Atom:
        zero: Atom = Literal(constant_of(0, aval.dtype), array_type((), aval.dtype))
        if aval.shape:
            zero = self.bind(broadcast_in_dim, zero, shape=aval.shape, dims=())
        if aval.unreduced:
            zero = self.fit(zero, zero.aval.update(varying=aval.unreduced))
        return self.fit(zero, aval)

    def fit(self, atom: Atom, aval: ArrayType) -> Atom:
        """The atom as exactly `aval`, which may only differ in dtype, weak type, sharding, and
        states along manual axes to which a value can be cast.
        """
        if (atom.aval.dtype, atom.aval.weak_type) != (aval.dtype, aval.weak_type):
            atom = self.bind(convert_element_type, atom, dtype=aval.dtype, weak=aval.weak_type)
        for names, to in casts(atom.aval, aval):
            atom = self.bind(pcast, atom, names=names, to=to)
        if atom.aval.mesh is aval.mesh and atom.aval.spec is aval.spec:
            return atom
        return self.bind(reshard, atom, sharding=aval.explicit_sharding)


def fit(x: Any, t: ArrayType) -> Any:
    """The value as exactly type `t`; it may differ at most as in `Extension.fit`.

    Tangents and cotangents from users may be weak; those of programs are not.
    """
    return reshard_like(cast(x, t.dtype, t.weak_type), t)


@derived
def read_inputs(program: Program) -> tuple[bool, ...]:
    """Which of its arguments a program uses."""
    read = used(program)
    return tuple([v in read for v in program.invars])


@derived
def with_inputs(program: Program, kept: tuple[bool, ...]) -> Program:
    """The program with some of its arguments only, among them all that it uses."""
    return program.replace(inputs=[*program.constvars, *picked(program.invars, kept)])


def with_results(
    program: Program,
    count: int,
    marks: Sequence[bool],
    wanted: Sequence[bool],
    types: Sequence[ArrayType],
) -> Program:
    """The program with the requested results after its first `count`.

    marks: which of these it has; the others are zeros of their types.
    """
    new = Extension(program.eqns)
    found = iter(program.outvars[count:])
    outputs = list(program.outvars[:count])
    for has, want, t in zip(marks, wanted, types, strict=True):
        atom = next(found) if has else None
        if want:
            outputs.append(new.zeros(t) if atom is None else new.fit(atom, t))
    return program.replace(outvars=outputs, eqns=new.eqns)


def any_of(rows: Sequence[Sequence[bool]]) -> tuple[bool, ...]:
    """Which columns have a mark in some row."""
    return tuple([any(column) for column in zip(*rows, strict=True)])


def parts(values: Sequence[Any], first: int, second: int) -> tuple[Any, Any, Any]:
    """Splits a sequence in three: the constants, carry and xs of a loop."""
    end = first + second
    return values[:first], values[first:end], values[end:]


class ScanParams(NamedTuple):
    """The parameters of the op `scan`."""

    body: Program
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    unroll: int

    def parts(self, values: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Those of the constants, of the carry, and of the xs."""
        return parts(values, self.num_consts, self.num_carry)


class WhileParams(NamedTuple):
    """The parameters of the op `while_loop`."""

    test: Program
    body: Program
    num_test: int
    num_body: int

    def parts(self, values: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Those of the constants of the test, of the constants of the body, and of the carry."""
        return parts(values, self.num_test, self.num_body)
