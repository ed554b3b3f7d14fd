"""The forms of elementwise ops in Mosaic: arithmetic, comparisons, conversions.

    ELEMENTWISE[op](w, eqn, *xs) → the result      # of rules, see mosaic_text.py

Narrow numbers are computed in 32 bits, but for bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.kernels.emitted.emitted_ops import (
    ARITHMETIC,
    COMPARISONS,
    conversion,
    kind_number,
)
from shardwise._src.kernels.on_tpu.mosaic_text import Operand, Rule, Splat, kind_of, on_values
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.sharded.varying import pcast
from shardwise._src.ops.special.special_functions import erf
from shardwise._src.types.dtypes import is_bool, is_inexact

F32, I32, BOOL = np.dtype("float32"), np.dtype("int32"), np.dtype(bool)


# -- arithmetic --


def _by_dtype(*texts: str) -> Rule:
    """An operation of one type, for floats, signed and unsigned integers, and booleans."""

    def rule(w: Any, eqn: Any, *xs: Operand) -> Operand:
        t = eqn.outvars[0].aval
        text = texts[kind_number(t.dtype)]
        if not text:
            raise w.unsupported(eqn, f"of the dtype {t.dtype.name}")
        narrow = t.dtype.name == "bfloat16" and text != "arith.remf"  # which is of 32 bits only
        wide = t.dtype if is_bool(t.dtype) or narrow else widened(t.dtype)
        xs = tuple([cast(w, replace(x, dtype=t.dtype), wide, t.shape) for x in xs])
        found = w.made(f"{text} {', '.join(map(str, xs))} :", t.shape, wide)
        return cast(w, found, t.dtype)

    return rule


def _float(text: str) -> Rule:
    return _by_dtype(f"math.{text}", "", "", "")


def _compared(*kinds: str) -> Rule:
    def rule(w: Any, eqn: Any, x: Operand, y: Operand) -> Operand:
        wide, to = widened(x.dtype), eqn.outvars[0].aval.shape
        x, y = [cast(w, replace(v, dtype=x.dtype), wide, to) for v in (x, y)]
        how = kinds[kind_number(wide)]
        return differs(w, x, y) if how == "une" else flags(w, how, x, y)

    return rule


def flags(w: Any, how: str, x: Operand, y: Any) -> Operand:
    op = "cmpf" if is_inexact(x.dtype) else "cmpi"
    return Operand(w.let(f"arith.{op} {how}, {x}, {y} : {x.kind}"), x.shape, BOOL)


def differs(w: Any, x: Operand, y: Any) -> Operand:
    """x != y; of floats, Mosaic has only that they are equal."""
    return xored(w, flags(w, "oeq", x, y), True) if is_inexact(x.dtype) else flags(w, "ne", x, y)


def xored(w: Any, x: Operand, number: int) -> Operand:
    other = w.constant(number, x.dtype, x.shape)
    return w.made(f"arith.xori {x}, {other} :", x.shape, x.dtype)


def chosen(w: Any, flag: Operand, x: Operand, y: Operand) -> Operand:
    """x where a flag holds, else y. A scalar selects between vectors, too."""
    kind = f" {flag.kind}," if flag.shape else ""
    return w.made(f"arith.select {flag}, {x}, {y} :{kind}", x.shape, x.dtype)


def widened(dtype: Any) -> Any:
    """A dtype of 32 bits with the values of a narrower one, which all TPUs compute in."""
    if dtype.itemsize >= 4:
        return dtype
    return F32 if is_inexact(dtype) else I32


def _select(w: Any, eqn: Any, which: Operand, *cases: Operand) -> Operand:
    out = eqn.outvars[0].aval
    if not is_bool(which.dtype):
        raise w.unsupported(
            eqn, "between more than two cases", "Select with `where` several times."
        )
    wide = I32 if is_bool(out.dtype) else out.dtype
    no, yes = [cast(w, x, wide, out.shape) for x in cases]
    return cast(w, chosen(w, w.in_register(which), yes, no), out.dtype)


def _not(w: Any, eqn: Any, x: Operand) -> Operand:
    return xored(w, w.in_register(x), True if is_bool(x.dtype) else -1)


# -- conversion --


def cast(w: Any, x: Operand, dtype: Any, to: Sequence[int] | None = None) -> Operand:
    """The register of a value in another dtype, in the steps that Mosaic has. to: as of `name`."""
    if x.known is not None:
        x = _constant(x, dtype)
    x = w.in_register(x, to)
    for step in _steps(x.dtype, dtype):
        x = _cast_once(w, x, step)
    return x


def _constant(x: Operand, dtype: Any) -> Operand:
    """A constant in another dtype."""
    number = np.asarray(x.known).astype(x.dtype).astype(dtype)[()]
    return Operand(Splat(number), x.shape, dtype)


def _steps(old: Any, new: Any) -> list[Any]:
    """The dtypes on the way from one to another: narrow ones and booleans go by 32 bits."""
    if old == new:
        return []
    first = widened(old)
    path = [first, first if is_bool(new) else widened(new), new]
    if is_inexact(old) and is_inexact(new) and {old.itemsize, new.itemsize} == {2, 4}:
        path = [new]
    return [b for a, b in zip([old, *path], path, strict=False) if a != b]


def _cast_once(w: Any, x: Operand, new: Any) -> Operand:
    """One step of a conversion."""
    old, y = x.dtype, replace(x, dtype=new)
    if is_bool(new):
        return differs(w, x, w.constant(0, old, x.shape))
    if x.kind == y.kind:  # signed and unsigned integers
        return y
    return w.made(f"{conversion(old, new)} {x} : {x.kind} to", x.shape, new)


def _convert(w: Any, eqn: Any, x: Operand, *, dtype: Any, weak: bool = False) -> Operand:
    if x.known is not None:
        return _constant(x, dtype)
    return x if x.dtype == dtype else cast(w, x, dtype)


def _bitcast(w: Any, eqn: Any, x: Operand, *, dtype: Any) -> Operand:
    out = eqn.outvars[0].aval
    if x.shape != out.shape:
        raise w.unsupported(eqn, "between dtypes of different sizes")
    x = w.in_register(x)
    if x.kind == kind_of(out):
        return x
    op, word = ("tpu.bitcast", "->") if x.shape else ("arith.bitcast", "to")
    return w.made(f"{op} {x} : {x.kind} {word}", x.shape, dtype)


ELEMENTWISE = on_values({
    **{op: _by_dtype(*[text and f"arith.{text}" for text in row])
       for op, row in ARITHMETIC.items()},
    **{op: _float(text) for op, text in {
        ew.exp: "exp", ew.exp2: "exp2", ew.log: "log", ew.log1p: "log1p", ew.tanh: "tanh",
        ew.sin: "sin", ew.cos: "cos", ew.tan: "tan", ew.sqrt: "sqrt", ew.rsqrt: "rsqrt",
        ew.floor: "floor", ew.ceil: "ceil", ew.pow: "powf", ew.atan2: "atan2", erf: "erf",
    }.items()},
    **{op: _compared(*row) for op, row in COMPARISONS.items()},
    logical.select_n: _select, logical.bitwise_not: _not,
    ew.abs: _by_dtype("math.absf", "math.absi", "", ""),
    logical.population_count: _by_dtype(*["math.ctpop"] * 4),
    logical.clz: _by_dtype(*["math.ctlz"] * 4),
    ew.round: lambda w, eqn, x, rounding_method=0: _float(
        "roundeven" if rounding_method else "round")(w, eqn, x),
    convert_element_type: _convert, bitcast_convert_type: _bitcast,
    **dict.fromkeys((ew.copy, ew.stop_gradient, pcast), lambda w, eqn, x, **p: x),
})  # fmt: skip
