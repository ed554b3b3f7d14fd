"""The forms in Mosaic of ops that move elements, reduce, and multiply matrices: `SHAPES`, as in
mosaic_elementwise.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.kernels.on_tpu.mosaic_elementwise import BOOL, F32, I32, cast, widened, xored
from shardwise._src.kernels.on_tpu.mosaic_text import Operand, Rule, Splat, element, on_values
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import reduce, shape
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import dot_general, free_dims
from shardwise._src.ops.create import iota
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice
from shardwise._src.types.dtypes import is_bool, is_inexact, is_unsigned, max_value, min_value

# -- shapes --


def moved(w: Any, x: Operand, to: Sequence[int], write: Callable[[Operand], str]) -> Operand:
    """Moves elements by an operation: `write(x)`, its text before the type of the result. Booleans
    move as integers."""
    if is_bool(x.dtype) and x.shape and to:
        return cast(w, moved(w, cast(w, x, I32), to, write), BOOL)
    return w.made(write(x), to, x.dtype)


def reshaped(w: Any, x: Operand, to: Sequence[int]) -> Operand:
    """Elements in another shape; scalars are taken out of vectors and put into them."""
    to = tuple(to)
    if x.shape == to or not x.shape:
        return w.in_register(x, to)
    if to:
        return moved(w, x, to, lambda y: f"vector.shape_cast {y} : {y.kind} to")
    if is_bool(x.dtype):
        return cast(w, reshaped(w, cast(w, x, I32), ()), BOOL)
    zeros = ", ".join("0" for _ in x.shape)
    name = w.let(f"vector.extract {x}[{zeros}] : {element(x.dtype)} from {x.kind}")
    return Operand(name, (), x.dtype)


def _move(write: Rule) -> Rule:
    """A rule that moves elements: constants stay."""

    def rule(w: Any, eqn: Any, x: Operand, *rest: Operand, **p: Any) -> Operand:
        return x if x.known is not None else write(w, eqn, w.in_register(x), *rest, **p)

    return rule


def _reshape(w: Any, eqn: Any, x: Operand, **p: Any) -> Operand:
    return reshaped(w, x, eqn.outvars[0].aval.shape)


def _broadcast(w: Any, eqn: Any, x: Operand, *, shape: Any, dims: Any) -> Operand:
    if not x.shape:
        return w.in_register(x, shape)
    sizes = dict(zip(dims, x.shape, strict=True))
    x = reshaped(w, x, [sizes.get(d, 1) for d in range(len(shape))])
    if x.shape == tuple(shape):
        return x
    return moved(w, x, shape, lambda y: f"vector.broadcast {y} : {y.kind} to")


def _transpose(w: Any, eqn: Any, x: Operand, *, perm: Any) -> Operand:
    to = eqn.outvars[0].aval.shape
    return moved(w, x, to, lambda y: f"vector.transpose {y}, {list(perm)} : {y.kind} to")


def sliced(w: Any, x: Operand, starts: Sequence[int], sizes: Sequence[int]) -> Operand:
    region = f"offsets = {list(starts)}, sizes = {list(sizes)}, strides = {[1] * len(sizes)}"
    op = '"vector.extract_strided_slice"'  # jaxlib 0.11 changed the short form
    return moved(w, x, sizes, lambda y: f"{op}({y}) {{{region}}} : ({y.kind}) ->")


def _slice(w: Any, eqn: Any, x: Operand, *, start_indices: Any, **p: Any) -> Operand:
    if any(s != 1 for s in p.get("strides") or ()):
        raise w.unsupported(eqn, "with strides", "Slice a ref: `ref[ds(start, size, stride)]`.")
    return sliced(w, x, start_indices, eqn.outvars[0].aval.shape)


def _dynamic_slice(w: Any, eqn: Any, x: Operand, *starts: Operand, slice_sizes: Any) -> Operand:
    """By rotations, so that the slice begins at 0 along each dimension."""
    first = [0] * len(x.shape)
    for d, (start, n, size) in enumerate(zip(starts, x.shape, slice_sizes, strict=True)):
        if start.known is not None:
            first[d] = min(max(int(start.known), 0), n - size)
        elif size < n:
            amount = functools.partial(_rotation, n=n, size=size)
            x = _rotated(w, x, d, w.composed(amount, (eqn.invars[d + 1].aval,), start.value))
    return sliced(w, x, first, slice_sizes)


def _rotated(w: Any, x: Operand, d: int, amount: str) -> Operand:
    how = f"by {amount} dim {d}"
    return moved(w, x, x.shape, lambda y: f"tpu.dynamic_rotate {y} {how} : {y.kind}, i32 ->")


def _rotation(start: Any, n: int, size: int) -> Any:
    """How far to rotate n elements to the right, so that a slice from `start` begins at 0."""
    start = ew.min(ew.max(convert_element_type(start, dtype=I32), np.int32(0)), np.int32(n - size))
    return ew.rem(ew.sub(np.int32(n), start), np.int32(n))


def _split(w: Any, eqn: Any, x: Operand, *, sizes: Any, axis: int) -> list[Operand]:
    found, starts = [], [0] * len(x.shape)
    for out in eqn.outvars:
        found.append(sliced(w, w.in_register(x), starts, out.aval.shape))
        starts[axis] += out.aval.shape[axis]
    return found


def joined(w: Any, xs: Sequence[Operand], axis: int) -> Operand:
    if len(xs) == 1:
        return xs[0]
    if is_bool(xs[0].dtype):
        return cast(w, joined(w, [cast(w, x, I32) for x in xs], axis), BOOL)
    sizes = list(xs[0].shape)
    sizes[axis] = sum(x.shape[axis] for x in xs)
    kinds = ", ".join([x.kind for x in xs])
    text = f"tpu.concatenate {', '.join(map(str, xs))} in {axis} : {kinds} ->"
    return w.made(text, sizes, xs[0].dtype)


def _concatenate(w: Any, eqn: Any, *xs: Operand, dimension: int) -> Operand:
    return joined(w, [w.in_register(x) for x in xs], dimension)


def _pad(w: Any, eqn: Any, x: Operand, value: Operand, *, padding_config: Any) -> Operand:
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        raise w.unsupported(eqn, "by negative numbers, or between elements")
    x = w.in_register(x)
    for d, (low, high, _) in enumerate(padding_config):
        parts = (low, value), (x.shape[d], x), (high, value)
        first, last = x.shape[:d], x.shape[d + 1 :]
        x = joined(w, [w.in_register(y, (*first, n, *last)) for n, y in parts if n], d)
    return x


def _iota(w: Any, eqn: Any, *, dtype: Any, shape: Any, dimension: int) -> Operand:
    flat = len(shape) == 1  # registers have two dimensions
    wide = (1, *shape) if flat else shape
    x = w.made(f"tpu.iota {{dimensions = array<i32: {dimension + flat}>}} :", wide, I32)
    return cast(w, reshaped(w, x, shape), dtype)


# -- reductions --


_IDENTITIES: dict[str, Any] = {"add": lambda dtype: 0, "max": min_value, "min": max_value}


def _reduce(name: str, of_flags: bool = False) -> Rule:
    def rule(w: Any, eqn: Any, x: Operand, *, axes: Any) -> Operand:
        if of_flags and not is_bool(x.dtype):
            raise w.unsupported(eqn, "of integers")
        y = cast(w, x, widened(x.dtype))
        if not axes:
            return cast(w, y, x.dtype)
        flip = is_unsigned(y.dtype) and name != "add"  # as signed integers with another first bit
        if flip:
            y = replace(xored(w, y, -(2**31)), dtype=I32)
        y, axes, shape = _with_result(w, y, axes)
        start = w.constant(_IDENTITIES[name](y.dtype), y.dtype, shape)
        more = "" if name == "add" else "imumf" if is_inexact(y.dtype) else "si"
        text = f"vector.multi_reduction <{name}{more}>, {y}, {start} {list(axes)} : {y.kind} to"
        y = w.made(text, shape, y.dtype)
        y = reshaped(w, y, eqn.outvars[0].aval.shape)
        return cast(w, xored(w, y, -(2**31)) if flip else y, x.dtype)

    return rule


def _with_result(w: Any, x: Operand, axes: Sequence[int]) -> tuple[Operand, Any, Any]:
    """An operand, the axes to reduce, and the shape of the result, which is a vector: a reduction
    over all dimensions leaves one of size 1."""
    if len(axes) == len(x.shape):
        x, axes = reshaped(w, x, (1, *x.shape)), [d + 1 for d in axes]
    return x, axes, tuple([n for d, n in enumerate(x.shape) if d not in axes])


def _arg(kind: str) -> Rule:
    def rule(w: Any, eqn: Any, x: Operand, *, axes: Any, index_dtype: Any) -> Operand:
        if x.dtype != F32:
            raise w.unsupported(eqn, f"of the dtype {x.dtype.name}", "Convert to float32 before.")
        if len(axes) != 1:
            raise w.unsupported(eqn, "over several dimensions", "Reshape to one dimension before.")
        x, axes, shape = _with_result(w, w.in_register(x), axes)
        how = f"{{axis = {axes[0]} : i32, kind = #tpu.reduction_kind<{kind}>}}"
        y = w.made(f"tpu.reduce_index {x} {how} : {x.kind} ->", shape, I32)
        found = reshaped(w, y, eqn.outvars[0].aval.shape)
        return cast(w, found, index_dtype)

    return rule


# -- products --


def _dot(
    w: Any, eqn: Any, *xs: Operand, dimension_numbers: Any, precision: Any, **p: Any
) -> Operand:
    contracted, batch = dimension_numbers
    out, types = eqn.outvars[0].aval, [v.aval for v in eqn.invars]
    if types[0].dtype != types[1].dtype or len(contracted[0]) != 1 or len(batch[0]) > 1:
        raise w.unsupported(
            eqn, f"of {types[0].str_short(True)} and {types[1].str_short(True)} over "
            f"{len(contracted[0])} dimensions and with {len(batch[0])} batch dimensions",
            "Products are of two matrices of one dtype, with at most one batch dimension.",
        )  # fmt: skip
    sides, numbers, sizes = [], [], [types[0].shape[d] for d in batch[0]]
    for x, c, b in zip([w.in_register(x) for x in xs], contracted, batch, strict=True):
        own, last = free_dims(len(x.shape), c, b), len(x.shape) - 1
        if len(own) > 1 and not b and c[0] == last:  # rows of rows
            x, own, c = reshaped(w, x, (math.prod(x.shape[:-1]), x.shape[-1])), [0], (1,)
        if not own:  # a vector is a matrix of one row
            x, own = reshaped(w, x, (*x.shape, 1)), [last + 1]
        if len(own) != 1:
            given = types[len(sides)].str_short(True)
            raise w.unsupported(eqn, f"of {given}", "Reshape it to a matrix before.")
        sides.append(x)
        sizes.append(x.shape[own[0]])
        numbers.append((list(c), own, list(b)))
    x, y = sides
    (a, m, d), (b, n, e) = numbers
    order = [0] * len(d) + d + [0, *m, 1, *n]
    wide = F32 if is_inexact(x.dtype) else I32
    how = _precision(w, eqn, precision, x.dtype)
    zero = w.in_register(Operand(Splat(0), tuple(sizes), wide))
    found = w.made(
        f"tpu.matmul {x}, {y}, {zero} {{dimension_numbers = "
        f"#tpu.dot_dimension_numbers<{a}, {b}, {m}, {n}, {order}, {d}, {e}>, {how}"
        f"transpose_lhs_hint = false}} : {x.kind}, {y.kind}, {zero.kind} ->", sizes, wide,
    )  # fmt: skip
    return cast(w, reshaped(w, found, out.shape), out.dtype)


def _precision(w: Any, eqn: Any, precision: Any, dtype: Any) -> str:
    """The attribute of a precision; Mosaic's default for float32 is one pass in bfloat16."""
    pair = precision if isinstance(precision, tuple) else (precision,)
    names = {str(p).lower() for p in pair}
    if names <= {"none", "default"} or dtype != F32:
        return ""
    known = {"highest": "fp32", "high": "bf16x3"}
    if len(names) > 1 or not names <= set(known):
        raise w.unsupported(
            eqn, f"with precision {precision!r}", "It is one of None, 'default' and 'highest'."
        )
    return f"precision = #tpu.contract_precision<{known[names.pop()]}>, "


SHAPES = on_values({
    **{op: _move(rule) for op, rule in {
        reshape: _reshape, broadcast_in_dim: _broadcast, transpose: _transpose,
        dynamic_slice: _dynamic_slice, shape.slice_: _slice,
    }.items()},
    shape.split: _split, shape.concatenate: _concatenate, shape.pad: _pad,
    iota: _iota, dot_general: _dot, reduce_sum: _reduce("add"),
    reduce.reduce_max: _reduce("max"), reduce.reduce_min: _reduce("min"),
    reduce.reduce_and: _reduce("min", of_flags=True),
    reduce.reduce_or: _reduce("max", of_flags=True),
    reduce.argmax: _arg("arg_max"), reduce.argmin: _arg("arg_min"),
})  # fmt: skip
