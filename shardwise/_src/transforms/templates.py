"""The staged equations of fused functions, cached by the types of their arguments.

A fused function is a function of types: another call with equal types adds equal equations. So
`multiply(x, y)` runs once for each pair of types, and later calls copy its equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.base.caches import exact, make_room, register
from shardwise._src.base.config import numpy_rank_promotion
from shardwise._src.base.context import current
from shardwise._src.core.fused import Fused
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Var

SIZE = 4096
MOST = 64  # equations that are cached per call
_NUMBERS = (bool, int, float)
_STATIC = (bool, int, str, type(None))

templates: dict[tuple, Template | None] = {}
register(__name__, "fused functions", lambda: len(templates), templates.clear, SIZE)


class Step(NamedTuple):
    """An equation; its inputs are positions of arguments and earlier results, or literals."""

    op: Op
    params: dict[str, Any]
    inputs: tuple[int | Literal, ...]
    type: Any  # the type of the result, if the op has one
    types: tuple[Any, ...]


class Template(NamedTuple):
    """The equations of a call, and the position of its result."""

    steps: tuple[Step, ...]
    result: int


def key_of(
    fused: Fused, interpreter: Any, tracer: type, args: Sequence[Any], static: dict[str, Any]
) -> tuple | None:
    """Everything the equations of a call depend on; None if they may depend on more.

    tracer: the class of the interpreter's own tracers.
    """
    n = fused.arrays
    key: list[Any] = [fused, current().trace_key]
    seen: list[Any] = []
    for a in args if len(args) <= n else args[:n]:
        kind = a.__class__
        if kind is tracer and a.interpreter is interpreter:
            key.append(a.aval)
            if seen and a.variable in seen:  # x * x is not x * y
                key.append(seen.index(a.variable))
            seen.append(a.variable)
        elif kind in _NUMBERS:
            key += (a, exact(a))
        else:
            return None
    if static or len(args) > n:
        rest = (*args[n:], *static.values())
        if not all(map(_is_plain, rest)):
            return None
        key += (*static, rest, exact(rest))
    return tuple(key)


def _is_plain(value: Any) -> bool:
    if value.__class__ is tuple:
        return all(map(_is_plain, value))
    return value.__class__ in _STATIC


def keep(key: tuple, args: Sequence[Any], equations: Sequence[Equation], result: Any) -> None:
    """Caches the equations that a call added, if the call did nothing else."""
    make_room(templates, SIZE)
    templates[key] = _template(args, equations, result)


def _template(args: Sequence[Any], equations: Sequence[Equation], result: Any) -> Template | None:
    if len(equations) > MOST or numpy_rank_promotion.value != "allow":  # which may warn
        return None
    places: dict[Any, int] = {}
    for i, a in enumerate(args):
        if (variable := getattr(a, "variable", None)) is not None:
            places.setdefault(variable, i)
    count, steps = len(args), []
    for eqn in equations:
        op = eqn.op
        if op.stage is not None or op.programs or op.user_code or op.host is not None:
            return None
        inputs: Any = tuple([places.get(a, a) for a in eqn.invars])
        if any(a.__class__ is Var for a in inputs):  # it captured a value from outside
            return None
        types = tuple([v.aval for v in eqn.outvars])
        steps.append(Step(op, eqn.params, inputs, None if op.multiple else types[0], types))
        for v in eqn.outvars:
            places[v] = count
            count += 1
    place = places.get(getattr(result, "variable", None))
    return None if place is None else Template(tuple(steps), place)
