"""Forward mode: values travel with their tangents.

A tangent of None is a symbolic zero; integer and boolean values always have None. A value whose
tangents are all zero is passed to the parent unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.context import CURRENT, current
from shardwise._src.core.infer import type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.messages.source import Site, user_site
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.tracer import Tracer


class JVPTracer(Tracer):
    """A primal value and its tangent."""

    __slots__ = ("primal", "tangent", "_site")

    def __init__(self, interpreter: JVP, primal: Any, tangent: Any, site: Site | None = None):
        self.interpreter = interpreter
        self.aval = type_of(primal)
        self.primal = primal
        self.tangent = tangent
        self._site = site or user_site(4)

    def made_at(self) -> Site | None:
        return self._site

    def concrete(self) -> Any:
        primal = self.primal
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def hider(self) -> Tracer:
        return self.primal.hider() if isinstance(self.primal, Tracer) else self


class JVP(Interpreter):
    """Applies each op's `jvp` rule, with the parent as interpreter."""

    __slots__ = ()

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        primals, tangents, active = [], [], False
        for a in args:
            if a.__class__ is JVPTracer and a.interpreter is self:
                primals.append(a.primal)
                tangents.append(a.tangent)
                active = True
            else:
                primals.append(a)
                tangents.append(None)
        if not active:
            return self.parent.process(op, args, params)
        if op.jvp is None:
            raise op.missing("jvp", self.transform)
        token = CURRENT.set(self.parent_context())
        try:
            out, tangent = op.jvp(op, primals, tangents, **params)
        finally:
            CURRENT.reset(token)
        if op.multiple:
            return [self.wrap(o, t) for o, t in zip(out, tangent, strict=True)]
        return self.wrap(out, tangent)

    def wrap(self, primal: Any, tangent: Any, site: Site | None = None) -> Any:
        if tangent is None:
            return primal
        tracer = JVPTracer(self, primal, tangent, site)
        t = tracer.aval
        if t.mesh is not None or t.varying is not type_of(tangent).varying:
            tracer.tangent = reshard_like(tangent, t)
            if names := type_of(tangent).varying - t.varying:
                return JVPTracer(self, pvary(primal, names), tangent, site)
        return tracer

    def unwrap(self, x: Any) -> tuple[Any, Any]:
        if x.__class__ is JVPTracer and x.interpreter is self:
            return x.primal, x.tangent
        return x, None


def push_forward(
    fun: Callable,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    parent: Interpreter,
    transform: str = "jvp",
    name: str = "f",
    forward: type[JVP] = JVP,
    site: Site | None = None,
) -> tuple[list[Any], list[Any]]:
    """Runs `fun(*primals) -> list` and its tangents; None in and out means zero."""
    interpreter = forward(parent, transform, name, site)
    with interpreter.entered():
        pairs = _run(interpreter, fun, primals, tangents)
    reject_leaks(interpreter)
    return [p for p, _ in pairs], [t for _, t in pairs]


def _run(
    interpreter: JVP, fun: Callable, primals: Sequence[Any], tangents: Sequence[Any]
) -> list[tuple[Any, Any]]:
    site = interpreter.site  # the site of the call, for the arguments
    outs = fun(*[interpreter.wrap(p, t, site) for p, t in zip(primals, tangents, strict=True)])
    return [interpreter.unwrap(x) for x in outs]


@derived
def jvp_program(program: Program, nonzero: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """The program of values and tangents of a program.

    nonzero: which arguments have a tangent. The new program takes the arguments and then their
    tangents; it returns the results and then the nonzero tangents, which the second result marks.
    """
    types, marks = program.in_types, []

    def run(*args: Any) -> list[Any]:
        given = iter(args[len(types) :])
        tangents = [next(given) if has else None for has in nonzero]
        primals, stager = args[: len(types)], current().interpreter
        outs, found = push_forward(program, primals, tangents, stager, "jvp", program.name)
        marks.extend([t is not None for t in found])
        return outs + [t for t in found if t is not None]

    more = [t.strong() for t, has in zip(types, nonzero, strict=True) if has]
    return program_of(run, [*types, *more], program.name, "jvp"), tuple(marks)
