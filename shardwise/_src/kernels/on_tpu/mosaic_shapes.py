"""The forms in Mosaic of ops that move elements, reduce, and multiply matrices: `SHAPES`, as in
mosaic_elementwise.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.kernels.on_tpu.mosaic_elementwise import (
    BOOL,
    F32,
    I32,
    Rule,
    cast,
    cast_once,
    kind_of,
    widened,
)
from shardwise._src.kernels.on_tpu.mosaic_text import Splat, Value, element, vector
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import reduce, shape
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.create import iota
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact, is_integer, is_unsigned

# -- shapes --


def moved(
    w: Any, x: str, t: ArrayType, to: Sequence[int], write: Callable[[str, str, str], str]
) -> str:
    """Moves elements by `write(x, type, new type) → an operation`. Booleans move as integers."""
    if not is_bool(t.dtype) or not (t.shape and to):
        return w.let(write(x, kind_of(t), vector(to, element(t.dtype))))
    wide = t.update(dtype=I32)
    y = w.let(write(cast_once(w, x, t, I32, t.shape), kind_of(wide), vector(to, "i32")))
    return cast_once(w, y, wide, BOOL, to)


def reshaped(w: Any, x: str, t: ArrayType, to: Sequence[int]) -> str:
    """Elements in another shape; scalars are taken out of vectors and put into them."""
    to = tuple(to)
    if t.shape == to:
        return x
    if not t.shape:
        return w.broadcast(x, t, to)
    if not to:
        if is_bool(t.dtype):
            x, t = cast_once(w, x, t, I32, t.shape), t.update(dtype=I32)
            return cast_once(w, reshaped(w, x, t, ()), t.update(shape=()), BOOL, ())
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
        raise w.unsupported(eqn, "with strides", "Slice a ref: `ref[ds(start, size, stride)]`.")
    if isinstance(x, Splat):
        return x
    t = eqn.invars[0].aval
    return sliced(w, w.name(x, t), t, start_indices, eqn.outvars[0].aval.shape)


def _dynamic_slice(w: Any, eqn: Any, x: Value, *starts: Value, slice_sizes: Any) -> Value:
    """By rotations, so that the slice begins at 0 along each dimension."""
    t = eqn.invars[0].aval
    if isinstance(x, Splat):
        return x
    name, first = w.name(x, t), [0] * t.ndim
    for d, (start, n, size) in enumerate(zip(starts, t.shape, slice_sizes, strict=True)):
        if isinstance(start, Splat):
            first[d] = min(max(int(start.number), 0), n - size)
        elif size < n:
            own = eqn.invars[d + 1].aval
            amount = functools.partial(_rotation, n=n, size=size)
            at = w.program(program_of(amount, (own,), "rotation"), [start])[0]
            form = f"by {at} dim {d}"
            name = moved(
                w, name, t, t.shape,
                lambda y, a, b, form=form: f"tpu.dynamic_rotate {y} {form} : {a}, i32 -> {b}",
            )  # fmt: skip
    return sliced(w, name, t, first, slice_sizes)


def _rotation(start: Any, n: int, size: int) -> list[Any]:
    """How far to rotate n elements to the right, so that a slice from `start` begins at 0."""
    start = ew.min(ew.max(convert_element_type(start, dtype=I32), np.int32(0)), np.int32(n - size))
    return [ew.rem(ew.sub(np.int32(n), start), np.int32(n))]


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
        wide = [cast_once(w, x, s, I32, s.shape) for x, s in zip(names, types, strict=True)]
        y = joined(w, wide, [s.update(dtype=I32) for s in types], axis)
        return cast_once(w, y, t.update(dtype=I32), BOOL, sizes)
    kinds = ", ".join(map(kind_of, types))
    out = vector(sizes, element(t.dtype))
    return w.let(f"tpu.concatenate {', '.join(names)} in {axis} : {kinds} -> {out}")


def _concatenate(w: Any, eqn: Any, *xs: Value, dimension: int) -> str:
    types = [a.aval for a in eqn.invars]
    return joined(w, [w.name(x, t) for x, t in zip(xs, types, strict=True)], types, dimension)


def _pad(w: Any, eqn: Any, x: Value, value: Value, *, padding_config: Any) -> str:
    t = eqn.invars[0].aval
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        raise w.unsupported(eqn, "by negative numbers, or between elements")
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


def _reduce(kinds: tuple[str, str], identity: Callable[[Any], Any]) -> Rule:
    """kinds: for floats and for integers. identity: of a dtype."""

    def rule(w: Any, eqn: Any, x: Value, *, axes: Any) -> str:
        t, out = eqn.invars[0].aval, eqn.outvars[0].aval
        wide = widened(t.dtype)
        name = cast(w, x, t, wide)
        if not axes:
            return cast(w, name, t.update(dtype=wide), t.dtype)
        kind = kinds[not is_inexact(wide)]
        is_order = is_unsigned(wide) and kind != "add"  # as signed integers with another first bit
        if is_order:
            name, wide = _first_bit(w, name, t.update(dtype=wide)), I32
        name = reduced(w, name, t.update(dtype=wide), axes, kind, identity(wide))
        name = _first_bit(w, name, out.update(dtype=I32)) if is_order else name
        return cast(w, name, out.update(dtype=wide), out.dtype)

    return rule


def _first_bit(w: Any, x: str, t: ArrayType) -> str:
    """Integers of 32 bits with the first bit inverted."""
    bit = w.constant(-(2**31), I32, t.shape)
    return w.let(f"arith.xori {x}, {bit} : {vector(t.shape, 'i32')}")


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
    rule = _reduce((kind, kind), identity)

    def flags(w: Any, eqn: Any, x: Value, *, axes: Any) -> str:
        if not is_bool(eqn.invars[0].aval.dtype):
            raise w.unsupported(eqn, "of integers")
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
            raise w.unsupported(eqn, f"of the dtype {t.dtype.name}", "Convert to float32 before.")
        if len(axes) != 1:
            raise w.unsupported(eqn, "over several dimensions", "Reshape to one dimension before.")
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
        raise w.unsupported(
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
        if len(own[i]) > 1 and not b and tuple(c) == (t.ndim - 1,):  # rows of rows
            rows = math.prod([t.shape[d] for d in own[i]])
            names[i] = reshaped(w, names[i], t, (rows, t.shape[-1]))
            types[i], own[i], c = t.update(shape=(rows, t.shape[-1])), [0], (1,)
        if not own[i]:  # a vector is a matrix of one row
            names[i] = reshaped(w, names[i], t, (*t.shape, 1))
            types[i], own[i] = t.update(shape=(*t.shape, 1)), [t.ndim]
        if len(own[i]) != 1:
            raise w.unsupported(eqn, f"of {t.str_short(True)}", "Reshape it to a matrix before.")
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
        raise w.unsupported(
            eqn, f"with precision {precision!r}", "It is one of None, 'default' and 'highest'."
        )
    return f"precision = #tpu.contract_precision<{known[names.pop()]}>, "


SHAPES: dict[Op, Rule] = {
    reshape: _reshape, broadcast_in_dim: _broadcast, transpose: _transpose,
    dynamic_slice: _dynamic_slice, shape.slice_: _slice, shape.split: _split,
    shape.concatenate: _concatenate, shape.pad: _pad,
    iota: _iota, dot_general: _dot,
    reduce_sum: _reduce(("add", "add"), lambda d: 0),
    reduce.reduce_max: _reduce(("maximumf", "maxsi"), _lowest),
    reduce.reduce_min: _reduce(("minimumf", "minsi"), _highest),
    reduce.reduce_and: _of_flags("minsi", _highest),
    reduce.reduce_or: _of_flags("maxsi", _lowest),
    reduce.argmax: _arg("arg_max"), reduce.argmin: _arg("arg_min"),
}  # fmt: skip
