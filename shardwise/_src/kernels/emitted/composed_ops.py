"""Ops that kernels for GPUs and TPUs compute by other ops, with the values that XLA gives.

    composed(op, types, params)   # of an op for which a compiler has no instruction
    around(op, types, known)      # of one whose instruction has other values for some operands

Both return a program that is written in place of the op, or None. In a program of `around`, the op
itself is the instruction, and its operands are such that its values are those of XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical, shape
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.families import lit
from shardwise._src.ops.special.special_functions import erf_inv
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_float, is_integer, is_unsigned, itemsize_bits

Types = Sequence[ArrayType]


def composed(op: Op, types: Types, params: dict[str, Any]) -> Program | None:
    f = COMPOSED.get(op)
    return None if f is None else program_of(lambda *xs: [f(*xs, **params)], tuple(types), op.name)


def around(op: Op, types: Types, known: Any = None) -> Program | None:
    """known: the last operand, if it is a number that is the same for all elements."""
    f = _AROUND.get(op)
    if f is None or not is_integer(types[-1].dtype):
        return None
    return program_of(lambda *xs: [f(op, known, *xs)], tuple(types), op.name)


# -- ops without an instruction --


def _in_wide(f: Callable[..., Any]) -> Callable[..., Any]:
    """Computed in 32 bits for floats of fewer, and rounded once."""

    def run(x: Any, **p: Any) -> Any:
        dtype = type_of(x).dtype
        if not is_float(dtype) or dtype.itemsize >= 4:
            return f(x, **p)
        wide = convert_element_type(x, dtype=np.dtype("float32"))
        return convert_element_type(f(wide, **p), dtype=dtype)

    return run


@_in_wide
def _integer_pow(x: Any, y: int) -> Any:
    """By repeated squaring."""
    if y <= 0:
        one = broadcast_in_dim(lit(1, x), shape=type_of(x).shape, dims=())
        return ew.div(one, _integer_pow(x, y=-y)) if y else one
    found = None
    while True:
        if y & 1:
            found = x if found is None else ew.mul(found, x)
        y >>= 1
        if not y:
            return found
        x = ew.mul(x, x)


@_in_wide
def _sign(x: Any) -> Any:
    """NaN and zeros have themselves as sign."""
    negative = x if is_unsigned(type_of(x).dtype) else ew.where(_below(x, 0), lit(-1, x), x)
    return ew.where(ew.gt(x, lit(0, x)), lit(1, x), negative)


def _below(x: Any, n: Any) -> Any:
    return ew.lt(x, lit(n, x))


@_in_wide
def _expm1(x: Any) -> Any:
    """By tanh, which is exact near zero: exp(x) - 1 = tanh(x/2) (exp(x) + 1)."""
    small = ew.mul(ew.tanh(ew.mul(lit(0.5, x), x)), ew.add(ew.exp(x), lit(1, x)))
    return ew.where(_below(ew.abs(x), 0.5), small, ew.sub(ew.exp(x), lit(1, x)))


def _halves(x: Any) -> tuple[Any, Any]:
    """exp(|x|) / 2 and exp(-|x|) / 2, finite if their sum is: by the square of exp(|x| / 2)."""
    root, half = ew.exp(ew.mul(ew.abs(x), lit(0.5, x))), lit(0.5, x)
    return ew.mul(root, ew.mul(half, root)), ew.div(ew.div(half, root), root)


@_in_wide
def _sinh(x: Any) -> Any:
    small = ew.mul(lit(0.5, x), ew.sub(ew.expm1(x), ew.expm1(ew.neg(x))))
    large = ew.sub(*_halves(x))
    large = ew.where(_below(x, 0), ew.neg(large), large)
    return ew.where(_below(ew.abs(x), 1), small, large)


# Of polynomials in w = -log(1 - x²): near 0, and at the ends; highest powers first. Source: Giles,
# "Approximating the erfinv function", GPU Computing Gems 2 (2010), for float32.
_INNER = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_OUTER = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


@_in_wide
def _erf_inv(x: Any) -> Any:
    w = ew.neg(ew.log1p(ew.neg(ew.mul(x, x))))
    is_inner = _below(w, 5)
    w = ew.where(is_inner, ew.sub(w, lit(2.5, x)), ew.sub(ew.sqrt(w), lit(3, x)))
    found: Any = None
    for a, b in zip(_INNER, _OUTER, strict=True):
        c = ew.where(is_inner, lit(a, x), lit(b, x))
        found = c if found is None else ew.add(c, ew.mul(found, w))
    at_end = ew.eq(ew.abs(x), lit(1, x))
    return ew.where(at_end, ew.mul(x, lit(np.inf, x)), ew.mul(found, x))


def _cumsum(x: Any, axis: int, reverse: bool = False) -> Any:
    """By sums with shifted elements: 1, 2, 4… apart."""
    rank, n, step = type_of(x).ndim, type_of(x).shape[axis], 1
    while step < n:
        kept = shape.slice_in_dim(x, step if reverse else 0, n if reverse else n - step, axis)
        ends = (0, step, 0) if reverse else (step, 0, 0)
        config = tuple([ends if d == axis else (0, 0, 0) for d in range(rank)])
        x = ew.add(x, shape.pad(kept, lit(0, x), padding_config=config))
        step *= 2
    return x


COMPOSED: dict[Op, Callable[..., Any]] = {
    ew.neg: lambda x: ew.sub(lit(-0.0 if is_float(type_of(x).dtype) else 0, x), x),
    ew.square: lambda x: ew.mul(x, x),
    ew.one_minus_square: _in_wide(lambda x: ew.mul(ew.sub(lit(1, x), x), ew.add(lit(1, x), x))),
    ew.integer_pow: _integer_pow,
    ew.sign: _sign,
    ew.logistic: _in_wide(lambda x: ew.div(lit(1, x), ew.add(lit(1, x), ew.exp(ew.neg(x))))),
    ew.is_finite: lambda x: _below(ew.abs(x), np.inf),
    logical.clamp: lambda low, x, high: ew.min(ew.max(low, x), high),
    ew.expm1: _expm1,
    ew.cosh: _in_wide(lambda x: ew.add(*_halves(x))),
    ew.sinh: _sinh,
    erf_inv: _erf_inv,
    cumsum: _cumsum,
}


# -- ops whose instructions have other values for some operands --


def _as(x: Any, kind: str) -> Any:
    """Integers with the same bits as "int" or "uint", extended to 32 bits."""
    bits = itemsize_bits(type_of(x).dtype)
    x = convert_element_type(x, dtype=np.dtype(f"{kind}{bits}"))
    return convert_element_type(x, dtype=np.dtype(f"{kind}{max(bits, 32)}"))


def _division(op: Op, known: Any, x: Any, y: Any) -> Any:
    """By 0, the quotient is -1 and the remainder x; the least integer over -1 is itself."""
    dtype = type_of(x).dtype
    if known is not None and known > 0:
        return op(x, y)
    kind = "uint" if is_unsigned(dtype) else "int"
    x, y = _as(x, kind), _as(y, kind)
    is_zero = unsafe = ew.eq(y, lit(0, y))
    if kind == "int":
        least = ew.eq(x, lit(np.iinfo(type_of(x).dtype).min, x))
        unsafe = logical.bitwise_or(is_zero, logical.bitwise_and(least, ew.eq(y, lit(-1, y))))
    found = op(x, ew.where(unsafe, lit(1, y), y))
    found = ew.where(is_zero, lit(-1, x) if op is ew.div else x, found)
    return convert_element_type(found, dtype=dtype)


def _shift(op: Op, known: Any, x: Any, n: Any) -> Any:
    """A shift by as many bits as there are, or more, moves all of them out."""
    dtype, signed = type_of(x).dtype, op is logical.shift_right_arithmetic
    bits = itemsize_bits(dtype)
    if known is not None and 0 <= known < bits and bits >= 32:
        return op(x, n)
    x, n = _as(x, "int" if signed else "uint"), _as(n, "uint")
    inside = _below(n, bits)
    n = convert_element_type(ew.where(inside, n, lit(bits - 1, n)), dtype=type_of(x).dtype)
    found = op(x, n) if signed else ew.where(inside, op(x, n), lit(0, x))
    return convert_element_type(found, dtype=dtype)


def _count(op: Op, known: Any, x: Any) -> Any:
    """Of fewer than 32 bits: of 32, less the leading zeros that these have more."""
    dtype, found = type_of(x).dtype, op(_as(x, "uint"))
    if op is logical.clz:
        found = ew.sub(found, lit(max(32 - itemsize_bits(dtype), 0), found))
    return convert_element_type(found, dtype=dtype)


def _power(op: Op, known: Any, x: Any, y: Any) -> Any:
    """An integer exponent becomes a float."""
    return op(x, convert_element_type(y, dtype=type_of(x).dtype))


_AROUND: dict[Op, Callable[..., Any]] = {
    **dict.fromkeys((ew.div, ew.rem), _division),
    **dict.fromkeys((logical.shift_left, logical.shift_right_logical), _shift),
    logical.shift_right_arithmetic: _shift,
    **dict.fromkeys((logical.population_count, logical.clz), _count),
    ew.pow: _power,
}
