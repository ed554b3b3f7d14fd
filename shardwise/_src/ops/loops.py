"""Lowering of elementwise algorithms that iterate until every element has converged, and `gcd`.

    iterate(e, body, types, state)

repeats `body(active, *state) → [active, *state]`, a function over ops, while any element of the
boolean array `active` is true. `repeat` runs a body a fixed number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.elementwise import abs, rem
from shardwise._src.ops.families import BOOL, INTEGER, binary, lit, operand
from shardwise._src.ops.logical import eq, ne, where
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_unsigned

STEPS = 2000  # far more than any element with a sensible result needs
INT32 = np.dtype("int32")


COUNTER = array_type((), INT32)
FLAG = array_type((), BOOL)


def iterate(
    e: Any,
    body: Callable,
    types: Sequence[ArrayType],
    state: Sequence[str],
    most: int = STEPS,
    **params: Any,
) -> list[str]:
    """Repeats `body` while any element of the first value is true, at most `most` times.

    params: static arguments of `body`.
    """

    def more(count: str, active: str, *rest: str) -> str:
        some = e.reduce(active, types[0], tuple(range(types[0].ndim)), "or", False)
        early = e.compare("LT", count, e.constant(most, COUNTER), COUNTER)
        return e.apply("and", FLAG, some, early)

    def step(count: str, *state: str) -> list[str]:
        return e.via(body, types, *state, **params)

    return _counted(e, types, state, more, step)


def repeat(
    e: Any,
    body: Callable,
    count: int,
    types: Sequence[ArrayType],
    state: Sequence[str],
    **params: Any,
) -> list[str]:
    """Runs `body(i, *state) → state`, a function over ops, for i = 0, 1, … count - 1.

    params: static arguments of `body`.
    """

    def more(i: str, *state: str) -> str:
        return e.compare("LT", i, e.constant(count, COUNTER), COUNTER)

    def step(*names: str) -> list[str]:
        return e.via(body, (COUNTER, *types), *names, **params)

    return _counted(e, types, state, more, step)


def _counted(
    e: Any, types: Sequence[ArrayType], state: Sequence[str], more: Callable, step: Callable
) -> list[str]:
    """A loop over a counter and the state: `more` and `step` get both; `step` returns the state."""
    types = (COUNTER, *types)
    names = [e.fresh() for _ in types]
    start = [e.constant(0, COUNTER), *state]
    pairs = ", ".join(f"{n} = {v}" for n, v in zip(names, start, strict=True))
    texts = ", ".join(map(e.ty, types))

    def condition() -> None:
        e.lines.append(f"stablehlo.return {more(*names)} : tensor<i1>")

    def following() -> None:
        new = step(*names)
        count = e.apply("add", COUNTER, names[0], e.constant(1, COUNTER))
        e.lines.append(f"stablehlo.return {', '.join([count, *new])} : {texts}")

    regions = f"cond {{\n{e.region(condition)}\n}} do {{\n{e.region(following)}\n}}"
    return e.lets(f"stablehlo.while({pairs}) : {texts}\n{regions}", len(names))[1:]


# -- gcd: the greatest common divisor of integers, by Euclid's algorithm --


def _gcd_start(x: Any, y: Any) -> list[Any]:
    if not is_unsigned(type_of(x).dtype):
        x, y = abs(x), abs(y)
    return [ne(y, lit(0, y)), x, y]


def _gcd_step(active: Any, x: Any, y: Any) -> list[Any]:
    left = rem(x, where(eq(y, lit(0, y)), lit(1, y), y))
    x, y = where(active, y, x), where(active, left, y)
    return [ne(y, lit(0, y)), x, y]


def _gcd_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> str:
    t = array_type(outs[0].shape, outs[0].dtype)
    args = [operand(e, a, i, t) for a, i in zip((x, y), ins, strict=True)]
    state = e.via(_gcd_start, (t, t), *args)
    return iterate(e, _gcd_step, (t.update(dtype=BOOL), t, t), state)[1]


gcd = binary("gcd", INTEGER, lower=_gcd_lower, jvp="zero")
