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

from shardwise._src.kernels.emitted.emitted_ops import (
    ARITHMETIC,
    COMPARISONS,
    conversion,
    kind_number,
)
from shardwise._src.kernels.on_gpu.triton_text import (
    BOOL,
    FLOAT32,
    INT32,
    Value,
    element,
    type_text,
)
from shardwise._src.lowering.text import quoted
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.families import lit
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import is_bool, is_float, is_integer

Rule = Callable[..., Value]


def in_wide(e: Any, f: Callable[..., Value], *xs: Value) -> Value:
    """A function of floats, in 32 bits for those of fewer; the result is rounded to the dtype."""
    if not is_float(xs[0].dtype) or xs[0].dtype.itemsize >= 4:
        return f(*xs)
    found = f(*[convert(e, x, FLOAT32) for x in xs])
    return found if is_bool(found.dtype) else convert(e, found, xs[0].dtype)


def _arithmetic(*texts: str) -> Rule:
    """The instruction for the kind of the dtype."""
    return lambda e, x, y, **p: in_wide(
        e, lambda a, b: e.binary(f"arith.{texts[kind_number(a.dtype)]}", a, b), x, y
    )


def _comparison(*kinds: str) -> Rule:
    return lambda e, x, y, **p: in_wide(
        e, lambda a, b: e.compare(kinds[kind_number(a.dtype)], a, b), x, y
    )


def _instruction(op: str) -> Rule:
    """An instruction for floats of 32 bits; a function of the library for 64, if it is none."""

    def rule(e: Any, x: Value, **p: Any) -> Value:
        if x.dtype.itemsize == 8 and op in _INEXACT:
            return e.library(op, x.dtype, x)
        return in_wide(e, lambda a: e.unary(f"math.{op}", a), x)

    return rule


def _library(function: str) -> Rule:
    return lambda e, *xs, **p: in_wide(e, lambda *ys: e.library(function, ys[0].dtype, *ys), *xs)


def _bit_count(function: str) -> Rule:
    """Of at least 32 bits."""

    def rule(e: Any, x: Value) -> Value:
        plain = Value(x.name, x.shape, np.dtype(f"uint{8 * x.dtype.itemsize}"))
        return convert(e, e.library(function, INT32, plain), x.dtype)

    return rule


ROUNDED = _library("round"), _library("rint")
_INEXACT = ("exp", "exp2", "log", "sin", "cos", "erf")
ELEMENTWISE: dict[str, Rule] = {
    **{op.name: _arithmetic(*row) for op, row in ARITHMETIC.items()},
    **{op.name: _comparison(*row) for op, row in COMPARISONS.items()},
    **{op: _instruction(op) for op in (*_INEXACT, "sqrt", "rsqrt", "floor", "ceil")},
    **{
        name: _library(name)
        for name in (
            *("tanh", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh"),
            *("atanh", "cbrt", "expm1", "log1p", "erfc", "nextafter", "lgamma", "pow"),
        )
    },
    "erf_inv": _library("erfinv"),
    "round": lambda e, x, *, rounding_method=0: ROUNDED[rounding_method](e, x),
    "population_count": _bit_count("popc"),
    "clz": _bit_count("clz"),
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


@elementwise("bitcast_convert_type")
def _bitcast(e: Any, x: Value, *, dtype: Any, **p: Any) -> Value:
    dtype = np.dtype(dtype)
    if dtype.itemsize != x.dtype.itemsize or BOOL in (dtype, x.dtype):
        raise e.unsupported("bitcast_convert_type", "to a dtype with another number of bits")
    if is_integer(dtype) and is_integer(x.dtype):
        return Value(x.name, x.shape, dtype)
    return _cast(e, "tt.bitcast", x, dtype, "->")


@elementwise("elementwise_inline_asm")
def _assembly(e: Any, *xs: Value, asm: str, constraints: str, pack: int, outs: Any) -> Any:
    names, kinds = (", ".join(row) for row in ([x.name for x in xs], [x.type for x in xs]))
    operands = f"{names} : {kinds} " if xs else ""
    found = ", ".join([type_text(t.shape, element(t.dtype)) for t in outs])
    options = f"constraints = {quoted(constraints)}, packed_element = {pack} : i32, pure = true"
    first, results = e.results(len(outs))
    e.line(f"{first}tt.elementwise_inline_asm {quoted(asm)} {{{options}}} {operands}-> {found}")
    rows = zip(results, outs, strict=True)
    return [Value(name, tuple(t.shape), t.dtype) for name, t in rows]


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
    floats = [d for d in (old, dtype) if is_float(d)]
    is_byte, is_equal = any(d.itemsize == 1 for d in floats), old.itemsize == dtype.itemsize
    if not floats and is_equal and not is_bool(old):
        return Value(x.name, x.shape, dtype)
    if FLOAT32 not in floats and (is_byte or (len(floats) == 2 and is_equal)):
        return convert(e, convert(e, x, FLOAT32), dtype)
    if not is_byte or len(floats) == 1:
        return _cast(e, conversion(old, dtype), x, dtype, "to")
    wide = x if x.shape else e.splat(x, (1,))  # only tensors have such floats
    if "float8_e4m3fn" in (old.name, dtype.name):
        found = _by_bits(e, wide, dtype)
    else:
        more = "" if dtype == FLOAT32 else ", rounding = rtne"
        found = _cast(e, "tt.fp_to_fp", wide, dtype, "->", more)
    return e.reshaped(found, x.shape)


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
