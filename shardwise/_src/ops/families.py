"""Families: constructors that fill in an op record from the properties specific to the op.

    sin = unary("sin", INEXACT, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))
    add = binary("add", NUMERIC, jvp=(lambda t, x, y, out: t, lambda t, x, y, out: t))

Elementwise ops take operands of one shape, or scalars. They share all dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached, exact
from shardwise._src.core.infer import opaque_message, type_of
from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reduce_sum
from shardwise._src.ops.rules import elementwise_dims, linear_dims, same_value
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dtypes import (
    ExtendedDType,
    canonicalize,
    constant_of,
    iinfo,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    too_large,
)
from shardwise._src.types.symbolic import Symbolic

BOOL = np.dtype(bool)

# Domains: a name for messages and a predicate on the dtype.
Domain = tuple[str, Callable[[Any], bool]]
FLOATING: Domain = ("floating", is_float)
COMPLEX: Domain = ("complex", is_complex)
INEXACT: Domain = ("floating or complex", lambda d: is_float(d) or is_complex(d))
INTEGER: Domain = ("integer", is_integer)
LOGICAL: Domain = ("boolean or integer", lambda d: is_bool(d) or is_integer(d))
ORDERED: Domain = ("real", lambda d: not is_complex(d))
REAL: Domain = ("integer or floating", lambda d: is_integer(d) or is_float(d))
NUMERIC: Domain = ("numeric", lambda d: not is_bool(d))
ANY: Domain = ("any", lambda d: True)
MOVABLE: Domain = ("any", lambda d: True)  # includes keys, which are not arithmetic


def check_domain(name: str, domain: Domain, types: Any) -> None:
    for t in types:
        if isinstance(t.dtype, ExtendedDType) and domain is not MOVABLE:
            raise TypeError(opaque_message(name, types))
        if not domain[1](t.dtype):
            raise TypeError(f"[{name}] takes {domain[0]} operands; got {join_types(types)}.")


def common_shape(name: str, types: Any) -> tuple[int, ...]:
    """The common shape of elementwise operands; scalars combine with every shape."""
    shape: tuple[int, ...] = ()
    for t in types:
        if t.shape == shape or not t.shape:
            continue
        if shape:
            raise TypeError(
                f"[{name}] operands must have equal shapes or be scalars; got {join_types(types)}. "
                "The functions of shardwise.numpy broadcast."
            )
        shape = t.shape
    return shape


def common_dtype(name: str, types: Any) -> Any:
    dtype = types[0].dtype
    if any(t.dtype != dtype for t in types):
        raise TypeError(
            f"[{name}] operands must have equal dtypes; got {join_types(types)}. "
            "The functions of shardwise.numpy promote."
        )
    return dtype


def elementwise_batch(
    op: Op, mapped: Any, args: list, dims: list, **params: Any
) -> tuple[Any, Any]:
    """The batch rule of an elementwise op: aligns the batch dimensions."""
    if len(args) == 1:
        return op(*args, **params), dims[0]
    types = [type_of(a) for a in args]
    forms = {(d, t.shape) for d, t in zip(dims, types, strict=True) if d is not None or t.shape}
    if len(forms) == 1:  # the common case: equal forms, and scalars
        return op(*args, **params), forms.pop()[0]
    ranks = [t.ndim - (d is not None) for t, d in zip(types, dims, strict=True)]
    rank = max(ranks)
    at = next((d for d, r in zip(dims, ranks, strict=True) if d is not None and r == rank), 0)
    shape = next(
        (t.shape for t, d, r in zip(types, dims, ranks, strict=True) if r == rank and d == at), None
    )
    if shape is None:  # only scalars have the dimension: put it first
        logical = next(t.shape for t, r in zip(types, ranks, strict=True) if r == rank)
        shape = (mapped.size, *logical)
    aligned = [
        _aligned(a, d, r, rank, at, shape) for a, d, r in zip(args, dims, ranks, strict=True)
    ]
    return op(*aligned, **params), at


def _aligned(x: Any, dim: int | None, rank: int, full: int, at: int, shape: tuple) -> Any:
    if dim is None:
        if rank == 0:
            return x
        kept = tuple(i for i in range(full + 1) if i != at)
        return broadcast_in_dim(x, shape=shape, dims=kept)
    if rank == full:
        return x if dim == at else move_axis(x, dim, at)
    return broadcast_in_dim(x, shape=shape, dims=(at,))


def lit(value: Any, like: Any) -> Any:
    """A scalar constant in the dtype of `like`, for use in rules."""
    return lit_of(value, type_of(like).dtype)


def lit_of(value: Any, dtype: Any) -> Any:
    """A scalar constant in a dtype. An integer must fit into it or into the default integer."""
    if value.__class__ is int and not -(2**31) <= value < 2**31:
        _check_fit(value, dtype)
    if isinstance(value, Symbolic):
        return value.as_array(dtype)
    return _literal(value, dtype, exact(value))


def _check_fit(value: int, dtype: Any) -> None:
    if not is_integer(dtype):
        return
    default: Any = canonicalize(int)
    held = [iinfo(dtype), iinfo(default)]
    if not any(i.min <= value <= i.max for i in held):
        raise too_large(value, default)


@cached(4096)
def _literal(value: Any, dtype: Any, mark: Any) -> Any:
    return constant_of(value, dtype)


def operand(e: Any, x: str, t: ArrayType, out: ArrayType) -> str:
    """An operand in the result's shape: scalars are broadcast."""
    if t.shape == out.shape:
        return x
    return e.broadcast(x, t, out if t.dtype == out.dtype else out.update(dtype=t.dtype), ())


def lowered_by(fun: Callable) -> Callable:
    """The lower rule of an elementwise op by a function over ops."""

    def rule(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> str:
        t = array_type(outs[0].shape, outs[0].dtype)
        args = [operand(e, x, i, t) for x, i in zip(xs, ins, strict=True)]
        return e.via(fun, (t,) * len(args), *args, **params)[0]

    return rule


def fit_tangent(t: Any, out: Any) -> Any:
    """A tangent in the result's shape: the tangent of a scalar operand is broadcast."""
    shape = type_of(out).shape
    if type_of(t).shape == shape:
        return t
    return broadcast_in_dim(t, shape=shape, dims=())


def unbroadcast(ct: Any, aval: ArrayType) -> Any:
    """A cotangent in the operand's shape: the cotangent of a scalar operand is summed."""
    t = type_of(ct)
    if t.shape == aval.shape:
        return ct
    return reduce_sum(ct, axes=tuple(range(t.ndim)))


def linear_transpose(*rules: Callable | None) -> Callable:
    """A transpose rule from one function `(ct, *args) → ct` for each linear operand."""

    def rule(op: Op, ct: Any, *args: Any, **params: Any) -> list[Any]:
        return [
            unbroadcast(f(ct, *args, **params), a.aval) if f is not None and is_linear(a) else None
            for f, a in zip(rules, args, strict=True)
        ]

    return rule


def unary(
    name: str,
    domain: Domain,
    *,
    hlo: str | None = None,
    jvp: Callable | str | None = None,
    dtype: Callable[[Any], Any] | None = None,
    transpose: Callable | None = None,
    **rules: Any,
) -> Op:
    """An op `f(x)` on each element.

    hlo:   name in StableHLO (default: the op's), or `chlo.name`.
    jvp:   `(t, x, out) → tangent`; "linear" for a linear op; "zero" if the derivative is zero.
    dtype: the result's dtype from the operand's, if it differs.
    rules: fields of the record that differ from the defaults.
    """

    def type_rule(op: Op, x: ArrayType, **params: Any) -> ArrayType:
        check_domain(op.name, domain, (x,))
        if dtype is None:
            return array_type(x.shape, x.dtype, x.weak_type)
        new = dtype(x.dtype)
        return array_type(x.shape, new, x.weak_type and new != BOOL)

    instruction = _instruction(hlo or name)

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, **params: Any) -> str:
        return e.let(_unary_text(e, instruction, x, ins[0], outs[0]))

    def jvp_rule(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = op(x, **params)
        if t is None:
            return out, None
        if callable(jvp):
            return out, jvp(t, x, out, **params)
        return out, op(t, **params) if jvp == "linear" else None

    is_linear = transpose is not None or rules.get("lower") is same_value
    fields = {
        "type_rule": type_rule,
        "dims": linear_dims((0,)) if is_linear else elementwise_dims,
        "lower": lower,
        "instruction": _if_plain(instruction, dtype, rules),
        "jvp": jvp_rule if jvp is not None else None,
        "transpose": linear_transpose(transpose) if transpose is not None else None,
    }
    return elementwise(name, **fields | rules)


def elementwise(name: str, **fields: Any) -> Op:
    """An op on each element, from the remaining fields of its record."""
    return Op(name, **{"pointwise": True, "batch": elementwise_batch, **fields})


def _instruction(name: str) -> str:
    return name if name.startswith("chlo.") else f"stablehlo.{name}"


def _if_plain(instruction: str, dtype: Any, rules: dict[str, Any]) -> str | None:
    """The instruction, unless its text names several types or a rule overrides it."""
    other = dtype is not None or instruction.startswith("chlo.") or "lower" in rules
    return None if other else instruction


def _unary_text(e: Any, instruction: str, x: str, t: ArrayType, out: ArrayType) -> str:
    if instruction.startswith("chlo."):
        return f"{instruction} {x} : {e.ty(t)} -> {e.ty(out)}"
    if t.dtype == out.dtype:
        return f"{instruction} {x} : {e.ty(t)}"
    return f"{instruction} {x} : ({e.ty(t)}) -> {e.ty(out)}"


def binary(
    name: str,
    domain: Domain,
    *,
    hlo: str | None = None,
    jvp: tuple[Callable | None, Callable | None] | str | None = None,
    transpose: tuple[Callable | None, Callable | None] | None = None,
    dtype: Callable[[Any], Any] | None = None,
    bilinear: bool = False,
    **rules: Any,
) -> Op:
    """An op `f(x, y)` on each pair of elements of one dtype.

    jvp:       for each operand `(t, x, y, out) → tangent` or None if the derivative is zero;
               "zero" if both are.
    transpose: for each operand in which the op is linear `(ct, x, y) → ct`.
    dtype:     the result's dtype from the operands', if it differs.
    bilinear:  whether it is linear in each operand, rather than in both jointly.
    rules:     fields of the record that differ from the defaults.
    """

    def type_rule(op: Op, x: ArrayType, y: ArrayType, **params: Any) -> ArrayType:
        check_domain(op.name, domain, (x, y))
        common = common_dtype(op.name, (x, y))
        result = common if dtype is None else dtype(common)
        return array_type(common_shape(op.name, (x, y)), result, x.weak_type and y.weak_type)

    instruction = _instruction(hlo or name)

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str, **params: Any) -> str:
        x, y = operand(e, x, ins[0], outs[0]), operand(e, y, ins[1], outs[0])
        ty = e.ty(outs[0])
        if instruction.startswith("chlo."):
            return e.let(f"{instruction} {x}, {y} : {ty}, {ty} -> {ty}")
        return e.let(f"{instruction} {x}, {y} : {ty}")

    fields = {
        "type_rule": type_rule,
        "dims": linear_dims(*_linear_groups(transpose or (None, None), bilinear)),
        "lower": lower,
        "instruction": _if_plain(instruction, dtype, rules),
        "jvp": nary_jvp(jvp) if jvp is not None else None,
        "transpose": linear_transpose(*transpose) if transpose is not None else None,
    }
    return elementwise(name, **fields | rules)


def _linear_groups(rules: Sequence[Callable | None], bilinear: bool) -> list[tuple[int, ...]]:
    linear = [i for i, rule in enumerate(rules) if rule is not None]
    return [(i,) for i in linear] if bilinear else [tuple(linear)] if linear else []


def nary_jvp(rules: tuple[Callable | None, ...] | str) -> Callable:
    """The jvp rule of an elementwise op from one rule `(t, *primals, out)` per operand."""

    def rule(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        out = op(*primals, **params)
        if isinstance(rules, str):  # "zero"
            return out, None
        total = None
        for f, t in zip(rules, tangents, strict=True):
            if t is None or f is None:
                continue
            term = fit_tangent(f(t, *primals, out, **params), out)
            total = term if total is None else add(total, term)
        return out, total

    return rule


def comparison(name: str, direction: str, elements: Elements = Elements.COMPUTED) -> Op:
    """An op on pairs of elements of one dtype with boolean results."""

    def type_rule(op: Op, x: ArrayType, y: ArrayType) -> ArrayType:
        if direction not in ("EQ", "NE"):
            check_domain(op.name, ORDERED, (x, y))
        common_dtype(op.name, (x, y))
        return array_type(common_shape(op.name, (x, y)), BOOL)

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str) -> str:
        wide = outs[0].update(dtype=ins[0].dtype)
        x, y = operand(e, x, ins[0], wide), operand(e, y, ins[1], wide)
        return e.compare(direction, x, y, wide)

    return elementwise(
        name,
        type_rule=type_rule,
        dims=elementwise_dims,
        lower=lower,
        jvp=nary_jvp("zero"),
        elements=elements,
    )


# The sum of two tangents or cotangents: every rule with two operands ends in it.
add = binary(
    "add",
    ANY,
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: t),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
)
