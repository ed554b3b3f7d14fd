"""Ops on bits and booleans, comparisons, and selection between values."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.ops.families import (
    BOOL,
    INTEGER,
    LOGICAL,
    REAL,
    binary,
    check_domain,
    common_dtype,
    common_shape,
    comparison,
    elementwise,
    elementwise_dims,
    fit_tangent,
    linear_dims,
    lit,
    nary_jvp,
    operand,
    unary,
    unbroadcast,
)
from shardwise._src.ops.sharded.sharding_ops import unreduced_like
from shardwise._src.types.array_type import ArrayType, array_type, join_types

# -- comparison: NaN compares unequal to everything --

eq = comparison("eq", "EQ", Elements.EQUAL)
ne = comparison("ne", "NE", Elements.UNEQUAL)
lt = comparison("lt", "LT")
le = comparison("le", "LE")
gt = comparison("gt", "GT")
ge = comparison("ge", "GE")

# -- bitwise operations; logical operations on booleans --

bitwise_not = unary("not", LOGICAL, jvp="zero")
bitwise_and = binary("and", LOGICAL, jvp="zero")
bitwise_or = binary("or", LOGICAL, jvp="zero")
bitwise_xor = binary("xor", LOGICAL, jvp="zero")
population_count = unary("population_count", INTEGER, hlo="popcnt", jvp="zero")
clz = unary("clz", INTEGER, hlo="count_leading_zeros", jvp="zero")

# Shifts by the width or more return 0, or the sign if the shift is arithmetic.
shift_left = binary("shift_left", INTEGER, jvp="zero")
shift_right_logical = binary("shift_right_logical", INTEGER, jvp="zero")
shift_right_arithmetic = binary("shift_right_arithmetic", INTEGER, jvp="zero")


# -- select_n: the case that `which` selects; for a boolean, False selects the first --


def _select_type(op: Op, which: ArrayType, *cases: ArrayType) -> ArrayType:
    if not cases:
        raise TypeError("[select_n] takes at least one case; got none.")
    if which.dtype != BOOL and which.dtype != np.int32:
        raise TypeError(
            f"[select_n] the selector must be boolean or int32; got {join_types((which,))}."
        )
    if which.dtype == BOOL and len(cases) > 2:
        raise TypeError(f"[select_n] a boolean selector needs 2 cases; got {len(cases)}.")
    dtype = common_dtype("select_n", cases)
    shape = common_shape("select_n", (which, *cases))
    return array_type(shape, dtype, all(c.weak_type for c in cases))


def _select_lower(op: Op, e: Any, ins: Any, outs: Any, which: str, *cases: str) -> str:
    (out,) = outs
    values = [operand(e, x, t, out) for x, t in zip(cases, ins[1:], strict=True)]
    wide = out.update(dtype=ins[0].dtype)
    return _choose(e, wide, out, operand(e, which, ins[0], wide), values, 0)


def _choose(
    e: Any, index: ArrayType, out: ArrayType, which: str, cases: list[str], first: int
) -> str:
    """A tree of two-way selects; `cases[0]` is case number `first`."""
    if len(cases) == 1:
        return cases[0]
    if index.dtype == BOOL:
        return e.select(which, cases[1], cases[0], out)
    half = len(cases) // 2
    pred = e.compare("LT", which, e.constant(first + half, index), index)
    low = _choose(e, index, out, which, cases[:half], first)
    high = _choose(e, index, out, which, cases[half:], first + half)
    return e.select(pred, low, high, out)


def _select_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    which, *cases = primals
    out = select_n(*primals)
    if all(t is None for t in tangents[1:]):
        return out, None
    pairs = zip(cases, tangents[1:], strict=True)
    tangent = select_n(which, *[lit(0, c) if t is None else t for c, t in pairs])
    return out, fit_tangent(tangent, out)


def _select_transpose(op: Op, ct: Any, which: Any, *cases: Any) -> list[Any]:
    zero = unreduced_like(lit(0, ct), ct)

    def part(i: int) -> Any:
        return select_n(which, *[ct if i == j else zero for j in range(len(cases))])

    return [
        None,
        *[unbroadcast(part(i), c.aval) if is_linear(c) else None for i, c in enumerate(cases)],
    ]


select_n = elementwise(
    "select_n",
    elements=Elements.MOVED,
    type_rule=_select_type,
    dims=lambda op, which, *cases: linear_dims(tuple(range(1, len(cases) + 1)))(op, which, *cases),
    lower=_select_lower,
    jvp=_select_jvp,
    transpose=_select_transpose,
)


def where(pred: Any, x: Any, y: Any) -> Any:
    """`x` where `pred` holds, else `y`: the argument order that rules read best in."""
    return select_n(pred, y, x)


# -- clamp: `x` limited to between `low` and `high`; if they cross, `high` --


def _clamp_type(op: Op, low: ArrayType, x: ArrayType, high: ArrayType) -> ArrayType:
    types = (low, x, high)
    check_domain("clamp", REAL, types)
    weak = all(t.weak_type for t in types)
    return array_type(common_shape("clamp", types), common_dtype("clamp", types), weak)


def _clamp_lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> str:
    low, x, high = [operand(e, x, t, outs[0]) for x, t in zip(xs, ins, strict=True)]
    return e.let(f"stablehlo.clamp {low}, {x}, {high} : {e.ty(outs[0])}")


clamp = elementwise(
    "clamp",
    type_rule=_clamp_type,
    dims=elementwise_dims,
    lower=_clamp_lower,
    jvp=nary_jvp(
        (
            lambda t, low, x, high, out: where(
                bitwise_and(gt(low, x), lt(low, high)), t, lit(0, t)
            ),
            lambda t, low, x, high, out: where(bitwise_and(gt(x, low), lt(x, high)), t, lit(0, t)),
            lambda t, low, x, high, out: where(lt(high, x), t, lit(0, t)),
        )
    ),
)
