"""The forms of elementwise ops in Mosaic: arithmetic, comparisons, conversions.

    ELEMENTWISE[op](w, eqn, *xs) → the result

`w` is the function that is written (mosaic_text.py, mosaic_programs.py), `xs` are the values of the
operands of an equation. Narrow numbers are computed in 32 bits, but for bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.kernels.emitted.emitted_ops import (
    ARITHMETIC,
    COMPARISONS,
    conversion,
    kind_number,
)
from shardwise._src.kernels.on_tpu.mosaic_text import Splat, Value, element, vector
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.sharded.varying import pcast
from shardwise._src.ops.special.special_functions import erf
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact

F32, I32, BOOL = np.dtype("float32"), np.dtype("int32"), np.dtype(bool)
Rule = Callable[..., Any]


def kind_of(t: ArrayType) -> str:
    return vector(t.shape, element(t.dtype))


# -- arithmetic --


def _by_dtype(*texts: str) -> Rule:
    """An operation of one type, for floats, signed and unsigned integers, and booleans."""

    def rule(w: Any, eqn: Any, *xs: Value) -> str:
        t = eqn.outvars[0].aval
        text = texts[kind_number(t.dtype)]
        if not text:
            raise w.unsupported(eqn, f"of the dtype {t.dtype.name}")
        narrow = t.dtype.name == "bfloat16" and text != "arith.remf"  # which is of 32 bits only
        wide = t.dtype if is_bool(t.dtype) or narrow else widened(t.dtype)
        types = [a.aval.update(dtype=t.dtype) for a in eqn.invars]
        names = [cast(w, x, own, wide, t.shape) for x, own in zip(xs, types, strict=True)]
        found = w.let(f"{text} {', '.join(names)} : {vector(t.shape, element(wide))}")
        return cast(w, found, t.update(dtype=wide), t.dtype)

    return rule


def _float(text: str) -> Rule:
    return _by_dtype(text, "", "", "")


def _compared(*kinds: str) -> Rule:
    def rule(w: Any, eqn: Any, *xs: Value) -> str:
        t, to = eqn.invars[0].aval, eqn.outvars[0].aval.shape
        wide = widened(t.dtype)
        types = [a.aval.update(dtype=t.dtype) for a in eqn.invars]
        a, b = [cast(w, x, own, wide, to) for x, own in zip(xs, types, strict=True)]
        kind = vector(to, element(wide))
        how = kinds[kind_number(wide)]
        if how == "une":
            return differs(w, a, b, kind, to)
        return w.let(f"arith.{'cmpf' if is_inexact(wide) else 'cmpi'} {how}, {a}, {b} : {kind}")

    return rule


def differs(w: Any, x: str, y: str, kind: str, shape: Sequence[int]) -> str:
    """x != y for floats, of which Mosaic has only that they are equal."""
    equal = w.let(f"arith.cmpf oeq, {x}, {y} : {kind}")
    return w.let(f"arith.xori {equal}, {w.constant(True, BOOL, shape)} : {vector(shape, 'i1')}")


def widened(dtype: Any) -> Any:
    """A dtype of 32 bits with the values of a narrower one, which all TPUs compute in."""
    if dtype.itemsize >= 4:
        return dtype
    return F32 if is_inexact(dtype) else I32


def _select(w: Any, eqn: Any, which: Value, *cases: Value) -> str:
    out, flag = eqn.outvars[0].aval, eqn.invars[0].aval
    types, wide = [a.aval for a in eqn.invars[1:]], I32 if is_bool(out.dtype) else out.dtype
    names = [cast(w, x, t, wide, out.shape) for x, t in zip(cases, types, strict=True)]
    if not is_bool(flag.dtype):
        raise w.unsupported(
            eqn, "between more than two cases", "Select with `where` several times."
        )
    chosen = w.name(which, flag)  # a scalar selects between vectors, too
    kinds = kind_of(flag), vector(out.shape, element(wide))
    kind = kinds[1] if not flag.shape else ", ".join(kinds)
    y = w.let(f"arith.select {chosen}, {names[1]}, {names[0]} : {kind}")
    return cast(w, y, out.update(dtype=wide), out.dtype)


def _not(w: Any, eqn: Any, x: Value) -> str:
    t = eqn.invars[0].aval
    ones = w.constant(True if is_bool(t.dtype) else -1, t.dtype, t.shape)
    return w.let(f"arith.xori {w.name(x, t)}, {ones} : {kind_of(t)}")


# -- conversion --


def cast(w: Any, x: Value, t: ArrayType, dtype: Any, to: Sequence[int] | None = None) -> str:
    """A value of a type in another dtype, in the steps that Mosaic has."""
    to = t.shape if to is None else to
    if isinstance(x, Splat):
        return w.constant(np.asarray(x.number).astype(t.dtype).astype(dtype)[()], dtype, to)
    name = w.name(x, t, to)
    for step in _steps(t.dtype, dtype):
        name = cast_once(w, name, t, step, to)
        t = t.update(dtype=step)
    return name


def _steps(old: Any, new: Any) -> list[Any]:
    """The dtypes on the way from one to another: narrow ones and booleans go by 32 bits."""
    if old == new:
        return []
    first = widened(old)
    path = [first, first if is_bool(new) else widened(new), new]
    narrow_floats = is_inexact(old) and is_inexact(new)
    if narrow_floats and {old.itemsize, new.itemsize} == {2, 4}:
        path = [new]
    return [b for a, b in zip([old, *path], path, strict=False) if a != b]


def cast_once(w: Any, x: str, t: ArrayType, dtype: Any, to: Sequence[int]) -> str:
    """One step of a conversion."""
    old, new = t.dtype, dtype
    kinds = vector(to, element(old)), vector(to, element(new))
    if is_bool(new):
        zero = w.constant(0, old, to)
        if is_inexact(old):
            return differs(w, x, zero, kinds[0], to)
        return w.let(f"arith.cmpi ne, {x}, {zero} : {kinds[0]}")
    if kinds[0] == kinds[1]:  # signed and unsigned integers
        return x
    return w.let(f"{conversion(old, new)} {x} : {kinds[0]} to {kinds[1]}")


def _convert(w: Any, eqn: Any, x: Value, *, dtype: Any, weak: bool = False) -> Value:
    t = eqn.invars[0].aval
    if isinstance(x, Splat):
        return Splat(np.asarray(x.number).astype(t.dtype).astype(dtype)[()])
    return x if t.dtype == dtype else cast(w, x, t, dtype)


def _bitcast(w: Any, eqn: Any, x: Value, *, dtype: Any) -> str:
    t, out = eqn.invars[0].aval, eqn.outvars[0].aval
    kinds = kind_of(t), kind_of(out)
    if t.shape != out.shape:
        raise w.unsupported(eqn, "between dtypes of different sizes")
    name = w.name(x, t)
    if kinds[0] == kinds[1]:
        return name
    if t.shape:
        return w.let(f"tpu.bitcast {name} : {kinds[0]} -> {kinds[1]}")
    return w.let(f"arith.bitcast {name} : {kinds[0]} to {kinds[1]}")


def _given(w: Any, eqn: Any, x: Value, **p: Any) -> Value:
    return x


ELEMENTWISE: dict[Op, Rule] = {
    **{op: _by_dtype(*[text and f"arith.{text}" for text in row])
       for op, row in ARITHMETIC.items()},
    **{op: _float(f"math.{text}") for op, text in {
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
        "math.roundeven" if rounding_method else "math.round")(w, eqn, x),
    convert_element_type: _convert, bitcast_convert_type: _bitcast,
    ew.copy: _given, ew.stop_gradient: _given, pcast: _given,
}  # fmt: skip
