"""Ops that move, reduce and multiply elements, in Triton's dialect.

    @rule("transpose")
    def _transpose(e, x, *, out, perm): …     # out: the type of the result

Elements beyond a shape (on_gpu/triton_text.py) stay beyond it: a rule masks them before it combines
elements along a dimension, and rejects what would move them to other places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.kernels.on_gpu.triton_elementwise import ELEMENTWISE, convert
from shardwise._src.kernels.on_gpu.triton_text import (
    BOOL,
    FLOAT32,
    INT32,
    Value,
    element,
    type_text,
)
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import free_dims
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.reduce import reduce_max, reduce_min
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import (
    is_bool,
    is_float,
    is_integer,
    is_unsigned,
    max_value,
    min_value,
)

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
INT8, FLOAT16 = np.dtype("int8"), np.dtype("float16")
SMALL = 1 << 14  # products of a small matrix product that are computed one by one


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


# -- positions --


@rule("iota")
def _iota(e: Any, *, out: Any, dimension: int, **p: Any) -> Value:
    x = convert(e, e.range(out.shape[dimension]), out.dtype)
    return e.broadcast(e.along(x, dimension, out.shape), out.shape)


@rule("broadcast_in_dim")
def _broadcast(e: Any, x: Value, *, out: Any, dims: Sequence[int], **p: Any) -> Value:
    if x.shape:
        sizes = dict(zip(dims, x.shape, strict=True))
        x = e.reshaped(x, [sizes.get(d, 1) for d in range(len(out.shape))])
    return e.broadcast(x, out.shape)


@rule("transpose")
def _transpose(e: Any, x: Value, *, out: Any, perm: Sequence[int], **p: Any) -> Value:
    return transposed(e, x, perm)


def transposed(e: Any, x: Value, perm: Sequence[int]) -> Value:
    if list(perm) == sorted(perm):
        return x
    shape = [x.shape[d] for d in perm]
    order = ", ".join(map(str, perm))
    kind = type_text(shape, element(x.dtype))
    text = f"tt.trans {x.name} {{order = array<i32: {order}>}} : {x.type} -> {kind}"
    return e.let(text, shape, x.dtype)


@rule("reshape")
def _reshape(e: Any, x: Value, *, out: Any, **p: Any) -> Value:
    if not _keeps_places(x.shape, out.shape):
        raise e.unsupported(
            "reshape",
            f"from {list(x.shape)} to {list(out.shape)}: sizes that are merged or split must be "
            "powers of two, except for the first",
        )
    return e.reshaped(x, out.shape)


def _keeps_places(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether a reshape of the tensors of these shapes moves each element to its place."""
    left, right = [[n for n in shape if n != 1] for shape in (old, new)]
    while left and right:
        if left[0] == right[0]:
            del left[0], right[0]
            continue
        a, b = [left.pop(0)], [right.pop(0)]
        while math.prod(a) != math.prod(b):
            side, rest = (a, left) if math.prod(a) < math.prod(b) else (b, right)
            if not rest:
                return False
            side.append(rest.pop(0))
        if any(power_above(n) != n for n in (*a[1:], *b[1:])):
            return False
    return not left and not right


# -- elements along a dimension, by their positions --


def _clamped(e: Any, at: Value, last: int) -> Value:
    """Positions from 0 to a last one."""
    at = convert(e, at, INT32)
    if at.known is not None or not last:
        return e.constant(min(max(int(at.known or 0), 0), last), at.shape, INT32)
    low, high = [e.constant(n, at.shape, INT32) for n in (0, last)]
    return e.binary("arith.minsi", e.binary("arith.maxsi", at, low), high)


def taken(e: Any, x: Value, axis: int, positions: Value) -> Value:
    """The elements of a tensor at a vector of positions along a dimension."""
    if is_bool(x.dtype):
        return convert(e, taken(e, convert(e, x, INT8), axis, positions), BOOL)
    shape = [*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]]
    inside = _clamped(e, positions, x.shape[axis] - 1)
    at = e.broadcast(e.along(inside, axis, shape), shape)
    kind = type_text(shape, element(x.dtype))
    text = f"tt.gather {x.name}[{at.name}] {{axis = {axis} : i32}}"
    return e.let(f"{text} : ({x.type}, {at.type}) -> {kind}", shape, x.dtype)


def part(e: Any, x: Value, axis: int, start: Value, size: int, stride: int = 1) -> Value:
    """`size` elements along a dimension, from a start on."""
    if size == x.shape[axis] and (size == 1 or (start.known == 0 and stride == 1)):
        return x
    return taken(e, x, axis, e.plus(e.times(e.range(size), stride), start, (size,)))


def window(
    e: Any, x: Value, starts: Sequence[Value], sizes: Sequence[int], strides: Any = None
) -> Value:
    """Elements from a start on along each dimension."""
    strides = strides or (1,) * len(sizes)
    for d, row in enumerate(zip(starts, sizes, strides, strict=True)):
        x = part(e, x, d, *row)
    return x


def replaced(
    e: Any, x: Value, y: Value, starts: Sequence[Value], strides: Sequence[int]
) -> tuple[Value, Value | None]:
    """`y` at its places in a tensor like `x`, and which elements these are; None for all."""
    mask = None
    for d, (start, stride) in enumerate(zip(starts, strides, strict=True)):
        n, size = x.shape[d], y.shape[d]
        if start.known == 0 and stride == 1 and size == n:
            continue
        r = e.range(n)
        away = e.binary("arith.subi", r, e.splat(start, r.shape))
        zero, last = [e.constant(v, r.shape, INT32) for v in (0, (size - 1) * stride)]
        own = e.binary("arith.andi", e.compare("sge", away, zero), e.compare("sle", away, last))
        if stride != 1:
            by = e.constant(stride, r.shape, INT32)
            on = e.compare("eq", e.binary("arith.remsi", away, by), zero)
            own, away = e.binary("arith.andi", own, on), e.binary("arith.divsi", away, by)
        if size == 1:
            shape = [*y.shape[:d], n, *y.shape[d + 1 :]]
            y = e.broadcast(y, shape)
        else:
            y = taken(e, y, d, away)
        mask = e.both(mask, e.along(own, d, x.shape), x.shape)
    return e.broadcast(y, x.shape), mask and e.broadcast(mask, x.shape)


def updated(e: Any, x: Value, y: Value, starts: Sequence[Value], strides: Sequence[int]) -> Value:
    """A tensor with `y` at these places."""
    new, mask = replaced(e, x, y, starts, strides)
    return new if mask is None else e.select(mask, new, x)


@rule("slice")
def _slice(
    e: Any, x: Value, *, out: Any, start_indices: Any, strides: Any = None, **p: Any
) -> Value:
    return window(e, x, [e.integer(n) for n in start_indices], out.shape, strides)


@rule("dynamic_slice")
def _dynamic_slice(e: Any, x: Value, *starts: Value, out: Any, **p: Any) -> Value:
    rows = zip(starts, x.shape, out.shape, strict=True)
    return window(e, x, [_clamped(e, s, n - m) for s, n, m in rows], out.shape)


@rule("dynamic_update_slice")
def _dynamic_update_slice(e: Any, x: Value, y: Value, *starts: Value, **p: Any) -> Value:
    rows = zip(starts, x.shape, y.shape, strict=True)
    return updated(e, x, y, [_clamped(e, s, n - m) for s, n, m in rows], [1] * len(y.shape))


@rule("gather")
def _gather(
    e: Any, x: Value, at: Value, *, out: Any, dimension_numbers: Any, slice_sizes: Any, **p: Any
) -> Value:
    dims, places = dimension_numbers, dimension_numbers.start_index_map
    sizes = [1 if d in places else n for d, n in enumerate(x.shape)]
    is_vector = len(at.shape) == 2 and at.shape[1] == len(places) == 1
    is_taken = dims.collapsed_slice_dims == places and list(slice_sizes) == sizes
    if not is_vector or not is_taken or p.get("mode") == "fill":
        raise e.unsupported(
            "indices that are arrays",
            "are supported along one dimension, as a vector of valid indices. Read slices in a "
            "loop, `ref[ds(i, n)]`, or index outside of the kernel",
        )
    (axis,) = places
    found = taken(e, x, axis, convert(e, e.reshaped(at, at.shape[:1]), INT32))
    (place,) = [d for d in range(len(out.shape)) if d not in dims.offset_dims]
    order = [d for d in range(len(x.shape)) if d != axis]
    return transposed(e, found, [*order[:place], axis, *order[place:]])


@rule("rev")
def _rev(e: Any, x: Value, *, out: Any, dimensions: Sequence[int], **p: Any) -> Value:
    for d in dimensions:
        r = e.range(x.shape[d])
        x = taken(e, x, d, e.binary("arith.subi", e.constant(x.shape[d] - 1, r.shape, INT32), r))
    return x


@rule("pad")
def _pad(e: Any, x: Value, value: Value, *, out: Any, padding_config: Any, **p: Any) -> Value:
    if any(low < 0 or high < 0 for low, high, _ in padding_config):
        raise e.unsupported("pad", "with a negative number of elements")
    starts = [e.integer(low) for low, _, _ in padding_config]
    steps = [inner + 1 for *_, inner in padding_config]
    return updated(e, e.splat(value, out.shape), x, starts, steps)


@rule("concatenate")
def _concatenate(e: Any, *xs: Value, out: Any, dimension: int, **p: Any) -> Value:
    found, start = Value("", tuple(out.shape), xs[0].dtype), 0
    for x in xs:
        starts = [e.integer(start if d == dimension else 0) for d in range(len(x.shape))]
        new, mask = replaced(e, found, x, starts, [1] * len(x.shape))
        found = new if mask is None or not start else e.select(mask, new, found)
        start += x.shape[dimension]
    return found


@rule("split")
def _split(e: Any, x: Value, *, out: Any, axis: int, sizes: Sequence[int], **p: Any) -> list[Value]:
    ends = np.cumsum(sizes)
    return [
        part(e, x, axis, e.integer(int(end) - n), n) for n, end in zip(sizes, ends, strict=True)
    ]


# -- reductions --

_IDENTITIES: dict[str, Callable[[Any], Any]] = {
    "add": lambda d: 0,
    "mul": lambda d: 1,
    "max": min_value,
    "min": max_value,
    "and": lambda d: True if is_bool(d) else -1,
    "or": lambda d: 0,
    "xor": lambda d: 0,
}


def _accumulated(dtype: Any) -> Any:
    """The dtype in which a reduction is computed."""
    if is_float(dtype):
        return FLOAT32 if dtype.itemsize < 4 else dtype
    return np.promote_types(dtype, "uint32" if is_unsigned(dtype) else INT32)


def _combined(op: str, how: str) -> Rule:
    """A reduction or scan by an elementwise op. how: "reduce" or "scan"."""

    def rule(
        e: Any,
        x: Value,
        *,
        out: Any,
        axes: Any = (),
        axis: int = 0,
        reverse: bool = False,
        **p: Any,
    ) -> Value:
        dtype, own, identity = x.dtype, op, _IDENTITIES[op](x.dtype)
        if is_bool(dtype):  # numbers 0 and 1
            own, identity = {"and": "min", "or": "max"}.get(op, op), int(identity)
        more = ""
        if how == "scan":
            axes, more = (axis,), f", reverse = {str(reverse).lower()}"
        x = e.filled(convert(e, x, _accumulated(dtype)), axes, identity)
        for d in sorted(axes, reverse=True):
            shape = x.shape if how == "scan" else (*x.shape[:d], *x.shape[d + 1 :])
            attributes = f"axis = {d} : i32{more}"
            (x,) = e.combined(how, [x], attributes, shape, lambda a, b: [ELEMENTWISE[own](e, a, b)])
        return convert(e, x, dtype)

    return rule


def _place(best: Op) -> Rule:
    """The first of the greatest or least elements; a NaN wins against all numbers."""

    def of(x: Any, axes: Any, index_dtype: Any) -> Any:
        t, (axis,) = type_of(x), axes
        kept = tuple([d for d in range(t.ndim) if d != axis])
        found = broadcast_in_dim(best(x, axes=axes), shape=t.shape, dims=kept)
        is_best = ew.bitwise_or(ew.eq(x, found), ew.ne(x, x))
        places = iota(dtype=index_dtype, shape=t.shape, dimension=axis)
        return reduce_min(ew.where(is_best, places, lit(t.shape[axis], places)), axes=axes)

    return lambda e, x, *, out, axes, **p: e.composed(
        partial(of, axes=axes, index_dtype=out.dtype), [array_type(x.shape, x.dtype)], x
    )


RULES |= {
    "reduce_sum": _combined("add", "reduce"),
    "reduce_prod": _combined("mul", "reduce"),
    **{f"reduce_{op}": _combined(op, "reduce") for op in ("max", "min", "and", "or", "xor")},
    "argmax": _place(reduce_max),
    "argmin": _place(reduce_min),
    "cumsum": _combined("add", "scan"),
    "cumprod": _combined("mul", "scan"),
    "cummax": _combined("max", "scan"),
    "cummin": _combined("min", "scan"),
}


# -- products --


@rule("dot_general")
def _dot(
    e: Any, x: Value, y: Value, *, out: Any, dimension_numbers: Any, precision: Any = None, **p: Any
) -> Value:
    (xc, yc), (batch, _) = dimension_numbers
    if batch:
        raise e.unsupported(
            "dot_general",
            "with batch dimensions. Make the batch an axis of the grid, with blocks of one element "
            "along it (`None`), or use `vmap` of the launch",
        )
    x, x_free, xc = _without_ones(e, x, xc)
    y, y_free, yc = _without_ones(e, y, yc)
    m, n, k = [
        math.prod([v.shape[d] for d in dims]) for v, dims in ((x, x_free), (y, y_free), (x, xc))
    ]
    if len(x_free) == len(y_free) == len(xc) == 1 and min(m, n, k) >= 16:
        e.note_product(x, y)
        x, y = transposed(e, x, (*x_free, *xc)), transposed(e, y, (*yc, *y_free))
        found = _matrix_product(e, x, y, out, precision)
    elif m * n * k > SMALL:
        raise e.unsupported(
            "dot_general",
            f"of [{m},{k}] and [{k},{n}]: tensor cores multiply matrices whose sizes are at least "
            f"16, and other products are for at most {SMALL} pairs of elements. Use larger blocks",
        )
    else:
        found = _small_product(e, x, y, out, (x_free, y_free, xc, yc))
    return e.reshaped(found, out.shape)


def _without_ones(
    e: Any, x: Value, contracted: Sequence[int]
) -> tuple[Value, Sequence[int], Sequence[int]]:
    """Without free dimensions of size 1; its free dimensions, and those that are contracted."""
    kept = [d for d, n in enumerate(x.shape) if n != 1 or d in contracted]
    x = e.reshaped(x, [x.shape[d] for d in kept])
    summed = [kept.index(d) for d in contracted]
    return x, free_dims(len(kept), tuple(summed), ()), summed


def _matrix_product(e: Any, x: Value, y: Value, out: Any, precision: Any) -> Value:
    if x.dtype != y.dtype and not (x.dtype.itemsize == y.dtype.itemsize == 1):
        wide = x.dtype if x.dtype.itemsize > y.dtype.itemsize else y.dtype
        x, y = convert(e, x, wide), convert(e, y, wide)
    if "float8_e4m3fn" in (x.dtype.name, y.dtype.name):  # some GPUs lack it; float16 is exact
        x, y = convert(e, x, FLOAT16), convert(e, y, FLOAT16)
    dtype = x.dtype
    if is_integer(dtype) and dtype.name != "int8":
        raise e.unsupported(
            "dot_general", f"of {dtype.name}: tensor cores multiply integers of dtype int8"
        )
    total = np.dtype("int32") if is_integer(dtype) else FLOAT32 if dtype.itemsize < 8 else dtype
    x, y = e.filled(x, (1,), 0), e.filled(y, (0,), 0)
    shape = (x.shape[0], y.shape[1])
    zero = e.constant(0, shape, total)
    how = e.precision_of(precision) if dtype == FLOAT32 else ""
    found = e.let(
        f"tt.dot {x.name}, {y.name}, {zero.name}{how} : {x.type} * {y.type} -> {zero.type}",
        shape,
        total,
    )
    return convert(e, found, out.dtype)


def _small_product(e: Any, x: Value, y: Value, out: Any, dims: Any) -> Value:
    """A sum of products, element by element."""
    x_free, y_free, xc, yc = dims
    wide, first = _accumulated(out.dtype), len(x_free) + len(y_free)
    full = [v.shape[d] for v, own in ((x, x_free), (y, y_free), (x, xc)) for d in own]
    summed = tuple(range(first, len(full)))

    def part(v: Any, free: Sequence[int], contracted: Sequence[int], at: int) -> Any:
        v = transpose(convert_element_type(v, dtype=wide), perm=(*free, *contracted))
        dims = (*range(at, at + len(free)), *summed)
        return broadcast_in_dim(v, shape=tuple(full), dims=dims)

    def product(x: Any, y: Any) -> Any:
        parts = part(x, x_free, xc, 0), part(y, y_free, yc, len(x_free))
        return convert_element_type(reduce_sum(ew.mul(*parts), axes=summed), dtype=out.dtype)

    return e.composed(product, [array_type(v.shape, v.dtype) for v in (x, y)], x, y)
