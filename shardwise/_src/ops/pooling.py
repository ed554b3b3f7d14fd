"""Sliding windows over all dimensions of an array: their elements, and reductions of them.

    reduce_window_sum(x, window=Window((2,), (2,), ((0, 0),), (1,), (1,)))    # pairs

There is a window at each multiple of the strides where it fits. Padding surrounds the array; holes
are between its elements (base dilation) and the window's own (window dilation). Both are filled
with an identity, so that they add nothing. `reduce_window_max` and `_min` select the first of
equals, a NaN before all others; tangents are gathered from, cotangents scattered to its position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading_with, broadcast_in_dim, reshape, zeros
from shardwise._src.ops.families import BOOL, NUMERIC, ORDERED, Domain, add, check_domain, lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.reduce import body_of
from shardwise._src.ops.rules import linear_in_first, linear_jvp
from shardwise._src.ops.shape import along, concatenate, dilated, pad, places, slice_, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import max_value, min_value


class Window(NamedTuple):
    """Sizes, strides and dilations of a window, one for each dimension; 1 by default."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    def config(self) -> tuple[tuple[int, int, int], ...]:
        """Padding and holes in the format of `pad`."""
        rows = zip(self.padding, self.base_dilation, strict=True)
        return tuple([(low, high, hole - 1) for (low, high), hole in rows])

    def is_holed(self) -> bool:
        """Whether there are holes."""
        return not {*self.base_dilation, *self.window_dilation} <= {1}

    def crop(self, shape: tuple[int, ...]) -> tuple[list[tuple[int, int]], Window]:
        """The elements that negative padding leaves, and the window with the padding for them."""
        bounds, padding = [], []
        for n, row, hole in zip(shape, self.padding, self.base_dilation, strict=True):
            first, last = (max(-(p // hole), 0) for p in row)
            bounds.append((first, n - last))
            padding.append((row[0] + first * hole, row[1] + last * hole))
        return bounds, self._replace(padding=tuple(padding))

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The number of windows along each dimension."""
        rows: Any = zip(shape, *self, strict=True)
        return tuple(
            [
                places(dilated(n, hole) + low + high, dilated(size, between), stride)
                for n, size, stride, (low, high), hole, between in rows
            ]
        )


def patches(x: Any, fill: Any, window: Window) -> Any:
    """The elements of all windows: T[places…, window…]. fill: a scalar for padding and holes."""
    shape = type_of(x).shape
    counts = window.counts(shape)
    if any(row != (0, 0, 0) for row in window.config()):
        x = pad(x, fill, padding_config=window.config())
    for d, count in enumerate(counts):
        size, stride = window.sizes[d], window.strides[d]
        reach = (count - 1) * stride + 1 if count else 0
        starts = [i * window.window_dilation[d] if count else 0 for i in range(size)]
        parts = [slice_in_dim(x, s, s + reach, d, stride) for s in starts]
        parts = [reshape(p, shape=(*type_of(p).shape, 1)) for p in parts]
        x = concatenate(*parts, dimension=len(shape) + d) if size > 1 else parts[0]
    return x


# -- reductions of all windows --


def check_window(name: str, x: ArrayType, window: Window) -> None:
    if any(len(field) != x.ndim for field in window):
        raise TypeError(
            f"[{name}] a window has a size, stride, padding and dilations for each of the {x.ndim} "
            f"dimensions of {x.str_short(True)}; got {window}."
        )
    fields: Any = zip(window._fields, window, strict=True)
    wrong = [key for key, field in fields if key != "padding" and any(n < 1 for n in field)]
    if wrong:
        raise TypeError(f"[{name}] {wrong[0]} of a window must be positive; got {window}.")
    rows = zip(x.shape, window.padding, window.base_dilation, strict=True)
    if any(dilated(n, hole) + low + high < 0 for n, (low, high), hole in rows):
        raise ValueError(
            f"[{name}] padding {window.padding} removes more elements than there are in "
            f"{x.str_short(True)}."
        )


def windowed(window: Window) -> list[int]:
    """The dimensions along which a window spans more than one element."""
    plain = (1, 1, (0, 0), 1, 1)
    return [d for d, row in enumerate(zip(*window, strict=True)) if row != plain]


def wider(window: Window) -> Window:
    """A window with one more leading dimension, along which it is a single element."""
    fields: Any = zip(window, (1, 1, (0, 0), 1, 1), strict=True)
    return Window(*[(one, *field) for field, one in fields])


_batch = batch_leading_with("window", wider)


def _fold(name: str, domain: Domain, combining: Op, identity: Callable, **rules: Any) -> Op:
    def type_rule(op: Op, x: ArrayType, *, window: Window) -> ArrayType:
        check_domain(name, domain, (x,))
        check_window(name, x, window)
        return array_type(window.counts(x.shape), x.dtype, x.weak_type)

    def dims(op: Op, x: ArrayType, *, window: Window) -> Dims:
        names = along(x, windowed(window))
        linear = ((0,),) if "transpose" in rules else ()
        return Dims((names,), (names,), linear=linear, worked="kept")

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, window: Window) -> str:
        (t,) = ins
        if 0 in (t.size, outs[0].size):
            return e.constant(identity(t.dtype), outs[0])
        return e.reduce_window(body_of(combining), [x], ins, [identity(t.dtype)], window)[0]

    return Op(
        name, is_expensive=True, type_rule=type_rule, dims=dims, lower=lower, batch=_batch, **rules
    )


def _sum_transpose(op: Op, ct: Any, x: Any, *, window: Window) -> list[Any]:
    """Strides become dilations, dilations become strides."""
    padding = []
    rows: Any = zip(x.aval.shape, type_of(ct).shape, *window, strict=True)
    for n, m, size, stride, (low, _), hole, between in rows:
        reach = dilated(size, between) - 1
        total = dilated(n, hole) + reach if n else 0
        padding.append((reach - low, total - reach + low - dilated(m, stride)))
    back = Window(
        window.sizes, window.base_dilation, tuple(padding), window.strides, window.window_dilation
    )
    return [op(ct, window=back) if type_of(ct).size and x.aval.size else zeros(x.aval)]


reduce_window_sum = _fold(
    "reduce_window_sum", NUMERIC, add, lambda d: 0, jvp=linear_jvp, transpose=_sum_transpose
)


def _chosen_jvp(largest: bool) -> Callable:
    def rule(op: Op, primals: Any, tangents: Any, *, window: Window) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        moved = select_and_gather_add(t, x, largest=largest, window=window)
        return op(x, window=window), moved

    return rule


reduce_window_max = _fold("reduce_window_max", ORDERED, ew.max, min_value, jvp=_chosen_jvp(True))
reduce_window_min = _fold("reduce_window_min", ORDERED, ew.min, max_value, jvp=_chosen_jvp(False))

# -- gather from, and scatter to, the element that a window selects --


def _pair_type(op: Op, t: ArrayType, x: ArrayType, *, largest: bool, window: Window) -> ArrayType:
    check_domain(op.name, ORDERED, (x,))
    check_window(op.name, x, window)
    counts = window.counts(x.shape)
    gathers = op is not select_and_scatter_add
    if t.dtype != x.dtype or t.shape != (x.shape if gathers else counts):
        raise TypeError(
            f"[{op.name}] operands must have the same dtype, and the first must have shape "
            f"{x.shape if gathers else counts}; got {join_types((t, x))}."
        )
    return array_type(counts if gathers else x.shape, t.dtype)


def _pair_dims(op: Op, t: ArrayType, x: ArrayType, *, largest: bool, window: Window) -> Dims:
    names = along(x, windowed(window))
    return Dims((names, names), (names,), linear=((0,),), worked="kept")


def _pair_transpose(op: Op, ct: Any, t: Any, x: Any, **p: Any) -> list[Any]:
    if is_linear(x):
        raise ValueError(f"[{op.name}] is linear in its first operand only.")
    back = select_and_scatter_add if op is select_and_gather_add else select_and_gather_add
    return [back(ct, x, **p), None]


def _gather_lower(
    op: Op, e: Any, ins: Any, outs: Any, t: str, x: str, *, largest: bool, window: Window
) -> str:
    """By a reduction of values with their positions and tangents."""
    if 0 in (ins[1].size, outs[0].size):
        return e.constant(0, outs[0])
    dtype = np.dtype(np.int32 if ins[1].size < 2**31 else np.int64)
    flat, beside = array_type((ins[1].size,), dtype), array_type(ins[1].shape, dtype)
    at = e.reshape(e.iota(flat, 0), flat, beside)
    direction = "GT" if largest else "LT"

    def body(e: Any, types: Any, *names: str) -> list[str]:
        (x, i, t), (y, j, u) = names[:3], names[3:]
        value, place = types[:2]

        def both(kind: str, a: str, b: str) -> str:
            return e.apply(kind, array_type((), BOOL), a, b)

        odd, also = e.compare("NE", x, x, value), e.compare("NE", y, y, value)
        wins = e.compare(direction, x, y, value)
        first = both("or", wins, both("and", odd, e.compare("EQ", y, y, value)))
        equal = both("or", e.compare("EQ", x, y, value), both("and", odd, also))
        first = both("or", first, both("and", equal, e.compare("LT", i, j, place)))
        pairs = zip((x, i, t), (y, j, u), types, strict=True)
        return [e.select(first, a, b, kind) for a, b, kind in pairs]

    worst = (min_value if largest else max_value)(ins[1].dtype)
    inits = [worst, np.iinfo(dtype).max, 0]
    return e.reduce_window(body, [x, at, t], [ins[1], beside, ins[0]], inits, window)[2]


def _scatter_lower(
    op: Op, e: Any, ins: Any, outs: Any, t: str, x: str, *, largest: bool, window: Window
) -> str:
    if 0 in (ins[0].size, outs[0].size):
        return e.constant(0, outs[0])
    plain = {*window.base_dilation, *window.window_dilation} == {1}
    if not plain or min(map(min, window.padding), default=0) < 0:
        return e.via(scattered, ins, t, x, largest=largest, window=window)[0]
    return e.select_and_scatter(t, x, ins, outs[0], largest, window)


def scattered(t: Any, x: Any, *, largest: bool, window: Window) -> Any:
    """`select_and_scatter_add` as one slice and pad per window element."""
    better = ew.gt if largest else ew.lt
    shape = type_of(x).shape
    config = window.config()
    inside = broadcast_in_dim(np.True_, shape=shape, dims=())
    x, inside = (
        pad(x, lit(0, x), padding_config=config),
        pad(inside, np.False_, padding_config=config),
    )
    wide, counts = type_of(x).shape, type_of(t).shape
    best: Any = None
    found: Any = None
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for at in itertools.product(*map(range, window.sizes)):
        starts = tuple([i * hole for i, hole in zip(at, window.window_dilation, strict=True)])
        stops = tuple(
            [a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, window.strides, strict=True)]
        )
        rows.append((starts, stops))
        part, real = (
            slice_(z, start_indices=starts, limit_indices=stops, strides=window.strides)
            for z in (x, inside)
        )
        number = broadcast_in_dim(np.int32(len(rows)), shape=counts, dims=())
        if best is None:
            best, found = part, select_n(real, lit(0, number), number)
            continue
        news = ew.bitwise_and(ew.ne(part, part), ew.eq(best, best))
        empty = ew.eq(found, lit(0, found))
        wins = ew.bitwise_or(empty, ew.bitwise_or(news, better(part, best)))
        wins = ew.bitwise_and(real, wins)
        best, found = select_n(wins, best, part), select_n(wins, found, number)
    total: Any = None
    for k, (starts, stops) in enumerate(rows, 1):
        share = select_n(ew.eq(found, lit(k, found)), zeros(type_of(t)), t)
        back = tuple(
            [
                (a, n - b, s - 1)
                for a, b, n, s in zip(starts, stops, wide, window.strides, strict=True)
            ]
        )
        share = pad(share, lit(0, share), padding_config=back)
        total = share if total is None else add(total, share)
    crop = tuple([(-low, -high, 0) for low, high, _ in config])
    total = pad(total, lit(0, total), padding_config=crop)
    if any(hole > 1 for hole in window.base_dilation):
        total = slice_(
            total,
            start_indices=(0,) * len(shape),
            limit_indices=type_of(total).shape,
            strides=window.base_dilation,
        )
    return total


def _paired(name: str, lower: Callable, needs_fusion: bool = False) -> Op:
    return Op(
        name,
        is_expensive=True,
        needs_fusion=needs_fusion,
        dims=_pair_dims,
        lower=lower,
        jvp=linear_in_first,
        transpose=_pair_transpose,
        batch=_batch,
        type_rule=_pair_type,
    )


select_and_gather_add = _paired("select_and_gather_add", _gather_lower)
select_and_scatter_add = _paired("select_and_scatter_add", _scatter_lower, needs_fusion=True)
