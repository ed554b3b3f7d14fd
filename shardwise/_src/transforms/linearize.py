"""Linearization: known values are computed immediately, ops on tangents are staged.

`Linearize` stages only the ops that touch one of its own tracers; all others go to the parent. With
`JVP` on top, the known part of a function runs (or is staged, under `jit`) in the parent, and the
linear part becomes a program that maps input tangents to output tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.messages.source import transforming
from shardwise._src.transforms.jvp import JVP, push_forward
from shardwise._src.transforms.stage import DETACHED, Stage, StageTracer, split_captures
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.values.convert import strip_weak_type


class Linearize(Stage):
    """Stages ops that depend on its tracers; the parent runs all others.

    steps: what a `Tape` on top has recorded but not yet written as equations, or None.
    whole: whether these are all steps.
    """

    is_apart = False
    __slots__ = ("steps", "whole")

    def __init__(self, parent: Interpreter, transform: str, function: str):
        super().__init__(parent, transform, function)
        self.steps: Any = None
        self.whole = True

    call = Interpreter.call  # only some of the ops become equations

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        for a in args:
            if a.__class__ is StageTracer and a.interpreter is self:
                break
        else:
            return self.parent.process(op, args, params)
        if op.partial_eval is not None and not self.all_unknown(args):
            return op.partial_eval(op, self, args, params)
        if op.stage is not None:
            args, params = op.stage(op, self, args, params)
        return self.record(op, args, params)

    def record(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        if self.steps is not None:
            self.steps.write(self)
            self.whole = False
        return super().record(op, args, params)

    def finish(self, outputs: Sequence[Any], name: str = "") -> tuple[Program, list[Any]]:
        if self.steps is not None:
            if self.whole and self.all_unknown(outputs):
                return self.steps.program(self, outputs)
            self.steps.write(self)
        return super().finish(outputs, name)

    def is_unknown(self, x: Any) -> bool:
        return x.__class__ is StageTracer and x.interpreter is self

    def all_unknown(self, args: Sequence[Any]) -> bool:
        return all(self.is_unknown(a) for a in args)

    def known(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Has the parent run an op whose arguments are all known."""
        return self.parent.process(op, tuple(args), params)


@dataclass(eq=False, slots=True)
class LinearFunction:
    """The linear part of a function: `program` maps tangents to tangents.

    captured:  values of the program's first inputs (residuals).
    active_in: which of the function's inputs have a tangent input in the program.
    active_out: which results have a nonzero tangent.
    """

    program: Program
    captured: Sequence[Any]
    in_types: Sequence[ArrayType]
    out_types: Sequence[ArrayType]
    active_in: Sequence[bool]
    active_out: Sequence[bool]

    def at(self, captured: Sequence[Any]) -> LinearFunction:
        """The function with different residuals."""
        return replace(self, captured=captured)

    def __call__(self, tangents: Sequence[Any]) -> list[Any]:
        """Output tangents (None for zero) for input tangents; inactive inputs are ignored."""
        pairs = zip(tangents, self.active_in, strict=True)
        given = [strip_weak_type(t) for t, active in pairs if active]
        outs = iter(self.program(*self.captured, *given))
        return [next(outs) if active else None for active in self.active_out]


def linearize(
    fun: Callable,
    primals: Sequence[Any],
    transform: str = "grad",
    name: str = "f",
    differentiated: Callable[[], int] | None = None,
    forward: type[JVP] = JVP,
) -> tuple[list[Any], LinearFunction]:
    """Runs `fun(*primals) -> list` and returns the results and the linear part at that point.

    differentiated: how many of the results are (the rest is auxiliary); called after `fun` ran.
    forward: the interpreter of forward mode.
    """
    interpreter = Linearize(current().interpreter, transform, name)
    with interpreter.entered(), transforming("jvp"):
        outs, linear = _run(interpreter, fun, primals, differentiated, forward)
    reject_leaks(interpreter)
    return outs, linear


def _run(
    interpreter: Linearize,
    fun: Callable,
    primals: Sequence[Any],
    differentiated: Callable[[], int] | None,
    forward: type[JVP],
) -> tuple[list[Any], LinearFunction]:
    in_types = [type_of(p) for p in primals]
    active = [is_inexact(t.dtype) for t in in_types]
    tangents = [
        interpreter.new_input(t.strong()) if a else None
        for t, a in zip(in_types, active, strict=True)
    ]
    transform, name = interpreter.transform, interpreter.function
    outs, out_tangents = push_forward(
        fun, primals, tangents, interpreter, transform, name, forward, interpreter.site
    )
    if differentiated is not None:
        out_tangents = out_tangents[: differentiated()]
    program, captured = interpreter.finish([t for t in out_tangents if t is not None])
    out_types = [type_of(o) for o in outs[: len(out_tangents)]]  # the rest may be anything
    marks = [t is not None for t in out_tangents]
    return outs, LinearFunction(program, captured, in_types, out_types, active, marks)


class Split(NamedTuple):
    """A program in two parts, by which of its arguments are known.

    known:       takes the known arguments; returns the known results, then computed residuals.
    rest:        takes the residuals, then the unknown arguments; returns the unknown results.
    unknown_out: which results are unknown.
    forwarded:   per residual, the position of the known argument that it equals, or None if
                 `known` computes it.
    """

    known: Program
    rest: Program
    unknown_out: tuple
    forwarded: tuple

    def residuals(self, known_args: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
        """All residuals, from the known arguments and those that `known` computed."""
        rest = iter(computed)
        return [next(rest) if i is None else known_args[i] for i in self.forwarded]

    def distinct(self) -> tuple[Program, tuple[int, ...]]:
        """`known`, without repeated results, and which of them each computed residual is."""
        return _distinct(self.known, self.unknown_out.count(False))


@derived
def _distinct(known: Program, count: int) -> tuple[Program, tuple[int, ...]]:
    outs = [*known.outvars[:count]]
    at: dict[Any, int] = {v: i for i, v in enumerate(outs)}
    for v in known.outvars[count:]:
        if v not in at:
            at[v] = len(outs)
            outs.append(v)
    program = known if len(outs) == len(known.outvars) else known.replace(outvars=outs)
    return program, tuple([at[v] for v in known.outvars[count:]])


@derived
def split_program(program: Program, unknown: tuple[bool, ...]) -> Split:
    """Splits a program by which arguments are unknown."""
    stager = Stage(DETACHED, "split", program.name)
    with stager.entered():
        interpreter = Linearize(stager, "split", program.name)
        known_in = [
            None if u else stager.new_input(v.aval)
            for v, u in zip(program.invars, unknown, strict=True)
        ]
        with interpreter.entered():
            args = [
                interpreter.new_input(v.aval) if k is None else k
                for v, k in zip(program.invars, known_in, strict=True)
            ]
            outs = program(*args)
            marks = tuple(interpreter.is_unknown(x) for x in outs)
            unknown_outs = [x for x, u in zip(outs, marks, strict=True) if u]
            rest, residuals = interpreter.finish(unknown_outs)
        position: dict[Any, int] = {v: i for i, v in enumerate(stager.inputs)}
        forwarded = tuple(position.get(getattr(r, "variable", None)) for r in residuals)
        computed = [r for r, i in zip(residuals, forwarded, strict=True) if i is None]
        known_outs = [x for x, u in zip(outs, marks, strict=True) if not u]
        known, captured = stager.finish(known_outs + computed)
    return Split(split_captures(known, captured)[0], rest, marks, forwarded)
