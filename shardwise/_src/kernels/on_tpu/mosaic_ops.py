"""The forms of ops on values in Mosaic: arithmetic, shapes, reductions, products.

    RULES[op](w, eqn, *xs) → the result

`w` is the function that is written (mosaic_text.py, mosaic_programs.py), `xs` are the values of the
operands of an equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.kernels.on_tpu.mosaic_text import Splat, Value, element, vector
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical, reduce, shape
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.sharded.varying import pcast
from shardwise._src.ops.special.special_functions import erf
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact, is_integer, is_unsigned

F32, I32, BOOL = np.dtype("float32"), np.dtype("int32"), np.dtype(bool)
Rule = Callable[..., Any]


def operands(w: Any, eqn: Any, xs: Sequence[Value]) -> list[str]:
    """The registers of operands, in the shape of the result."""
    to = eqn.outvars[0].aval.shape
    return [w.name(x, a.aval, to) for x, a in zip(xs, eqn.invars, strict=True)]


def kind_of(t: ArrayType) -> str:
    return vector(t.shape, element(t.dtype))


# -- elementwise --


def _by_dtype(floats: str | None, signed: str | None, unsigned: str | None) -> Rule:
    """An operation of one type, for floats, signed and unsigned integers."""

    def rule(w: Any, eqn: Any, *xs: Value) -> str:
        t = eqn.outvars[0].aval
        kinds = floats, unsigned, signed
        text = kinds[0 if is_inexact(t.dtype) else 1 + (not is_unsigned(t.dtype))]
        if text is None:
            raise w.no_form(eqn, f"of the dtype {t.dtype.name}")
        return w.let(f"{text} {', '.join(operands(w, eqn, xs))} : {kind_of(t)}")

    return rule


def _same(text: str) -> Rule:
    return _by_dtype(text, text, text)


def _float(text: str) -> Rule:
    return _by_dtype(text, None, None)


def _compared(signed: str, floats: str) -> Rule:
    unsigned = signed if signed in ("eq", "ne") else "u" + signed[1:]

    def rule(w: Any, eqn: Any, *xs: Value) -> str:
        t = eqn.invars[0].aval
        wide = widened(t.dtype)
        a, b = [cast(w, x, s.update(dtype=t.dtype), wide, eqn.outvars[0].aval.shape) for x, s in
                zip(xs, [a.aval for a in eqn.invars], strict=True)]  # fmt: skip
        kind = vector(eqn.outvars[0].aval.shape, element(wide))
        if is_inexact(t.dtype):
            return w.let(f"arith.cmpf {floats}, {a}, {b} : {kind}")
        how = unsigned if is_unsigned(wide) else signed
        return w.let(f"arith.cmpi {how}, {a}, {b} : {kind}")

    return rule


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
        raise w.no_form(eqn, "between more than two cases", "Select with `where` several times.")
    chosen = w.name(which, flag)  # a scalar selects between vectors, too
    kinds = kind_of(flag), vector(out.shape, element(wide))
    kind = kinds[1] if not flag.shape else ", ".join(kinds)
    y = w.let(f"arith.select {chosen}, {names[1]}, {names[0]} : {kind}")
    return cast(w, y, out.update(dtype=wide), out.dtype)


def _not(w: Any, eqn: Any, x: Value) -> str:
    t = eqn.invars[0].aval
    ones = w.constant(True if is_bool(t.dtype) else -1, t.dtype, t.shape)
    return w.let(f"arith.xori {w.name(x, t)}, {ones} : {kind_of(t)}")


def _abs(w: Any, eqn: Any, x: Value) -> str:
    return _by_dtype("math.absf", "math.absi", None)(w, eqn, x)


def _negative(w: Any, eqn: Any, x: Value) -> str:
    t = eqn.invars[0].aval
    if is_inexact(t.dtype):
        return _float("arith.negf")(w, eqn, x)
    return w.let(f"arith.subi {w.constant(0, t.dtype, t.shape)}, {w.name(x, t)} : {kind_of(t)}")


def _integer_pow(x: Any, y: int) -> Any:
    if y < 0:
        return ew.div(lit(1, x), _integer_pow(x, -y))
    if y == 0:
        return ew.add(ew.mul(x, lit(0, x)), lit(1, x))
    half = _integer_pow(x, y // 2) if y > 1 else None
    squared = None if half is None else ew.mul(half, half)
    return x if squared is None else ew.mul(squared, x) if y % 2 else squared


def _sign(x: Any) -> Any:
    zero, one = lit(0, x), lit(1, x)
    return ew.where(ew.gt(x, zero), one, ew.where(ew.lt(x, zero), lit(-1, x), zero))


def _logistic(x: Any) -> Any:
    return ew.div(lit(1, x), ew.add(lit(1, x), ew.exp(ew.neg(x))))


def _expm1(x: Any) -> Any:
    """By tanh, which is exact near zero: exp(x) - 1 = tanh(x/2) (exp(x) + 1)."""
    small = ew.mul(ew.tanh(ew.mul(lit(0.5, x), x)), ew.add(ew.exp(x), lit(1, x)))
    return ew.where(ew.lt(ew.abs(x), lit(0.5, x)), small, ew.sub(ew.exp(x), lit(1, x)))


def _finite(x: Any) -> Any:
    return ew.lt(ew.abs(x), lit(np.inf, x))


COMPOSED: dict[Op, Callable[..., Any]] = {  # by functions of other ops
    ew.square: lambda x: ew.mul(x, x),
    ew.one_minus_square: lambda x: ew.mul(ew.sub(lit(1, x), x), ew.add(lit(1, x), x)),
    ew.integer_pow: _integer_pow,
    ew.sign: _sign,
    ew.logistic: _logistic,
    ew.expm1: _expm1,
    ew.is_finite: _finite,
    logical.clamp: lambda low, x, high: ew.min(ew.max(low, x), high),
    ew.cosh: lambda x: ew.mul(lit(0.5, x), ew.add(ew.exp(x), ew.exp(ew.neg(x)))),
    ew.sinh: lambda x: ew.mul(lit(0.5, x), ew.sub(ew.expm1(x), ew.expm1(ew.neg(x)))),
}


# -- conversion --


def cast(w: Any, x: Value, t: ArrayType, dtype: Any, to: Sequence[int] | None = None) -> str:
    """A value of a type in another dtype, in the steps that Mosaic has."""
    to = t.shape if to is None else to
    if isinstance(x, Splat):
        return w.constant(np.asarray(x.number).astype(t.dtype).astype(dtype)[()], dtype, to)
    name = w.name(x, t, to)
    for step in _steps(t.dtype, dtype):
        name = _cast_once(w, name, t, step, to)
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


def _cast_once(w: Any, x: str, t: ArrayType, dtype: Any, to: Sequence[int]) -> str:
    old, new = t.dtype, dtype
    kinds = vector(to, element(old)), vector(to, element(new))
    if is_bool(new):
        zero = w.constant(0, old, to)
        name = "arith.cmpf une" if is_inexact(old) else "arith.cmpi ne"
        return w.let(f"{name}, {x}, {zero} : {kinds[0]}")
    if kinds[0] == kinds[1]:  # signed and unsigned integers
        return x
    if is_inexact(old) and is_inexact(new):
        name = "extf" if new.itemsize > old.itemsize else "truncf"
    elif is_inexact(old):
        name = "fptoui" if is_unsigned(new) else "fptosi"
    elif is_inexact(new):
        name = "uitofp" if is_unsigned(old) else "sitofp"
    elif new.itemsize > old.itemsize or is_bool(old) or "4" in old.name:
        name = "extui" if is_unsigned(old) or is_bool(old) else "extsi"
    else:
        name = "trunci"
    return w.let(f"arith.{name} {x} : {kinds[0]} to {kinds[1]}")


def _convert(w: Any, eqn: Any, x: Value, *, dtype: Any, weak: bool = False) -> Value:
    t = eqn.invars[0].aval
    if isinstance(x, Splat):
        return Splat(np.asarray(x.number).astype(t.dtype).astype(dtype)[()])
    return x if t.dtype == dtype else cast(w, x, t, dtype)


def _bitcast(w: Any, eqn: Any, x: Value, *, dtype: Any) -> str:
    t, out = eqn.invars[0].aval, eqn.outvars[0].aval
    kinds = kind_of(t), kind_of(out)
    if t.shape != out.shape:
        raise w.no_form(eqn, "between dtypes of different sizes")
    name = w.name(x, t)
    if kinds[0] == kinds[1]:
        return name
    if t.shape:
        return w.let(f"tpu.bitcast {name} : {kinds[0]} -> {kinds[1]}")
    return w.let(f"arith.bitcast {name} : {kinds[0]} to {kinds[1]}")


# -- shapes --


def moved(
    w: Any, x: str, t: ArrayType, to: Sequence[int], write: Callable[[str, str, str], str]
) -> str:
    """Moves elements by `write(x, type, new type) → an operation`. Booleans move as integers."""
    if not is_bool(t.dtype) or not (t.shape and to):
        return w.let(write(x, kind_of(t), vector(to, element(t.dtype))))
    wide = t.update(dtype=I32)
    y = w.let(write(_cast_once(w, x, t, I32, t.shape), kind_of(wide), vector(to, "i32")))
    return _cast_once(w, y, wide, BOOL, to)


def reshaped(w: Any, x: str, t: ArrayType, to: Sequence[int]) -> str:
    """Elements in another shape; scalars are taken out of vectors and put into them."""
    to = tuple(to)
    if t.shape == to:
        return x
    if not t.shape:
        return w.broadcast(x, t, to)
    if not to:
        if is_bool(t.dtype):
            x, t = _cast_once(w, x, t, I32, t.shape), t.update(dtype=I32)
            return _cast_once(w, reshaped(w, x, t, ()), t.update(shape=()), BOOL, ())
        zeros = ", ".join("0" for _ in t.shape)
        return w.let(f"vector.extract {x}[{zeros}] : {element(t.dtype)} from {kind_of(t)}")
    return moved(w, x, t, to, lambda y, a, b: f"vector.shape_cast {y} : {a} to {b}")


def _reshape(w: Any, eqn: Any, x: Value, **p: Any) -> Value:
    if isinstance(x, Splat):
        return x
    t = eqn.invars[0].aval
    return reshaped(w, w.name(x, t), t, eqn.outvars[0].aval.shape)


def _broadcast(w: Any, eqn: Any, x: Value, *, shape: Any, dims: Any) -> Value:
    if isinstance(x, Splat):
        return x
    t = eqn.invars[0].aval
    name = w.name(x, t)
    if not t.shape:
        return w.broadcast(name, t, shape)
    wide = [1] * len(shape)
    for d, n in zip(dims, t.shape, strict=True):
        wide[d] = n
    name = reshaped(w, name, t, wide)
    if tuple(wide) == tuple(shape):
        return name
    return moved(
        w, name, t.update(shape=tuple(wide)), shape,
        lambda y, a, b: f"vector.broadcast {y} : {a} to {b}",
    )  # fmt: skip


def _transpose(w: Any, eqn: Any, x: Value, *, perm: Any) -> Value:
    if isinstance(x, Splat):
        return x
    t = eqn.invars[0].aval
    return moved(
        w, w.name(x, t), t, eqn.outvars[0].aval.shape,
        lambda y, a, b: f"vector.transpose {y}, {list(perm)} : {a} to {b}",
    )  # fmt: skip


def sliced(w: Any, x: str, t: ArrayType, starts: Sequence[int], sizes: Sequence[int]) -> str:
    def write(y: str, a: str, b: str) -> str:  # jaxlib 0.11 changed the short form
        region = f"offsets = {list(starts)}, sizes = {list(sizes)}, strides = {[1] * len(sizes)}"
        return f'"vector.extract_strided_slice"({y}) {{{region}}} : ({a}) -> {b}'

    return moved(w, x, t, sizes, write)


def _slice(
    w: Any, eqn: Any, x: Value, *, start_indices: Any, limit_indices: Any, strides: Any = None
) -> Value:
    if any(s != 1 for s in strides or ()):
        raise w.no_form(eqn, "with strides", "Slice a ref: `ref[ds(start, size, stride)]`.")
    if isinstance(x, Splat):
        return x
    t = eqn.invars[0].aval
    return sliced(w, w.name(x, t), t, start_indices, eqn.outvars[0].aval.shape)


def _split(w: Any, eqn: Any, x: Value, *, sizes: Any, axis: int) -> list[Value]:
    t, found, at = eqn.invars[0].aval, [], 0
    for n, out in zip(sizes, eqn.outvars, strict=True):
        starts = [at if d == axis else 0 for d in range(t.ndim)]
        found.append(sliced(w, w.name(x, t), t, starts, out.aval.shape))
        at += n
    return found


def joined(w: Any, names: Sequence[str], types: Sequence[ArrayType], axis: int) -> str:
    if len(names) == 1:
        return names[0]
    t = types[0]
    sizes = [sum(s.shape[d] for s in types) if d == axis else n for d, n in enumerate(t.shape)]
    if is_bool(t.dtype):
        wide = [_cast_once(w, x, s, I32, s.shape) for x, s in zip(names, types, strict=True)]
        y = joined(w, wide, [s.update(dtype=I32) for s in types], axis)
        return _cast_once(w, y, t.update(dtype=I32), BOOL, sizes)
    kinds = ", ".join(map(kind_of, types))
    out = vector(sizes, element(t.dtype))
    return w.let(f"tpu.concatenate {', '.join(names)} in {axis} : {kinds} -> {out}")


def _concatenate(w: Any, eqn: Any, *xs: Value, dimension: int) -> str:
    types = [a.aval for a in eqn.invars]
    return joined(w, [w.name(x, t) for x, t in zip(xs, types, strict=True)], types, dimension)


def _pad(w: Any, eqn: Any, x: Value, value: Value, *, padding_config: Any) -> str:
    t = eqn.invars[0].aval
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        raise w.no_form(eqn, "by negative numbers, or between elements")
    name = w.name(x, t)
    for d, (low, high, _) in enumerate(padding_config):
        parts, types = [name], [t]
        for n, at in ((low, 0), (high, len(parts) + bool(low))):
            if n:
                edge = t.update(shape=(*t.shape[:d], n, *t.shape[d + 1 :]))
                scalar = eqn.invars[1].aval
                parts.insert(at, w.name(value, scalar, edge.shape))
                types.insert(at, edge)
        name = joined(w, parts, types, d)
        total = t.shape[d] + low + high
        t = t.update(shape=(*t.shape[:d], total, *t.shape[d + 1 :]))
    return name


def _iota(w: Any, eqn: Any, *, dtype: Any, shape: Any, dimension: int) -> str:
    wide = (1, *shape) if len(shape) == 1 else shape  # registers have two dimensions
    at = dimension + len(wide) - len(shape)
    x = w.let(f"tpu.iota {{dimensions = array<i32: {at}>}} : {vector(wide, 'i32')}")
    t = eqn.outvars[0].aval.update(shape=wide, dtype=I32)
    return cast(w, reshaped(w, x, t, shape), t.update(shape=shape), dtype)


# -- reductions --


def _reduce(kinds: tuple[str, str, str], identity: Callable[[Any], Any]) -> Rule:
    """kinds: for floats, signed and unsigned integers. identity: of a dtype."""

    def rule(w: Any, eqn: Any, x: Value, *, axes: Any) -> str:
        t, out = eqn.invars[0].aval, eqn.outvars[0].aval
        wide = widened(t.dtype)
        name = cast(w, x, t, wide)
        if not axes:
            return cast(w, name, t.update(dtype=wide), t.dtype)
        kind = kinds[0 if is_inexact(wide) else 1 + is_unsigned(wide)]
        name = reduced(w, name, t.update(dtype=wide), axes, kind, identity(wide))
        return cast(w, name, out.update(dtype=wide), out.dtype)

    return rule


def reduced(w: Any, x: str, t: ArrayType, axes: Sequence[int], kind: str, identity: Any) -> str:
    """A reduction. The result of one over all dimensions is a scalar, by way of a vector."""
    left = tuple([n for d, n in enumerate(t.shape) if d not in axes])
    if not left:
        x, t = reshaped(w, x, t, (1, *t.shape)), t.update(shape=(1, *t.shape))
        y = reduced(w, x, t, [d + 1 for d in axes], kind, identity)
        return reshaped(w, y, t.update(shape=(1,)), ())
    start = w.constant(identity, t.dtype, left)
    out = vector(left, element(t.dtype))
    return w.let(
        f"vector.multi_reduction <{kind}>, {x}, {start} {list(axes)} : {kind_of(t)} to {out}"
    )


def _of_flags(kind: str, identity: Callable[[Any], Any]) -> Rule:
    """A reduction of booleans."""
    rule = _reduce((kind, kind, kind), identity)

    def flags(w: Any, eqn: Any, x: Value, *, axes: Any) -> str:
        if not is_bool(eqn.invars[0].aval.dtype):
            raise w.no_form(eqn, "of integers")
        return rule(w, eqn, x, axes=axes)

    return flags


def _lowest(dtype: Any) -> Any:
    return -np.inf if is_inexact(dtype) else np.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return np.inf if is_inexact(dtype) else np.iinfo(dtype).max


def _arg(kind: str) -> Rule:
    def rule(w: Any, eqn: Any, x: Value, *, axes: Any, index_dtype: Any) -> str:
        t, out = eqn.invars[0].aval, eqn.outvars[0].aval
        if t.dtype != F32:
            raise w.no_form(eqn, f"of the dtype {t.dtype.name}", "Convert to float32 before.")
        if len(axes) != 1:
            raise w.no_form(eqn, "over several dimensions", "Reshape to one dimension before.")
        name, axis = w.name(x, t), axes[0]
        if t.ndim == 1:
            name, axis, t = reshaped(w, name, t, (1, *t.shape)), 1, t.update(shape=(1, *t.shape))
        left = tuple([n for d, n in enumerate(t.shape) if d != axis])
        name = w.let(
            f"tpu.reduce_index {name} {{axis = {axis} : i32, kind = #tpu.reduction_kind<{kind}>}} "
            f": {kind_of(t)} -> {vector(left, 'i32')}"
        )
        found = out.update(shape=left, dtype=I32)
        return cast(w, reshaped(w, name, found, out.shape), out.update(dtype=I32), index_dtype)

    return rule


# -- products --


def _dot(
    w: Any, eqn: Any, x: Value, y: Value, *, dimension_numbers: Any, precision: Any,
    preferred_element_type: Any,
) -> str:  # fmt: skip
    (lc, rc), (lb, rb) = dimension_numbers
    types = [a.aval for a in eqn.invars]
    out = eqn.outvars[0].aval
    names = [w.name(v, t) for v, t in zip((x, y), types, strict=True)]
    if types[0].dtype != types[1].dtype or len(lc) != 1 or len(lb) > 1:
        raise w.no_form(
            eqn, f"of {types[0].str_short(True)} and {types[1].str_short(True)} over "
            f"{len(lc)} dimensions and with {len(lb)} batch dimensions",
            "Products are of two matrices of one dtype, with at most one batch dimension.",
        )  # fmt: skip
    own = [[d for d in range(t.ndim) if d not in (*c, *b)] for t, c, b in
           zip(types, (lc, rc), (lb, rb), strict=True)]  # fmt: skip
    sizes: list[int] = [types[0].shape[d] for d in lb]
    numbers = []
    for i, (c, b) in enumerate(zip((lc, rc), (lb, rb), strict=True)):
        t = types[i]
        if not own[i]:  # a vector is a matrix of one row
            names[i] = reshaped(w, names[i], t, (*t.shape, 1))
            types[i], own[i] = t.update(shape=(*t.shape, 1)), [t.ndim]
        if len(own[i]) != 1:
            raise w.no_form(eqn, f"of {t.str_short(True)}", "Reshape it to a matrix before.")
        sizes.append(types[i].shape[own[i][0]])
        numbers.append((list(c), own[i], list(b)))
    order = [0, lb[0]] if lb else []
    order += [0, own[0][0], 1, own[1][0]]
    (a, m, d), (b, n, e) = numbers
    wide = I32 if is_integer(types[0].dtype) else F32
    kind = vector(sizes, element(wide))
    how = _precision(w, eqn, precision, types[0].dtype)
    name = w.let(
        f"tpu.matmul {names[0]}, {names[1]}, {w.constant(0, wide, sizes)} {{dimension_numbers = "
        f"#tpu.dot_dimension_numbers<{a}, {b}, {m}, {n}, {order}, {d}, {e}>, {how}"
        f"transpose_lhs_hint = false}} : {kind_of(types[0])}, {kind_of(types[1])}, {kind} -> {kind}"
    )
    found = out.update(shape=tuple(sizes), dtype=wide)
    return cast(w, reshaped(w, name, found, out.shape), out.update(dtype=wide), out.dtype)


def _precision(w: Any, eqn: Any, precision: Any, dtype: Any) -> str:
    """The attribute of a precision; Mosaic's default for float32 is one pass in bfloat16."""
    pair = precision if isinstance(precision, tuple) else (precision, precision)
    names = {getattr(p, "name", str(p)).lower() for p in pair}
    if names <= {"none", "default"} or dtype != F32:
        return ""
    known = {"highest": "fp32", "high": "bf16x3"}
    if len(names) > 1 or not names <= set(known):
        raise w.no_form(
            eqn, f"with precision {precision!r}", "It is one of None, 'default' and 'highest'."
        )
    return f"precision = #tpu.contract_precision<{known[names.pop()]}>, "


def _given(w: Any, eqn: Any, x: Value, **p: Any) -> Value:
    return x


RULES: dict[Op, Rule] = {
    **{op: _same(f"arith.{text}") for op, text in {
        logical.bitwise_and: "andi", logical.bitwise_or: "ori", logical.bitwise_xor: "xori",
        logical.shift_left: "shli", logical.shift_right_logical: "shrui",
        logical.shift_right_arithmetic: "shrsi",
    }.items()},
    **{op: _by_dtype(*[f"arith.{text}" for text in texts]) for op, texts in {
        ew.add: ("addf", "addi", "addi"), ew.sub: ("subf", "subi", "subi"),
        ew.mul: ("mulf", "muli", "muli"), ew.div: ("divf", "divsi", "divui"),
        ew.rem: ("remf", "remsi", "remui"), ew.max: ("maximumf", "maxsi", "maxui"),
        ew.min: ("minimumf", "minsi", "minui"),
    }.items()},
    **{op: _float(f"math.{text}") for op, text in {
        ew.exp: "exp", ew.exp2: "exp2", ew.log: "log", ew.log1p: "log1p", ew.tanh: "tanh",
        ew.sin: "sin", ew.cos: "cos", ew.tan: "tan", ew.sqrt: "sqrt", ew.rsqrt: "rsqrt",
        ew.floor: "floor", ew.ceil: "ceil", ew.pow: "powf", ew.atan2: "atan2", erf: "erf",
    }.items()},
    **{op: _compared(*texts) for op, texts in {
        logical.eq: ("eq", "oeq"), logical.ne: ("ne", "une"), logical.lt: ("slt", "olt"),
        logical.le: ("sle", "ole"), logical.gt: ("sgt", "ogt"), logical.ge: ("sge", "oge"),
    }.items()},
    logical.select_n: _select, logical.bitwise_not: _not, ew.abs: _abs, ew.neg: _negative,
    logical.population_count: _same("math.ctpop"), logical.clz: _same("math.ctlz"),
    ew.round: lambda w, eqn, x, rounding_method=0: _float(
        "math.roundeven" if rounding_method else "math.round")(w, eqn, x),
    convert_element_type: _convert, bitcast_convert_type: _bitcast,
    ew.copy: _given, ew.stop_gradient: _given, pcast: _given,
    reshape: _reshape, broadcast_in_dim: _broadcast, transpose: _transpose,
    shape.slice_: _slice, shape.split: _split, shape.concatenate: _concatenate, shape.pad: _pad,
    iota: _iota, dot_general: _dot,
    reduce_sum: _reduce(("add", "add", "add"), lambda d: 0),
    reduce.reduce_prod: _reduce(("mul", "mul", "mul"), lambda d: 1),
    reduce.reduce_max: _reduce(("maximumf", "maxsi", "maxui"), _lowest),
    reduce.reduce_min: _reduce(("minimumf", "minsi", "minui"), _highest),
    reduce.reduce_and: _of_flags("minsi", _highest),
    reduce.reduce_or: _of_flags("maxsi", _lowest),
    reduce.argmax: _arg("arg_max"), reduce.argmin: _arg("arg_min"),
}  # fmt: skip
