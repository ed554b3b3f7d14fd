"""Reading and writing at positions that are known only at run time.

`dynamic_slice` reads one window and `dynamic_update_slice` replaces one. `gather` reads a window of
`slice_sizes` from the operand for every index vector; a scatter combines a window of its updates
with the operand for every vector: `scatter` replaces, `scatter_add` adds, and so on. If several
windows overlap, all of them contribute, except that `scatter` uses one of them.

Windows that are partly out of bounds follow `mode`: "clip" shifts them inside; "fill" returns
`fill_value` in their place, and drops their writes; "promise_in_bounds" asserts that there are
none. Reading and writing are each other's transposes, and so the ops are in one file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, move_axis, zeros
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import add, div, mul, neg
from shardwise._src.ops.families import NUMERIC, check_domain, lit
from shardwise._src.ops.indexing.gather_rules import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    as_gather,
    as_scatter,
    dynamic_slice_dims,
    dynamic_slice_type,
    fill_value_for,
    gather_dims,
    gather_type,
    scatter_dims,
    scatter_lower,
    scatter_type,
    shifted,
    update_dims,
    update_type,
    window_sizes,
)
from shardwise._src.ops.indexing.index_windows import (
    gather_windows,
    scatter_windows,
    slice_windows,
    stacked,
    update_windows,
    windows_inside,
)
from shardwise._src.ops.logical import eq, where
from shardwise._src.ops.rules import linear_in_first
from shardwise._src.ops.sharded.sharding_ops import cotangent_type
from shardwise._src.types.array_type import ArrayType, array_type

# -- dynamic_slice: the window of slice_sizes at the start indices, shifted into the operand --


def _dynamic_slice_transpose(
    op: Op, ct: Any, x: Any, *starts: Any, slice_sizes: tuple
) -> list[Any]:
    empty = zeros(cotangent_type(x.aval).update(dtype=type_of(ct).dtype))
    return [dynamic_update_slice(empty, ct, *starts), *[None] * len(starts)]


def _dynamic_slice_batch(
    op: Op, mapped: Any, args: Any, ds: Any, *, slice_sizes: tuple
) -> tuple[Any, int]:
    x, *starts = args
    if all(d is None for d in ds[1:]):
        first = move_axis(x, ds[0], 0)
        zero = lit(0, starts[0]) if starts else np.int32(0)
        return dynamic_slice(first, zero, *starts, slice_sizes=(mapped.size, *slice_sizes)), 0
    batched = ds[0] is not None
    n = len(slice_sizes)
    dims = GatherDimensionNumbers(
        offset_dims=tuple(range(1, n + 1)),
        collapsed_slice_dims=(),
        start_index_map=tuple(i + batched for i in range(n)),
        operand_batching_dims=(0,) * batched,
        start_indices_batching_dims=(0,) * batched,
    )
    operand = move_axis(x, ds[0], 0) if batched else x
    sizes = (1, *slice_sizes) if batched else slice_sizes
    vectors = stacked(mapped.size, starts, ds[1:])
    return gather(operand, vectors, dimension_numbers=dims, slice_sizes=sizes, mode="clip"), 0


dynamic_slice = Op(
    "dynamic_slice",
    elements=Elements.MOVED,
    windows=slice_windows,
    type_rule=dynamic_slice_type,
    dims=dynamic_slice_dims,
    lower=lambda op, e, ins, outs, x, *starts, slice_sizes: e.dynamic_slice(
        x, starts, ins, slice_sizes
    ),
    jvp=linear_in_first,
    transpose=_dynamic_slice_transpose,
    batch=_dynamic_slice_batch,
)


# -- dynamic_update_slice: the operand with the window at the start indices replaced --


def _update_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    x, update, *starts = primals
    out = dynamic_update_slice(*primals)
    t, tu = tangents[:2]
    if t is None and tu is None:
        return out, None
    t = zeros(type_of(x)) if t is None else t
    tu = zeros(type_of(update)) if tu is None else tu
    return out, dynamic_update_slice(t, tu, *starts)


def _update_transpose(op: Op, ct: Any, x: Any, update: Any, *starts: Any) -> list[Any]:
    window = type_of(update)
    ct_x = ct_update = None
    if is_linear(x):
        empty = zeros(cotangent_type(window).update(dtype=type_of(ct).dtype))
        ct_x = dynamic_update_slice(ct, empty, *starts)
    if is_linear(update):
        ct_update = dynamic_slice(ct, *starts, slice_sizes=window.shape)
    return [ct_x, ct_update, *[None] * len(starts)]


def _update_batch(op: Op, mapped: Any, args: Any, ds: Any) -> tuple[Any, int]:
    x, update, *starts = args
    x, update = batch_first(mapped.size, x, ds[0]), batch_first(mapped.size, update, ds[1])
    if all(d is None for d in ds[2:]):
        zero = lit(0, starts[0]) if starts else np.int32(0)
        return dynamic_update_slice(x, update, zero, *starts), 0
    window = tuple(range(1, len(starts) + 1))
    numbers = ScatterDimensionNumbers(window, (), window, (0,), (0,))
    how = {"dimension_numbers": numbers, "unique_indices": True, "mode": "clip"}
    return scatter(x, stacked(mapped.size, starts, ds[2:]), update, **how), 0


dynamic_update_slice = Op(
    "dynamic_update_slice",
    elements=Elements.MOVED,
    windows=update_windows,
    type_rule=update_type,
    dims=update_dims,
    lower=lambda op, e, ins, outs, x, update, *starts: e.dynamic_update_slice(
        x, update, starts, ins
    ),
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
)


# -- gather --


def _gather_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, indices: str, *, mode: str = "fill", **p: Any
) -> str:
    if 0 in outs[0].shape:  # the operand may be smaller than the unread windows
        return e.constant(0, outs[0])
    if mode == "fill":
        return e.via(_filled, ins, x, indices, **p)[0]
    how = {"indices_are_sorted": p.get("indices_are_sorted", False), "clip": mode == "clip"}

    def write(ins: Any, outs: Any, *xs: str) -> str:
        return e.gather(*xs, ins, outs[0], p["dimension_numbers"], p["slice_sizes"], **how)

    return e.widened(op, ins, outs, (x, indices), write)[0]


def _filled(x: Any, indices: Any, *, fill_value: Any = None, **p: Any) -> Any:
    """Gathers within bounds, then overwrites the windows that are partly out of bounds."""
    dims = p["dimension_numbers"]
    out = gather(x, indices, mode="promise_in_bounds", **p)
    t = type_of(out)
    inside = windows_inside(x, indices, dims.start_index_map, p["slice_sizes"])
    if inside is None:
        return out
    kept = tuple(i for i in range(t.ndim) if i not in dims.offset_dims)
    value = fill_value_for(t.dtype) if fill_value is None else fill_value
    return where(broadcast_in_dim(inside, shape=t.shape, dims=kept), out, lit(value, out))


def _gather_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices = primals
    out = gather(x, indices, **p)
    if tangents[0] is None:
        return out, None
    if p.get("mode", "fill") == "fill":
        p = {**p, "fill_value": 0}
    return out, gather(tangents[0], indices, **p)


def _gather_transpose(op: Op, ct: Any, x: Any, indices: Any, **p: Any) -> list[Any]:
    empty = zeros(cotangent_type(x.aval).update(dtype=type_of(ct).dtype))
    how = {k: v for k, v in p.items() if k not in ("slice_sizes", "fill_value")}
    how["dimension_numbers"] = as_scatter(p["dimension_numbers"])
    return [scatter_add(empty, indices, ct, **how), None]


def _gather_batch(
    op: Op, mapped: Any, args: Any, ds: Any, *, dimension_numbers: Any, slice_sizes: tuple, **p: Any
) -> tuple[Any, int]:
    (x, indices), (dx, di) = args, ds
    offset, collapsed, places, along, paired = dimension_numbers
    offset = shifted(offset)
    if dx is not None:
        x = move_axis(x, dx, 0)
        collapsed, places, along = shifted(collapsed), shifted(places), shifted(along)
    if di is not None:
        indices, paired = move_axis(indices, di, 0), shifted(paired)
    if dx is None:  # one more dimension of index vectors
        p = {**p, "indices_are_sorted": False, "unique_indices": False}
    elif di is None:  # one more dimension in each window, in full
        offset, slice_sizes = (0, *offset), (mapped.size, *slice_sizes)
    else:
        along, paired, slice_sizes = (0, *along), (0, *paired), (1, *slice_sizes)
    new = GatherDimensionNumbers(offset, collapsed, places, along, paired)
    return gather(x, indices, dimension_numbers=new, slice_sizes=slice_sizes, **p), 0


gather = Op(
    "gather",
    elements=Elements.MOVED,
    own_values=True,
    windows=gather_windows,
    type_rule=gather_type,
    dims=gather_dims,
    lower=_gather_lower,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
)


# -- rules shared by all scatters --


def _scatter_batch(
    op: Op, mapped: Any, args: Any, ds: Any, *, dimension_numbers: Any, **p: Any
) -> tuple[Any, int]:
    size, (window, inserted, places, along, paired) = mapped.size, dimension_numbers
    x, updates = batch_first(size, args[0], ds[0]), batch_first(size, args[2], ds[2])
    indices, window, along = args[1], shifted(window), shifted(along)
    if ds[1] is None:  # the windows span the batch dimension
        window = (0, *window)
    else:
        indices = batch_first(size, indices, ds[1])
        along, paired = (0, *along), (0, *shifted(paired))
    new = ScatterDimensionNumbers(window, shifted(inserted), shifted(places), along, paired)
    return op(x, indices, updates, dimension_numbers=new, **p), 0


def _read_back(x: Any, indices: Any, updates: Any, p: dict) -> Any:
    """The elements of `x` in the windows of a scatter, in the shape of the updates."""
    dims = p["dimension_numbers"]
    return gather(
        x,
        indices,
        dimension_numbers=as_gather(dims),
        slice_sizes=window_sizes(type_of(x), type_of(updates), dims),
        indices_are_sorted=p.get("indices_are_sorted", False),
        unique_indices=p.get("unique_indices", False),
        mode=p.get("mode", "fill"),
        fill_value=0,
    )


_not_linear = functools.partial(scatter_dims, linear=())


def _scatter_op(
    name: str,
    body: str,
    jvp: Callable,
    transpose: Callable | None,
    type_rule: Callable = scatter_type,
    dims: Callable = scatter_dims,
    **facts: Any,
) -> Op:
    return Op(
        name,
        windows=scatter_windows,
        is_expensive=True,
        needs_fusion=True,
        type_rule=type_rule,
        dims=dims,
        lower=scatter_lower(body),
        jvp=jvp,
        transpose=transpose,
        batch=_scatter_batch,
        **facts,
    )


# -- scatter_add, scatter_sub: linear in operand and updates --


def _sum_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, _ = primals
    t, _, tu = tangents
    out = op(*primals, **p)
    if tu is None:
        return out, t
    t = zeros(type_of(x).strong()) if t is None else t
    return out, op(t, indices, tu, **p)


def _sum_transpose(sign: Callable) -> Callable:
    """sign: applied to the cotangent of the updates."""

    def rule(op: Op, ct: Any, x: Any, indices: Any, updates: Any, **p: Any) -> list[Any]:
        ct_updates = None
        if is_linear(updates):
            ct_updates = sign(_read_back(ct, indices, updates, p))
        return [ct if is_linear(x) else None, None, ct_updates]

    return rule


def _difference_type(op: Op, x: ArrayType, *others: ArrayType, **p: Any) -> ArrayType:
    check_domain(op.name, NUMERIC, (x,))
    return scatter_type(op, x, *others, **p)


scatter_add = _scatter_op("scatter_add", "add", _sum_jvp, _sum_transpose(lambda ct: ct))
scatter_sub = _scatter_op(
    "scatter_sub", "subtract", _sum_jvp, _sum_transpose(neg), type_rule=_difference_type
)


# -- scatter: replaces --


def _scatter_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, updates = primals
    t, _, tu = tangents
    if t is None and tu is None:
        return scatter(*primals, **p), None
    if p.get("unique_indices", False) or tu is None:
        t = zeros(type_of(x).strong()) if t is None else t
        tu = zeros(type_of(updates).strong()) if tu is None else tu
        return scatter(*primals, **p), scatter(t, indices, tu, **p)
    # If several updates hit one element, the device chooses the winner. The winner is computed
    # first and the other updates are masked, so that value and tangent agree.
    stays = _winners(x, indices, updates, p)
    out = _replace(x, indices, updates, stays, p)
    t = zeros(type_of(x).strong()) if t is None else t
    return out, _replace(t, indices, tu, stays, p)


def _winners(x: Any, indices: Any, updates: Any, p: dict) -> Any:
    """For each element of the updates, whether it wins."""
    t, dims = type_of(updates), p["dimension_numbers"]
    batch = tuple(i for i in range(t.ndim) if i not in dims.update_window_dims)
    shape = tuple(t.shape[i] for i in batch)
    numbers = np.arange(1, math.prod(shape) + 1, dtype=np.int32).reshape(shape)
    ids = broadcast_in_dim(numbers, shape=t.shape, dims=batch)
    board = zeros(array_type(type_of(x).shape, np.dtype(np.int32)))
    board = scatter(board, indices, ids, **p)
    return eq(_read_back(board, indices, ids, p), ids)


def _replace(x: Any, indices: Any, updates: Any, stays: Any, p: dict) -> Any:
    cleared = scatter(x, indices, zeros(type_of(updates)), **p)
    return scatter_add(cleared, indices, where(stays, updates, lit(0, updates)), **p)


def _scatter_transpose(op: Op, ct: Any, x: Any, indices: Any, updates: Any, **p: Any) -> list[Any]:
    """Linear scatters come from the jvp rule: with unique indices, or with zero updates."""
    ct_x = ct_updates = None
    t = type_of(updates)
    if is_linear(x):
        empty = zeros(cotangent_type(t).update(dtype=type_of(ct).dtype))
        ct_x = scatter(ct, indices, empty, **p)
    if is_linear(updates):
        ct_updates = _read_back(ct, indices, updates, p)
    return [ct_x, None, ct_updates]


scatter = _scatter_op("scatter", "", _scatter_jvp, _scatter_transpose, elements=Elements.MOVED)


# -- scatter_mul: linear in the operand; in the updates unless two overlap --


def _mul_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, updates = primals
    t, _, tu = tangents
    out = scatter_mul(*primals, **p)
    total = None if t is None else scatter_mul(t, indices, updates, **p)
    if tu is not None:
        _require_unique(p)
        old = _read_back(x, indices, updates, p)
        empty = zeros(type_of(x).strong())
        part = scatter_add(empty, indices, mul(tu, old), **p)
        total = part if total is None else add(total, part)
    return out, total


def _require_unique(p: dict) -> None:
    if not p.get("unique_indices", False):
        raise NotImplementedError(
            "[scatter_mul] can be differentiated with respect to its updates only if no two of "
            "them update the same element. Pass `unique_indices=True` if that is the case."
        )


def _mul_transpose(op: Op, ct: Any, x: Any, indices: Any, updates: Any, **p: Any) -> list[Any]:
    if is_linear(updates):
        _require_unique(p)
        return [None, None, _read_back(mul(ct, x), indices, updates, p)]
    return [scatter_mul(ct, indices, updates, **p), None, None]


scatter_mul = _scatter_op("scatter_mul", "multiply", _mul_jvp, _mul_transpose, dims=_not_linear)


# -- scatter_min, scatter_max: ties share the tangent --


def _extremal_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, updates = primals
    t, _, tu = tangents
    out = op(*primals, **p)
    if t is None and tu is None:
        return out, None
    best = _read_back(out, indices, updates, p)
    from_x = convert_element_type(eq(x, out), dtype=type_of(x).dtype)
    from_updates = convert_element_type(eq(updates, best), dtype=type_of(x).dtype)
    ties = scatter_add(from_x, indices, from_updates, **p)
    total = zeros(type_of(x).strong()) if t is None else mul(t, from_x)
    if tu is not None:
        total = scatter_add(total, indices, mul(tu, from_updates), **p)
    return out, div(total, ties)


scatter_min = _scatter_op("scatter_min", "minimum", _extremal_jvp, None, dims=_not_linear)
scatter_max = _scatter_op("scatter_max", "maximum", _extremal_jvp, None, dims=_not_linear)

SCATTERS = {
    "set": scatter,
    "add": scatter_add,
    "sub": scatter_sub,
    "mul": scatter_mul,
    "min": scatter_min,
    "max": scatter_max,
}
