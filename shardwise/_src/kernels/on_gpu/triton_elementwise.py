"""Elementwise ops in Triton's dialect: a table from the op's name to a rule.

    @elementwise("add")
    def rule(e, x, y, **params): …    # values of one shape → a value

`e` is the emission of the kernel's body (on_gpu/triton_body.py). Floats of 8 and 16 bits are
computed in 32 bits, and rounded after each op, as on CPU. Functions that Triton lacks are those of
the platform's library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.kernels.on_gpu.triton_text import (
    BOOL,
    FLOAT32,
    INT32,
    Value,
    element,
    type_text,
)
from shardwise._src.types.dtypes import is_bool, is_float, is_integer, is_signed, is_unsigned

Rule = Callable[..., Value]
ELEMENTWISE: dict[str, Rule] = {}


def elementwise(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        ELEMENTWISE.update(dict.fromkeys(names, rule))
        return rule

    return add


def in_wide(e: Any, f: Callable[..., Value], *xs: Value) -> Value:
    """A function of floats, in 32 bits for those of fewer; the result is rounded to the dtype."""
    dtype = xs[0].dtype
    if dtype.itemsize >= 4:
        return f(*xs)
    return convert(e, f(*[convert(e, x, FLOAT32) for x in xs]), dtype)


# -- arithmetic --


def _arithmetic(integer: str, floating: str, logical: str) -> Rule:
    def rule(e: Any, x: Value, y: Value, **p: Any) -> Value:
        if is_bool(x.dtype):
            return e.binary(logical, x, y)
        if is_float(x.dtype):
            return in_wide(e, lambda a, b: e.binary(floating, a, b), x, y)
        return e.binary(integer, x, y)

    return rule


ELEMENTWISE["add"] = _arithmetic("arith.addi", "arith.addf", "arith.ori")
ELEMENTWISE["sub"] = _arithmetic("arith.subi", "arith.subf", "arith.xori")
ELEMENTWISE["mul"] = _arithmetic("arith.muli", "arith.mulf", "arith.andi")


@elementwise("neg")
def _neg(e: Any, x: Value, **p: Any) -> Value:
    zero = e.constant(-0.0 if is_float(x.dtype) else 0, x.shape, x.dtype)
    return ELEMENTWISE["sub"](e, zero, x)


@elementwise("div")
def _div(e: Any, x: Value, y: Value, **p: Any) -> Value:
    if is_float(x.dtype):
        return in_wide(e, lambda a, b: e.binary("arith.divf", a, b), x, y)
    return _integer_division(e, x, y, "div", lambda: e.constant(-1, x.shape, x.dtype), lambda: x)


@elementwise("rem")
def _rem(e: Any, x: Value, y: Value, **p: Any) -> Value:
    if is_float(x.dtype):
        return in_wide(e, lambda a, b: e.binary("arith.remf", a, b), x, y)
    return _integer_division(e, x, y, "rem", lambda: x, lambda: e.constant(0, x.shape, x.dtype))


def _integer_division(
    e: Any, x: Value, y: Value, op: str, of_zero: Callable, of_overflow: Callable
) -> Value:
    """With XLA's values for a divisor of 0, and for the smallest number over -1."""
    sign = "u" if is_unsigned(x.dtype) else "s"
    if y.known is not None and y.known > 0:
        return e.binary(f"arith.{op}{sign}i", x, y)
    one = e.constant(1, y.shape, y.dtype)
    zero = e.compare("eq", y, e.constant(0, y.shape, y.dtype))
    safe, over = e.select(zero, one, y), None
    if sign == "s":
        least = e.constant(np.iinfo(x.dtype).min, x.shape, x.dtype)
        minus = e.compare("eq", y, e.constant(-1, y.shape, y.dtype))
        over = e.binary("arith.andi", e.compare("eq", x, least), minus)
        safe = e.select(over, one, safe)
    found = e.binary(f"arith.{op}{sign}i", x, safe)
    if over is not None:
        found = e.select(over, of_overflow(), found)
    return e.select(zero, of_zero(), found)


@elementwise("square")
def _square(e: Any, x: Value, **p: Any) -> Value:
    return ELEMENTWISE["mul"](e, x, x)


@elementwise("integer_pow")
def _integer_pow(e: Any, x: Value, *, y: int, **p: Any) -> Value:
    if is_float(x.dtype) and x.dtype.itemsize < 4:
        return in_wide(e, lambda a: _integer_pow(e, a, y=y), x)
    one = e.constant(1, x.shape, x.dtype)
    found, left, power = None, abs(y), x
    while left:
        if left & 1:
            found = power if found is None else ELEMENTWISE["mul"](e, found, power)
        left >>= 1
        if left:
            power = ELEMENTWISE["mul"](e, power, power)
    if found is None:
        return one
    return ELEMENTWISE["div"](e, one, found) if y < 0 else found


# -- comparisons, extrema, choices --


def _comparison(floating: str, integer: str) -> Rule:
    def rule(e: Any, x: Value, y: Value, **p: Any) -> Value:
        if is_float(x.dtype):
            wide = x.dtype if x.dtype.itemsize >= 4 else FLOAT32
            return e.compare(floating, convert(e, x, wide), convert(e, y, wide))
        signs = {"s": "u"} if is_unsigned(x.dtype) or is_bool(x.dtype) else {}
        return e.compare(signs.get(integer[0], integer[0]) + integer[1:], x, y)

    return rule


for _name, _kinds in {
    "eq": ("oeq", "eq"),
    "ne": ("une", "ne"),
    "lt": ("olt", "slt"),
    "le": ("ole", "sle"),
    "gt": ("ogt", "sgt"),
    "ge": ("oge", "sge"),
}.items():
    ELEMENTWISE[_name] = _comparison(*_kinds)


def _extremum(name: str) -> Rule:
    def rule(e: Any, x: Value, y: Value, **p: Any) -> Value:
        if is_float(x.dtype):
            return in_wide(e, lambda a, b: e.binary(f"arith.{name}imumf", a, b), x, y)
        if is_bool(x.dtype):
            return e.binary("arith.ori" if name == "max" else "arith.andi", x, y)
        return e.binary(f"arith.{name}{'u' if is_unsigned(x.dtype) else 's'}i", x, y)

    return rule


ELEMENTWISE["max"], ELEMENTWISE["min"] = _extremum("max"), _extremum("min")


@elementwise("clamp")
def _clamp(e: Any, low: Value, x: Value, high: Value, **p: Any) -> Value:
    return ELEMENTWISE["min"](e, ELEMENTWISE["max"](e, x, low), high)


@elementwise("select_n")
def _select_n(e: Any, which: Value, *cases: Value, **p: Any) -> Value:
    if is_bool(which.dtype):
        return e.select(which, cases[-1], cases[0])
    found = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        below = e.compare("sle", which, e.constant(i, which.shape, which.dtype))
        found = e.select(below, cases[i], found)
    return found


@elementwise("sign")
def _sign(e: Any, x: Value, **p: Any) -> Value:
    if is_float(x.dtype) and x.dtype.itemsize < 4:
        return in_wide(e, lambda a: _sign(e, a), x)
    zero, one = [e.constant(v, x.shape, x.dtype) for v in (0, 1)]
    if is_unsigned(x.dtype):
        return e.binary("arith.minui", x, one)
    above, below = [ELEMENTWISE[op](e, x, zero) for op in ("gt", "lt")]
    minus = e.constant(-1, x.shape, x.dtype)
    return e.select(above, one, e.select(below, minus, x))


@elementwise("abs")
def _abs(e: Any, x: Value, **p: Any) -> Value:
    if is_float(x.dtype):
        return in_wide(e, lambda a: e.unary("math.absf", a), x)
    return x if is_unsigned(x.dtype) else e.unary("math.absi", x)


@elementwise("is_finite")
def _is_finite(e: Any, x: Value, **p: Any) -> Value:
    x = convert(e, x, x.dtype if x.dtype.itemsize >= 4 else FLOAT32)
    return e.compare("olt", e.unary("math.absf", x), e.constant(math.inf, x.shape, x.dtype))


# -- bits --


for _name, _op in {"and": "arith.andi", "or": "arith.ori", "xor": "arith.xori"}.items():
    ELEMENTWISE[_name] = lambda e, x, y, _op=_op, **p: e.binary(_op, x, y)


@elementwise("not")
def _not(e: Any, x: Value, **p: Any) -> Value:
    ones = e.constant(True if is_bool(x.dtype) else -1, x.shape, x.dtype)
    return e.binary("arith.xori", x, ones)


def _shift(op: str, arithmetic: bool = False) -> Rule:
    def rule(e: Any, x: Value, n: Value, **p: Any) -> Value:
        """A shift by as many bits as there are, or more, moves all of them out."""
        bits = 8 * x.dtype.itemsize
        most = e.constant(bits - 1, x.shape, x.dtype)
        inside = e.compare("ule", n, most)
        found = e.binary(op, x, e.select(inside, n, most))
        return found if arithmetic else e.select(inside, found, e.constant(0, x.shape, x.dtype))

    return rule


ELEMENTWISE["shift_left"] = _shift("arith.shli")
ELEMENTWISE["shift_right_logical"] = _shift("arith.shrui")
ELEMENTWISE["shift_right_arithmetic"] = _shift("arith.shrsi", arithmetic=True)


@elementwise("population_count")
def _population_count(e: Any, x: Value, **p: Any) -> Value:
    return _of_bits(e, x, "popc", 0)


@elementwise("clz")
def _clz(e: Any, x: Value, **p: Any) -> Value:
    return _of_bits(e, x, "clz", max(32 - 8 * x.dtype.itemsize, 0))


def _of_bits(e: Any, x: Value, function: str, less: int) -> Value:
    """A count of bits: in 32 bits for integers of fewer, where it is larger by `less`."""
    wide = np.dtype("uint64") if x.dtype.itemsize == 8 else np.dtype("uint32")
    bits = Value(x.name, x.shape, np.dtype(f"uint{8 * x.dtype.itemsize}"))
    found = e.library(function, INT32, convert(e, bits, wide))
    if less:
        found = e.binary("arith.subi", found, e.constant(less, x.shape, INT32))
    return convert(e, found, x.dtype)


# -- functions of floats --


def _function(op: str) -> Rule:
    """An instruction for 32 bits; a function of the library for 64."""

    def rule(e: Any, x: Value, **p: Any) -> Value:
        if x.dtype.itemsize == 8:
            return e.library(op, x.dtype, x)
        return in_wide(e, lambda a: e.unary(f"math.{op}", a), x)

    return rule


def _library(op: str) -> Rule:
    return lambda e, *xs, **p: in_wide(e, lambda *ys: e.library(op, ys[0].dtype, *ys), *xs)


for _name in ("exp", "exp2", "log", "sin", "cos", "erf"):
    ELEMENTWISE[_name] = _function(_name)
for _name in ("sqrt", "rsqrt", "floor", "ceil"):
    ELEMENTWISE[_name] = lambda e, x, _op=f"math.{_name}", **p: in_wide(
        e, lambda a: e.unary(_op, a), x
    )
for _name in (
    *("tanh", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2"),
    *("cbrt", "expm1", "log1p", "erfc", "nextafter"),
):
    ELEMENTWISE[_name] = _library(_name)
ELEMENTWISE["erf_inv"] = _library("erfinv")


@elementwise("round")
def _round(e: Any, x: Value, *, rounding_method: int = 0, **p: Any) -> Value:
    return _library("rint" if rounding_method == 1 else "round")(e, x)


@elementwise("pow")
def _pow(e: Any, x: Value, y: Value, **p: Any) -> Value:
    return _library("pow")(e, x, convert(e, y, x.dtype))


@elementwise("logistic")
def _logistic(e: Any, x: Value, **p: Any) -> Value:
    def wide(x: Value) -> Value:
        one = e.constant(1, x.shape, x.dtype)
        power = ELEMENTWISE["exp"](e, _neg(e, x))
        return e.binary("arith.divf", one, e.binary("arith.addf", one, power))

    return in_wide(e, wide, x)


@elementwise("stop_gradient", "copy", "name", "optimization_barrier", "pcast", "reshard")
def _same(e: Any, x: Value, **p: Any) -> Value:
    return x


# -- dtypes --


@elementwise("convert_element_type")
def _convert(e: Any, x: Value, *, dtype: Any, **p: Any) -> Value:
    return convert(e, x, np.dtype(dtype))


def convert(e: Any, x: Value, dtype: Any) -> Value:
    """The values as those of another dtype."""
    old = x.dtype
    if old == dtype:
        return x
    if x.known is not None:
        return e.constant(np.asarray(x.known).astype(dtype), (), dtype)
    if is_bool(dtype):
        kind = "une" if is_float(old) else "ne"
        return e.compare(kind, x, e.constant(0, x.shape, old))
    small = [d for d in (old, dtype) if is_float(d) and d.itemsize == 1]
    if small or (is_float(old) and is_float(dtype) and old.itemsize == dtype.itemsize):
        return _through_float32(e, x, dtype)
    if is_float(old):
        if is_float(dtype):
            op = "extf" if dtype.itemsize > old.itemsize else "truncf"
        else:
            op = "fptosi" if is_signed(dtype) else "fptoui"
    elif is_float(dtype):
        op = "sitofp" if is_signed(old) else "uitofp"
    elif not is_bool(old) and dtype.itemsize == old.itemsize:
        return Value(x.name, x.shape, dtype)
    elif is_bool(old) or dtype.itemsize > old.itemsize:
        op = "extsi" if is_signed(old) else "extui"
    else:
        op = "trunci"
    return _cast(e, f"arith.{op}", x, dtype, "to")


def _cast(e: Any, op: str, x: Value, dtype: Any, word: str, more: str = "") -> Value:
    kind = type_text(x.shape, element(dtype))
    return e.let(f"{op} {x.name}{more} : {x.type} {word} {kind}", x.shape, dtype)


def _through_float32(e: Any, x: Value, dtype: Any) -> Value:
    """Between floats of one size, and from and to floats of 8 bits, which tensors only have."""
    if is_float(x.dtype) and x.dtype.itemsize == 1:
        wide = e.splat(x, (1,)) if not x.shape else x
        wide = _cast(e, "tt.fp_to_fp", wide, FLOAT32, "->")
        return convert(e, wide if x.shape else e.scalar_of(wide), dtype)
    x = convert(e, x, FLOAT32)
    if dtype.itemsize > 1:
        return convert(e, x, dtype)
    wide = e.splat(x, (1,)) if not x.shape else x
    found = _cast(e, "tt.fp_to_fp", wide, dtype, "->", ", rounding = rtne")
    return found if x.shape else e.scalar_of(found)


@elementwise("bitcast_convert_type")
def _bitcast(e: Any, x: Value, *, dtype: Any, **p: Any) -> Value:
    dtype = np.dtype(dtype)
    if dtype.itemsize != x.dtype.itemsize or BOOL in (dtype, x.dtype):
        raise e.unsupported("bitcast_convert_type", "to a dtype with another number of bits")
    if is_integer(dtype) and is_integer(x.dtype):
        return Value(x.name, x.shape, dtype)
    return _cast(e, "tt.bitcast", x, dtype, "->")
