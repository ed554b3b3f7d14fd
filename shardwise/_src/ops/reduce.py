"""Reductions over the dimensions `axes`, which are removed; `reduce_sum` is in `basis`.

    reduce_max(x, axes=(0,))                              # f32[3] of a f32[2,3]
    argmax(x, axes=(1,), index_dtype=np.dtype("int32"))   # i32[2]

A reduction of no elements returns its identity; the functions of shardwise.numpy raise an error
where NumPy does. `control.generic_reduce` is the reduction with a user function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import (
    batch_axes,
    broadcast_in_dim,
    check_axes,
    reduce_dims,
    reduce_sum,
    reduced,
    reshape,
)
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import (
    ANY,
    BOOL,
    LOGICAL,
    NUMERIC,
    ORDERED,
    Domain,
    add,
    check_domain,
    lit,
)
from shardwise._src.ops.rules import zero_jvp
from shardwise._src.ops.shape import along, pad, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import is_complex, is_integer, max_value, min_value, short_name


def reduction(
    name: str,
    domain: Domain,
    combining: Op,
    *,
    hlo: str,
    identity: Callable,
    combine: str,
    jvp: Callable | None = None,
) -> Op:
    """An op that reduces `axes`.

    combining: the elementwise op that it reduces with.
    hlo:       its name in StableHLO, for the short form of the text.
    identity:  the neutral element of a dtype.
    combine:   how partial results are combined (see `Dims`).
    """

    def type_rule(op: Op, x: ArrayType, *, axes: tuple) -> ArrayType:
        check_domain(op.name, domain, (x,))
        check_axes(op.name, x, axes)
        return array_type(reduced(x, axes), x.dtype, x.weak_type)

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, axes: tuple) -> str:
        value = identity(ins[0].dtype)

        def write(ins: Any, outs: Any, x: str) -> str:
            if not is_complex(ins[0].dtype) or hlo == "multiply":
                return e.reduce(x, ins[0], axes, hlo, value)
            return e.reduce_by(body_of(combining), [x], ins, [value], axes)[0]

        return e.widened(op, ins, outs, [x], write)[0]

    return Op(
        name,
        own_values=True,
        type_rule=type_rule,
        dims=reduce_dims(combine),
        lower=lower,
        jvp=jvp,
        batch=batch_axes,
    )


def body_of(op: Op) -> Callable:
    """Writes a scalar binary op as the body of a reduction."""

    def write(e: Any, types: Any, x: str, y: str) -> list[str]:
        if op.lower is None:
            raise op.missing("lower", "compilation")
        (t,) = types
        return [cast("str", op.lower(op, e, (t, t), (t,), x, y))]

    return write


def spread(x: Any, shape: tuple, axes: tuple) -> Any:
    """A reduced value in the shape before `axes` were removed."""
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    return broadcast_in_dim(x, shape=shape, dims=kept)


# -- maximum and minimum: equal elements share the tangent --


def _extremum_jvp(op: Op, primals: Any, tangents: Any, *, axes: tuple) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    out = op(x, axes=axes)
    taken = ew.eq(x, spread(out, type_of(x).shape, axes))
    share = convert_element_type(taken, dtype=type_of(t).dtype)
    total = reduce_sum(ew.mul(t, share), axes=axes)
    return out, ew.div(total, reduce_sum(share, axes=axes))


reduce_max = reduction(
    "reduce_max", ANY, ew.max, hlo="maximum", identity=min_value, combine="max", jvp=_extremum_jvp
)
reduce_min = reduction(
    "reduce_min", ANY, ew.min, hlo="minimum", identity=max_value, combine="min", jvp=_extremum_jvp
)

# -- the product --


def _prod_jvp(op: Op, primals: Any, tangents: Any, *, axes: tuple) -> tuple[Any, Any]:
    """By a tree of products with their tangents, so that zeros among the factors are harmless."""
    (x,), (t,) = primals, tangents
    out = op(x, axes=axes)
    p = x
    for axis in axes:
        if type_of(x).shape[axis] == 0:
            return out, reduce_sum(t, axes=axes)
        while type_of(p).shape[axis] > 1:
            (p1, p2), (t1, t2) = _halves(p, 1, axis), _halves(t, 0, axis)
            p, t = ew.mul(p1, p2), add(ew.mul(t1, p2), ew.mul(p1, t2))
    return out, reshape(t, shape=type_of(out).shape)


def _halves(x: Any, filler: int, axis: int) -> tuple[Any, Any]:
    """Two halves of equal size along `axis`, padded if the size is odd."""
    shape = type_of(x).shape
    half = -(-shape[axis] // 2)
    if shape[axis] % 2:
        config = tuple((0, int(i == axis), 0) for i in range(len(shape)))
        x = pad(x, lit(filler, x), padding_config=config)
    return slice_in_dim(x, 0, half, axis), slice_in_dim(x, half, 2 * half, axis)


reduce_prod = reduction(
    "reduce_prod",
    NUMERIC,
    ew.mul,
    hlo="multiply",
    identity=lambda d: 1,
    combine="mul",
    jvp=_prod_jvp,
)

# -- bitwise reductions; all, any and parity for booleans --


def all_ones(dtype: Any) -> Any:
    return np.ones((), bool) if dtype == BOOL else np.invert(np.zeros((), dtype))


reduce_and = reduction(
    "reduce_and", LOGICAL, ew.bitwise_and, hlo="and", identity=all_ones, combine="and"
)
reduce_or = reduction(
    "reduce_or", LOGICAL, ew.bitwise_or, hlo="or", identity=lambda d: 0, combine="or"
)
reduce_xor = reduction(
    "reduce_xor", LOGICAL, ew.bitwise_xor, hlo="xor", identity=lambda d: 0, combine="xor"
)

# -- index of the maximum or minimum: the first of equals; a NaN counts as both --


def _place(name: str, direction: str, identity: Callable) -> Op:
    def type_rule(op: Op, x: ArrayType, *, axes: tuple, index_dtype: Any) -> ArrayType:
        check_domain(op.name, ORDERED, (x,))
        check_axes(op.name, x, axes)
        if len(axes) != 1 or x.shape[axes[0]] == 0:
            raise ValueError(
                f"[{name}] takes one axis of nonzero size; got axes {axes} of {x.str_short(True)}."
            )
        if not is_integer(index_dtype):
            raise TypeError(
                f"[{name}] index_dtype must be an integer type; got {short_name(index_dtype)}."
            )
        return array_type(reduced(x, axes), index_dtype)

    def body(e: Any, types: Any, x: str, i: str, y: str, j: str) -> list[str]:
        value, index = types
        flag = array_type((), BOOL)
        wins = e.compare(direction, x, y, value)
        first = e.apply("or", flag, wins, e.compare("NE", x, x, value))
        tie = e.compare("EQ", x, y, value)
        tie = e.apply("and", flag, tie, e.compare("LT", i, j, index))
        earlier = e.apply("or", flag, first, tie)
        return [e.select(first, x, y, value), e.select(earlier, i, j, index)]

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, axes: tuple, index_dtype: Any) -> str:
        t = ins[0]
        places = t.update(dtype=index_dtype, weak_type=False)
        iota = e.iota(places, axes[0])
        worst = [identity(t.dtype), 0]
        return e.reduce_by(body, [x, iota], (t, places), worst, axes)[1]

    def dims(op: Op, x: ArrayType, *, axes: tuple, index_dtype: Any) -> Dims:
        names = along(x, axes)
        out = tuple(n for i, n in enumerate(names) if i not in axes)
        return Dims((names,), (out,), worked="dropped")

    return Op(name, type_rule=type_rule, dims=dims, lower=lower, jvp=zero_jvp, batch=batch_axes)


argmax = _place("argmax", "GT", min_value)
argmin = _place("argmin", "LT", max_value)
