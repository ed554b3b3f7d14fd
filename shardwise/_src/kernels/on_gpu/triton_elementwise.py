"""Elementwise ops in Triton's dialect: tables from the op's name to instructions, and rules.

    ELEMENTWISE["add"](e, x, y)          # values of one shape → a value

`e` is the emission of the kernel's body (on_gpu/triton_body.py). Floats of 8 and 16 bits are
computed in 32 bits, and rounded after each op, as on CPU. Functions that Triton lacks are those of
the platform's library, or compositions of other ops (composed_ops.py).
"""

from __future__ import annotations

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
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.families import lit
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import is_bool, is_float, is_integer, is_signed, is_unsigned

Rule = Callable[..., Value]


def in_wide(e: Any, f: Callable[..., Value], *xs: Value) -> Value:
    """A function of floats, in 32 bits for those of fewer; the result is rounded to the dtype."""
    if not is_float(xs[0].dtype) or xs[0].dtype.itemsize >= 4:
        return f(*xs)
    found = f(*[convert(e, x, FLOAT32) for x in xs])
    return found if is_bool(found.dtype) else convert(e, found, xs[0].dtype)


def _by_kind(integer: str, unsigned: str, floating: str, boolean: str) -> Rule:
    """The instruction for the kind of the dtype."""

    def rule(e: Any, x: Value, y: Value, **p: Any) -> Value:
        if is_float(x.dtype):
            return in_wide(e, lambda a, b: e.binary(f"arith.{floating}", a, b), x, y)
        own = boolean if is_bool(x.dtype) else unsigned if is_unsigned(x.dtype) else integer
        return e.binary(f"arith.{own}", x, y)

    return rule


def _comparison(floating: str, integer: str) -> Rule:
    def rule(e: Any, x: Value, y: Value, **p: Any) -> Value:
        kind = integer
        if is_float(x.dtype):
            kind = floating
        elif integer[0] == "s" and not is_signed(x.dtype):
            kind = f"u{integer[1:]}"
        return in_wide(e, lambda a, b: e.compare(kind, a, b), x, y)

    return rule


def _instruction(op: str) -> Rule:
    """An instruction for floats of 32 bits; a function of the library for 64, if it is none."""

    def rule(e: Any, x: Value, **p: Any) -> Value:
        if x.dtype.itemsize == 8 and op in _INEXACT:
            return e.library(op, x.dtype, x)
        return in_wide(e, lambda a: e.unary(f"math.{op}", a), x)

    return rule


def _library(function: str) -> Rule:
    return lambda e, *xs, **p: in_wide(e, lambda *ys: e.library(function, ys[0].dtype, *ys), *xs)


_INEXACT = ("exp", "exp2", "log", "sin", "cos", "erf")
ELEMENTWISE: dict[str, Rule] = {
    "add": _by_kind("addi", "addi", "addf", "ori"),
    "sub": _by_kind("subi", "subi", "subf", "xori"),
    "mul": _by_kind("muli", "muli", "mulf", "andi"),
    "div": _by_kind("divsi", "divui", "divf", ""),
    "rem": _by_kind("remsi", "remui", "remf", ""),
    "shift_left": _by_kind("shli", "shli", "", ""),
    "shift_right_logical": _by_kind("shrui", "shrui", "", ""),
    "shift_right_arithmetic": _by_kind("shrsi", "shrsi", "", ""),
    "max": _by_kind("maxsi", "maxui", "maximumf", "ori"),
    "min": _by_kind("minsi", "minui", "minimumf", "andi"),
    "and": _by_kind("andi", "andi", "", "andi"),
    "or": _by_kind("ori", "ori", "", "ori"),
    "xor": _by_kind("xori", "xori", "", "xori"),
    "eq": _comparison("oeq", "eq"),
    "ne": _comparison("une", "ne"),
    **{op: _comparison(f"o{op}", f"s{op}") for op in ("lt", "le", "gt", "ge")},
    **{op: _instruction(op) for op in (*_INEXACT, "sqrt", "rsqrt", "floor", "ceil")},
    **{
        name: _library(name)
        for name in (
            *("tanh", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh"),
            *("atanh", "cbrt", "expm1", "log1p", "erfc", "nextafter", "lgamma", "pow"),
        )
    },
    "erf_inv": _library("erfinv"),
    **{
        name: lambda e, x, **p: x
        for name in ("stop_gradient", "copy", "name", "optimization_barrier", "pcast", "reshard")
    },
    "convert_element_type": lambda e, x, *, dtype, **p: convert(e, x, np.dtype(dtype)),
}


def elementwise(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        ELEMENTWISE.update(dict.fromkeys(names, rule))
        return rule

    return add


@elementwise("select_n")
def _select_n(e: Any, which: Value, *cases: Value, **p: Any) -> Value:
    if is_bool(which.dtype):
        return e.select(which, cases[-1], cases[0])
    found = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        below = e.compare("sle", which, e.constant(i, which.shape, which.dtype))
        found = e.select(below, cases[i], found)
    return found


@elementwise("abs")
def _abs(e: Any, x: Value, **p: Any) -> Value:
    op = "math.absf" if is_float(x.dtype) else "math.absi"
    return in_wide(e, lambda a: e.unary(op, a), x)


@elementwise("not")
def _not(e: Any, x: Value, **p: Any) -> Value:
    return e.binary("arith.xori", x, e.constant(-1 if is_integer(x.dtype) else 1, x.shape, x.dtype))


def _of_bits(function: str) -> Rule:
    """A count of bits, of at least 32."""

    def rule(e: Any, x: Value, **p: Any) -> Value:
        plain = Value(x.name, x.shape, np.dtype(f"uint{8 * x.dtype.itemsize}"))
        return convert(e, e.library(function, INT32, plain), x.dtype)

    return rule


ELEMENTWISE["population_count"], ELEMENTWISE["clz"] = _of_bits("popc"), _of_bits("clz")


@elementwise("round")
def _round(e: Any, x: Value, *, rounding_method: int = 0, **p: Any) -> Value:
    return _library("rint" if rounding_method == 1 else "round")(e, x)


@elementwise("bitcast_convert_type")
def _bitcast(e: Any, x: Value, *, dtype: Any, **p: Any) -> Value:
    dtype = np.dtype(dtype)
    if dtype.itemsize != x.dtype.itemsize or BOOL in (dtype, x.dtype):
        raise e.unsupported("bitcast_convert_type", "to a dtype with another number of bits")
    if is_integer(dtype) and is_integer(x.dtype):
        return Value(x.name, x.shape, dtype)
    return _cast(e, "tt.bitcast", x, dtype, "->")


# -- dtypes --


def convert(e: Any, x: Value, dtype: Any) -> Value:
    """The values as those of another dtype."""
    old = x.dtype
    if old == dtype:
        return x
    if x.known is not None:
        return e.constant(np.asarray(x.known).astype(dtype), x.shape, dtype)
    if is_bool(dtype):
        return ELEMENTWISE["ne"](e, x, e.constant(0, x.shape, old))
    floats, wider = is_float(old) and is_float(dtype), dtype.itemsize > old.itemsize
    if FLOAT32 not in (old, dtype) and (
        (floats and dtype.itemsize == old.itemsize)
        or any(is_float(d) and d.itemsize == 1 for d in (old, dtype))
    ):
        return convert(e, convert(e, x, FLOAT32), dtype)
    if floats and 1 in (old.itemsize, dtype.itemsize):  # only tensors have such floats
        wide = x if x.shape else e.splat(x, (1,))
        more = "" if wider else ", rounding = rtne"
        if "float8_e4m3fn" in (old.name, dtype.name):
            found = _by_bits(e, wide, dtype)
        else:
            found = _cast(e, "tt.fp_to_fp", wide, dtype, "->", more)
        return found if x.shape else e.scalar_of(found)
    if floats:
        op = "extf" if wider else "truncf"
    elif is_float(old):
        op = "fptosi" if is_signed(dtype) else "fptoui"
    elif is_float(dtype):
        op = "sitofp" if is_signed(old) else "uitofp"
    elif not is_bool(old) and dtype.itemsize == old.itemsize:
        return Value(x.name, x.shape, dtype)
    elif is_bool(old) or wider:
        op = "extsi" if is_signed(old) else "extui"
    else:
        op = "trunci"
    return _cast(e, f"arith.{op}", x, dtype, "to")


def _cast(e: Any, op: str, x: Value, dtype: Any, word: str, more: str = "") -> Value:
    kind = type_text(x.shape, element(dtype))
    return e.let(f"{op} {x.name}{more} : {x.type} {word} {kind}", x.shape, dtype)


def _by_bits(e: Any, x: Value, dtype: Any) -> Value:
    """Between float8_e4m3fn and float32. Triton's instruction ends the process on older GPUs."""
    if dtype == FLOAT32:
        bits = _cast(e, "tt.bitcast", x, np.dtype("uint8"), "->")
        return e.composed(_of_bits_e4m3, [array_type(x.shape, INT32)], convert(e, bits, INT32))
    bits = convert(e, e.composed(_bits_e4m3, [array_type(x.shape, x.dtype)], x), np.dtype("int8"))
    return _cast(e, "tt.bitcast", bits, dtype, "->")


def _of_bits_e4m3(bits: Any) -> Any:
    size = ew.bitwise_and(bits, lit(0x7F, bits))
    wide = ew.add(ew.shift_left(size, lit(20, size)), lit(120 << 23, size))
    small = ew.mul(convert_element_type(size, dtype=FLOAT32), np.float32(2**-9))
    value = bitcast_convert_type(wide, dtype=FLOAT32)
    value = ew.where(ew.lt(size, lit(8, size)), small, value)
    value = ew.where(ew.eq(size, lit(0x7F, size)), lit(np.nan, value), value)
    sign = ew.shift_left(ew.bitwise_and(bits, lit(0x80, bits)), lit(24, bits))
    both = ew.bitwise_or(bitcast_convert_type(value, dtype=INT32), sign)
    return bitcast_convert_type(both, dtype=FLOAT32)


def _bits_e4m3(x: Any) -> Any:
    """Rounded to the nearest, halves to even; NaN for numbers beyond the largest."""
    bits = bitcast_convert_type(x, dtype=INT32)
    size = ew.bitwise_and(bits, lit(0x7FFFFFFF, bits))
    last = ew.bitwise_and(ew.shift_right_logical(size, lit(20, size)), lit(1, size))
    rounded = ew.add(size, ew.add(last, lit(0x7FFFF, size)))
    normal = ew.sub(ew.shift_right_logical(rounded, lit(20, size)), lit(120 << 3, size))
    shifted = ew.add(bitcast_convert_type(size, dtype=FLOAT32), np.float32(2**14))
    small = ew.sub(bitcast_convert_type(shifted, dtype=INT32), lit(0x46800000, size))
    found = ew.where(ew.lt(size, lit(0x3C800000, size)), small, normal)
    found = ew.where(ew.gt(found, lit(0x7E, found)), lit(0x7F, found), found)
    sign = ew.bitwise_and(ew.shift_right_logical(bits, lit(24, bits)), lit(0x80, bits))
    return ew.bitwise_or(found, sign)
