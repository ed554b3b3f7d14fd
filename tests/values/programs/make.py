"""A random program from a seed, as source that can be run, read and reduced."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, nn
from tests.values.programs.draw import DTYPES, MOST, Draw, dtype_of, shapes, value
from tests.values.programs.facts import Fact, Rule, Unfit, Var, unfit_if
from tests.values.programs.steps import STEPS, Step, Written

NAMES = {"np": np, "sw": sw, "jnp": jnp, "lax": lax, "nn": nn}
DEEPEST = 2


@dataclass(frozen=True)
class Line:
    """One or several names, and the expression that they are assigned."""

    targets: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Program:
    """A function of NumPy arrays.

    facts: of every name, as far as two runs are compared.
    """

    inputs: Mapping[str, np.ndarray]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    facts: Mapping[str, Fact]

    def source(self) -> str:
        """`def f(…)`, with names that jax has too."""
        body = [f"    {', '.join(line.targets)} = {line.text}" for line in self.lines]
        results = ", ".join(self.outputs) + ("," if len(self.outputs) == 1 else "")
        return "\n".join([f"def f({', '.join(self.inputs)}):", *body, f"    return {results}\n"])

    def function(self, **names: Any) -> Callable[..., Any]:
        space = {**NAMES, **names}
        exec(compile(self.source(), "<program>", "exec"), space)
        return space["f"]


def program(seed: int) -> Program:
    """The program of a seed; it is the same on every machine."""
    rng = random.Random(f"program {seed}")
    draw = Draw(rng, [])
    inputs: dict[str, np.ndarray] = {}
    forms = shapes(draw)
    names = rng.choices(list(DTYPES), list(DTYPES.values()), k=3)
    for i in range(rng.choice([1, 2, 2, 3])):
        dtype = dtype_of(names[0] if i and draw.often() else names[i])
        name = "abc"[i]
        inputs[name], fact = value(draw, forms[i], dtype)
        draw.vars.append(Var(name, forms[i], dtype, fact))
    if draw.often(0.4):
        draw.favourite = rng.choice("abc"[: len(inputs)])
    lines = []
    for _ in range(rng.randint(2, 8)):
        line, made = one_line(draw, len(lines))
        lines.append(line)
        draw.vars += made
    facts = {v.name: v.fact for v in draw.vars}
    return Program(inputs, tuple(lines), _outputs(draw, len(inputs)), facts)


def _outputs(draw: Draw, inputs: int) -> tuple[str, ...]:
    """Most computed values, and some unchanged arguments."""
    arguments = [v.name for v in draw.vars[:inputs] if draw.often(0.3)]
    rest = [v.name for v in draw.vars[inputs:]]
    made = [name for name in rest if draw.often(0.7)] or rest[-1:]
    found = arguments + made
    draw.rng.shuffle(found)
    return tuple(found)


def one_line(draw: Draw, number: int) -> tuple[Line, list[Var]]:
    """Steps are tried until one suits."""
    for _ in range(200):
        try:
            text, rules = _choose(draw, list(STEPS.values())).write(draw)
            several = rules if isinstance(rules, list) else [rules]
            types = types_of(text, draw.vars)
            targets = [f"v{number}"] if len(several) == 1 else [f"v{number}{c}" for c in "ab"]
            made = [_var(n, t, rule) for n, t, rule in zip(targets, types, several, strict=True)]
            return Line(tuple(targets), text), made
        except Unfit:
            continue
    raise Unfit("no step suits")


def _choose(draw: Draw, steps: Sequence[Step]) -> Step:
    return draw.rng.choices(steps, [s.weight for s in steps])[0]


def _var(name: str, type_: Any, rule: Rule) -> Var:
    shape, dtype = tuple(type_.shape), np.dtype(type_.dtype)
    unfit_if(int(np.prod(shape)) > MOST or len(shape) > 4 or dtype.itemsize > 8)
    return Var(name, shape, dtype, rule(dtype))


REFUSED: list[str] = []  # expressions that the library rejected, for authors of steps


def types_of(text: str, vars: Sequence[Var]) -> list[Any]:
    """Types of an expression's results; raises Unfit if it is invalid."""
    known = {v.name: sw.ShapeDtypeStruct(v.shape, v.dtype) for v in vars if v.name in text}
    try:
        found = sw.eval_shape(lambda given: eval(text, {**NAMES, **given}), known)
    except (TypeError, ValueError, NotImplementedError, IndexError) as error:
        REFUSED.append(f"{text}\n    {known}\n    {str(error).splitlines()[:1]}")
        raise Unfit from None
    return list(found) if isinstance(found, tuple | list) else [found]


def inner_step(
    draw: Draw,
    vars: Sequence[Var],
    allow: Callable[[Step], bool] = lambda s: True,
    like: Var | None = None,
) -> Written:
    """A step with one result over these values, for a body; `like`: of this shape and dtype."""
    unfit_if(draw.depth >= DEEPEST)
    steps = [s for s in STEPS.values() if allow(s)]
    inside = Draw(draw.rng, vars)
    inside.depth = draw.depth + 1
    for _ in range(20):
        try:
            text, rule = _choose(draw, steps).write(inside)
            if isinstance(rule, list):
                text, rule = f"{text}[0]", rule[0]
            (found,) = types_of(text, vars)
            _var("", found, rule)
        except Unfit:
            continue
        if like is None or (found.shape, np.dtype(found.dtype)) == (like.shape, like.dtype):
            return text, rule
    raise Unfit
