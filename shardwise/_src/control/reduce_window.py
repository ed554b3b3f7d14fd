"""`reduce_window` with a user function: the op, whose windows slide over several operands.

Its derivatives, and batches of initial values, fold the elements of the windows by a tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.control.generic_reduce import (
    alike,
    check_fold,
    combining,
    elementwise,
    folded,
    is_identity,
    known_fold,
    staged_fold,
    start_of,
    tangents_by_tree,
)
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import pooling
from shardwise._src.ops.basis import batch_first, broadcast_in_dim
from shardwise._src.ops.families import NUMERIC, ORDERED, add, lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.pooling import Window, check_window, patches, wider, windowed
from shardwise._src.ops.shape import along
from shardwise._src.transforms.batch import MappedAxis
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import max_value, min_value

# -- the op: operands, then as many initial scalars --


def _type(op: Op, *types: ArrayType, body: Program, window: Window) -> tuple[ArrayType, ...]:
    xs, weak = check_fold(op, types, body)
    check_window("reduce_window", xs[0], window)
    counts = window.counts(xs[0].shape)
    return tuple([array_type(counts, t.dtype, w) for t, w in zip(xs, weak, strict=True)])


def _dims(op: Op, *types: ArrayType, body: Program, window: Window) -> Dims:
    half = len(types) // 2
    names = along(types[0], windowed(window))
    return Dims((names,) * half + ((),) * half, (names,) * half, worked="kept")


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, body: Program, window: Window
) -> list[str]:
    half = len(outs)
    if 0 in (ins[0].size, outs[0].size):
        rows = zip(xs[half:], ins[half:], outs, strict=True)
        return [e.broadcast(x, t, out, ()) for x, t, out in rows]
    return e.reduce_window(combining(body), xs[:half], ins[:half], xs[half:], window)


def _by_patches(xs: list, inits: list, body: Program, window: Window) -> list:
    """inits: scalars, or vectors along the first dimension."""
    rank = type_of(xs[0]).ndim
    real = broadcast_in_dim(np.True_, shape=type_of(xs[0]).shape, dims=())
    inside = patches(real, np.False_, window)  # padding and holes are left out
    shape = type_of(inside).shape
    ds = [0 if type_of(init).ndim else None for init in inits]
    parts = []
    for x, init, d in zip(xs, inits, ds, strict=True):
        start = broadcast_in_dim(init, shape=shape, dims=() if d is None else (d,))
        parts.append(select_n(inside, start, patches(x, lit(0, x), window)))
    axes = tuple(range(rank, 2 * rank))
    return folded([*parts, inside], [*inits, np.True_], [*ds, None], body, axes, _of_real)[:-1]


def _of_real(body: Program, low: list, high: list) -> list:
    """The function on pairs of elements with marks of which are real."""
    (*xs, first), (*ys, second) = low, high
    both = ew.bitwise_and(first, second)
    found = [
        select_n(both, select_n(first, y, x), z)
        for x, y, z in zip(xs, ys, elementwise(body, xs, ys), strict=True)
    ]
    return [*found, ew.bitwise_or(first, second)]


def _batch(
    op: Op, mapped: MappedAxis, args: Any, ds: Any, *, body: Program, window: Window
) -> tuple:
    half = len(args) // 2
    xs = [batch_first(mapped.size, x, d) for x, d in zip(args[:half], ds[:half], strict=True)]
    if all(d is None for d in ds[half:]):
        return list(op(*xs, *args[half:], body=body, window=wider(window))), [0] * half
    return list(_by_patches(xs, args[half:], body, wider(window))), [0] * half


def _jvp(
    op: Op, primals: Any, tangents: Any, *, body: Program, window: Window
) -> tuple[list, list]:
    def tree(xs: list, inits: list) -> list:
        return _by_patches(xs, inits, body, window)

    return op(*primals, body=body, window=window), tangents_by_tree(op, tree, primals, tangents)


reduce_window_op = Op(
    "reduce_window",
    multiple=True,
    contains=Programs(("body",)),
    is_expensive=True,
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    batch=_batch,
)

# The fold by one op, its required identity, and its operand types.
_KNOWN = {
    add: (pooling.reduce_window_sum, lambda d: 0, NUMERIC),
    ew.max: (pooling.reduce_window_max, min_value, ORDERED),
    ew.min: (pooling.reduce_window_min, max_value, ORDERED),
}


def folded_windows(operands: Any, init_values: Any, computation: Any, window: Window) -> Any:
    """`lax.reduce_window`: a known fold, or a fold by the function itself."""
    xs, inits, tree = alike("reduce_window: operand and init_value", operands, init_values)
    scalars = [array_type((), type_of(x).dtype) for x in xs]
    starts = [start_of(v, t, "reduce_window") for v, t in zip(inits, scalars, strict=True)]
    body = staged_fold(computation, tree, scalars, "reduce_window")
    known = known_fold(body)
    if known in _KNOWN:
        op, identity, (_, takes) = _KNOWN[known]
        dtype = scalars[0].dtype
        if takes(dtype) and is_identity(inits[0], identity, dtype):
            return tree.unflatten([op(xs[0], window=window)])
    return tree.unflatten(reduce_window_op(*xs, *starts, body=shared(body), window=window))
