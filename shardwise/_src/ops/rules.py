"""Rules that many ops share, and functions that make such rules (see `core/op.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def same_type(op: Op, x: ArrayType, **params: Any) -> ArrayType:
    """The type rule of an identity."""
    return x


def elementwise_dims(op: Op, *types: ArrayType, **params: Any) -> Dims:
    names = letters(max((t.ndim for t in types), default=0))
    return Dims(tuple(names if t.ndim else () for t in types), (names,))


def linear_dims(*linear: tuple[int, ...]) -> Callable[..., Dims]:
    """The dims rule of an elementwise op that is linear in each of these groups of operands."""

    def dims(op: Op, *types: ArrayType, **params: Any) -> Dims:
        return dataclasses.replace(elementwise_dims(op, *types), linear=linear)

    return dims if linear else elementwise_dims


def same_value(op: Op, e: Any, ins: Any, outs: Any, x: str, *others: str, **params: Any) -> str:
    """The lower rule of an op that returns its first operand unchanged."""
    return x


def linear_jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    """The jvp rule of a linear op with one operand."""
    return op(*primals, **params), op(*tangents, **params)


def linear_in_first(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    """The jvp rule of an op that is linear in its first operand; the others are constants."""
    t, others = tangents[0], primals[1:]
    return op(*primals, **params), None if t is None else op(t, *others, **params)


def zero_jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    """The jvp rule of an op whose derivative is zero."""
    return op(*primals, **params), None


def batch_in_place(
    op: Op, mapped: Any, args: Any, dims: Any, **params: Any
) -> tuple[Any, int | None]:
    """The batch rule of an op whose result has the dimensions of its operand, at the start."""
    return op(*args, **params), dims[0]


def sink(name: str, effect: str, **fields: Any) -> Op:
    """An op with an effect and no results.

    fields: fields of the record that differ from the defaults.
    """

    def dims(op: Op, *types: ArrayType, **params: Any) -> Dims:
        names = iter(letters(sum(t.ndim for t in types)))
        return Dims(tuple(tuple(next(names) for _ in t.shape) for t in types), ())

    defaults = {
        "type_rule": lambda op, *types, **params: (),
        "dims": dims,
        "lower": lambda op, e, ins, outs, *xs, **params: [],
        "jvp": lambda op, primals, tangents, **params: (op(*primals, **params), []),
        "batch": lambda op, mapped, args, dims, **params: (op(*args, **params), []),
        "eager": lambda op, args, params: [],
        "effects": frozenset({effect}),
    }
    return Op(name, multiple=True, **defaults | fields)
