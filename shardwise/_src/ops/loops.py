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


def iterate(
    e: Any, body: Callable, types: Sequence[ArrayType], state: Sequence[str], **params: Any
) -> list[str]:
    """Repeats `body` while any element of the first value is true, at most `STEPS` times.

    params: static arguments of `body`.
    """
    scalar = array_type((), INT32)
    names = [e.fresh() for _ in range(len(state) + 1)]
    start = [e.constant(0, scalar), *state]
    pairs = ", ".join(f"{n} = {v}" for n, v in zip(names, start, strict=True))
    texts = ", ".join(e.ty(t) for t in (scalar, *types))

    def condition() -> None:
        axes = tuple(range(types[0].ndim))
        some = e.reduce(names[1], types[0], axes, "or", False)
        limit, ty = e.constant(STEPS, scalar), e.ty(scalar)
        early = e.let(f"stablehlo.compare LT, {names[0]}, {limit} : ({ty}, {ty}) -> tensor<i1>")
        more = e.let(f"stablehlo.and {some}, {early} : tensor<i1>")
        e.lines.append(f"stablehlo.return {more} : tensor<i1>")

    def step() -> None:
        count = e.let(f"stablehlo.add {names[0]}, {e.constant(1, scalar)} : {e.ty(scalar)}")
        new = e.via(body, types, *names[1:], **params)
        e.lines.append(f"stablehlo.return {', '.join([count, *new])} : {texts}")

    regions = f"cond {{\n{e.region(condition)}\n}} do {{\n{e.region(step)}\n}}"
    return e.lets(f"stablehlo.while({pairs}) : {texts}\n{regions}", len(names))[1:]


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
    scalar = array_type((), INT32)
    names = [e.fresh() for _ in range(len(state) + 1)]
    start = [e.constant(0, scalar), *state]
    pairs = ", ".join(f"{n} = {v}" for n, v in zip(names, start, strict=True))
    texts, ty = ", ".join(e.ty(t) for t in (scalar, *types)), e.ty(scalar)

    def condition() -> None:
        limit = e.constant(count, scalar)
        more = e.let(f"stablehlo.compare LT, {names[0]}, {limit} : ({ty}, {ty}) -> tensor<i1>")
        e.lines.append(f"stablehlo.return {more} : tensor<i1>")

    def step() -> None:
        new = e.via(body, (scalar, *types), *names, **params)
        following = e.let(f"stablehlo.add {names[0]}, {e.constant(1, scalar)} : {ty}")
        e.lines.append(f"stablehlo.return {', '.join([following, *new])} : {texts}")

    regions = f"cond {{\n{e.region(condition)}\n}} do {{\n{e.region(step)}\n}}"
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
