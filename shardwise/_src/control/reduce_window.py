"""`reduce_window` with a user function: the op, whose windows slide over several operands.

Its derivatives, and batches of initial values, fold the elements of the windows by a tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.control.generic_reduce import (
    elementwise,
    folded,
    known_fold,
    staged_fold,
    start_of,
)
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import pooling
from shardwise._src.ops.basis import batch_first, broadcast_in_dim
from shardwise._src.ops.families import NUMERIC, ORDERED, add, lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.pooling import Window, check_window, patches, wider, windowed
from shardwise._src.ops.shape import along
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import MappedAxis
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.types.array_type import ArrayType, array_type, in_row
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import max_value, min_value

# -- the op: operands, then as many initial scalars --


def _type(op: Op, *types: ArrayType, body: Program, window: Window) -> tuple[ArrayType, ...]:
    half = len(types) // 2
    xs, inits = types[:half], types[half:]
    if any(t.shape != xs[0].shape for t in xs) or any(t.shape for t in inits):
        raise TypeError(
            "[reduce_window] takes operands of one shape and a scalar initial value for each; got "
            f"{in_row(types)}."
        )
    check_window("reduce_window", xs[0], window)
    scalars = [array_type((), t.dtype) for t in xs]
    if [t.strong() for t in body.out_types] != scalars:
        raise TypeError(
            f"[reduce_window] the function must return {in_row(scalars)}; got "
            f"{in_row(body.out_types)}."
        )
    counts = window.counts(xs[0].shape)
    pairs = zip(xs, inits, strict=True)
    return tuple([array_type(counts, t.dtype, t.weak_type and i.weak_type) for t, i in pairs])


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

    def combine(e: Any, types: Any, *names: str) -> list[str]:
        return e.inline(body, *names)

    return e.reduce_window(combine, xs[:half], ins[:half], xs[half:], window)


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
    half = len(primals) // 2
    outs = op(*primals, body=body, window=window)

    def tree(*values: Any) -> list:
        return _by_patches(list(values[:half]), list(values[half:]), body, window)

    _, moved = push_forward(tree, primals, tangents, current().interpreter, "jvp", op.name)
    return outs, moved


reduce_window_op = Op(
    "reduce_window",
    multiple=True,
    programs=("body",),
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
    xs, tree = flatten(operands)
    inits, init_tree = flatten(init_values)
    if tree != init_tree:
        raise TypeError(
            "reduce_window: operand and init_value must have the same pytree structure; got "
            f"{tree} and {init_tree}."
        )
    scalars = [array_type((), type_of(x).dtype) for x in xs]
    starts = [start_of(v, t, "reduce_window") for v, t in zip(inits, scalars, strict=True)]
    body = staged_fold(computation, tree, scalars, "reduce_window")
    known = known_fold(body)
    if known in _KNOWN:
        op, identity, (_, takes) = _KNOWN[known]
        dtype = scalars[0].dtype
        if not hasattr(inits[0], "aval") and takes(dtype):
            neutral = np.asarray(identity(dtype)).astype(dtype)
            if np.asarray(inits[0]).astype(dtype) == neutral:
                return tree.unflatten([op(xs[0], window=window)])
    return tree.unflatten(reduce_window_op(*xs, *starts, body=shared(body), window=window))
