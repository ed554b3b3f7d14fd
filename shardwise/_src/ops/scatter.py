"""Writing at places that are known when the program runs: the scatters.

Each takes an operand, index vectors and updates, a window for every vector, and combines the
windows with what is there: `scatter` replaces, `scatter_add` adds, and so on. Windows that are not
wholly inside the operand are dropped in mode "fill", moved inside in mode "clip". Where several
windows meet, all of them count, except that `scatter` keeps one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, zeros
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import add, div, mul, neg
from shardwise._src.ops.families import lit, shown
from shardwise._src.ops.index import (
    GatherDimensionNumbers,
    attribute,
    dynamic_update_slice,
    flag,
    gather,
    placed,
    shifted,
    stacked,
    window_factors,
)
from shardwise._src.ops.logical import clamp, eq, where
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_integer, max_value


class ScatterDimensionNumbers(NamedTuple):
    """How the dimensions of a scatter's operands correspond; the mirror of a gather's.

    update_window_dims:           dimensions of the updates that are those of the windows.
    inserted_window_dims:         operand dimensions, of window size 1, that the updates lack.
    scatter_dims_to_operand_dims: the operand dimension of each component of an index vector.
    operand_batching_dims:        dimensions of the operand that go, one by one, with
    scatter_indices_batching_dims: these dimensions of the indices.
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def as_gather(dims: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    """The gather that reads the windows that a scatter writes."""
    return GatherDimensionNumbers(*dims)


def as_scatter(dims: GatherDimensionNumbers) -> ScatterDimensionNumbers:
    return ScatterDimensionNumbers(*dims)


def window_sizes(x: ArrayType, updates: ArrayType, dims: ScatterDimensionNumbers) -> tuple:
    """The windows' size in each dimension of the operand."""
    gone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    sizes = iter([updates.shape[d] for d in dims.update_window_dims])
    return tuple(1 if i in gone else next(sizes) for i in range(x.ndim))


# -- rules that all scatters share --


def _type_rule(name: str) -> Callable:
    def rule(x: ArrayType, indices: ArrayType, updates: ArrayType, *, dimension_numbers: Any,
             **_: Any) -> ArrayType:
        dims = dimension_numbers
        what = _misfit(x, indices, updates, dims)
        if what:
            raise TypeError(f"[{name}] {what}; got {shown((x, indices, updates))} and {dims}.")
        return x.update(weak_type=x.weak_type and updates.weak_type, spec=None, mesh=None)

    return rule


def _misfit(x: ArrayType, indices: ArrayType, updates: ArrayType, dims: Any) -> str:
    """What is wrong with a scatter's operands; empty where they fit."""
    gone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    count = len(dims.inserted_window_dims) + len(dims.operand_batching_dims)
    if not is_integer(indices.dtype) or not indices.ndim:
        return "indices must be integer vectors"
    if x.dtype != updates.dtype:
        return "updates must have the operand's dtype"
    if len(gone) != count or not all(0 <= d < x.ndim for d in gone):
        return "inserted_window_dims and operand_batching_dims must be distinct operand dimensions"
    if len(dims.update_window_dims) != x.ndim - count:
        return "update_window_dims must name the operand's other dimensions"
    if list(dims.update_window_dims) != sorted(set(dims.update_window_dims)):
        return "update_window_dims must increase"
    if len(dims.scatter_dims_to_operand_dims) != indices.shape[-1]:
        return "scatter_dims_to_operand_dims must go with the components of an index vector"
    if updates.ndim != len(dims.update_window_dims) + indices.ndim - 1:
        return "updates must have the dimensions of the windows and those of the index vectors"
    batch = [n for i, n in enumerate(updates.shape) if i not in dims.update_window_dims]
    if tuple(batch) != indices.shape[:-1]:
        return "updates must hold a window for each index vector"
    sizes = window_sizes(x, updates, dims)
    if any(n > size for i, (n, size) in enumerate(zip(sizes, x.shape, strict=True))
           if i not in gone):
        return "windows must not be larger than the operand"
    return ""


def _dims_rule(x: ArrayType, indices: ArrayType, updates: ArrayType, *, dimension_numbers: Any,
               **_: Any) -> Dims:
    dims = dimension_numbers
    paired = dict(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True))
    operand, batch, windows = window_factors(
        x, indices, dims.inserted_window_dims, dims.scatter_dims_to_operand_dims, paired,
        window_sizes(x, updates, dims),
    )
    # Each part of a dimension takes the updates that fall on it, where their windows are of size 1.
    free = letters(x.ndim)
    operand = tuple(free[i] if i in dims.inserted_window_dims else f for i, f in enumerate(operand))
    # The operand lacks the other batch dimensions: the scatter works along them.
    batch = tuple(f if i in paired.values() else None for i, f in enumerate(batch))
    given = placed(windows, batch, dims.update_window_dims, updates.ndim)
    return Dims((operand, (*batch, None), given), (operand,))


def _lower_rule(name: str, body: str) -> Callable:
    def rule(e: Any, ins: Any, outs: Any, x: str, indices: str, updates: str, *,
             dimension_numbers: Any, indices_are_sorted: bool = False,
             unique_indices: bool = False, mode: str = "fill") -> str:
        dims = dimension_numbers
        if mode == "clip":
            sizes = window_sizes(ins[0], ins[2], dims)
            axes = dims.scatter_dims_to_operand_dims
            limits = tuple(ins[0].shape[d] - sizes[d] for d in axes)
            indices = e.via(clamped, (ins[1],), indices, limits=limits)[0]
        vector = ins[1].ndim - 1
        indices, updates = _unsplit(e, ins, dims, indices, updates)
        numbers = attribute("scatter", {
            "update_window_dims": dims.update_window_dims,
            "inserted_window_dims": dims.inserted_window_dims,
            "input_batching_dims": dims.operand_batching_dims,
            "scatter_indices_batching_dims": dims.scatter_indices_batching_dims,
            "scatter_dims_to_operand_dims": dims.scatter_dims_to_operand_dims,
        }, vector)
        old, new = e.fresh(), e.fresh()
        ty = e.ty(array_type((), ins[0].dtype))
        result = [new]

        def combine() -> None:
            if body:
                result[0] = e.let(f"stablehlo.{body} {old}, {new} : {ty}")

        lines = e.region(combine)
        types = ", ".join(e.ty(t) for t in ins)
        return e.let(
            f'"stablehlo.scatter"({x}, {indices}, {updates}) <{{indices_are_sorted = '
            f"{flag(indices_are_sorted)}, scatter_dimension_numbers = {numbers}, "
            f"unique_indices = {flag(unique_indices)}}}> ({{\n^bb0({old}: {ty}, {new}: {ty}):\n"
            f"{lines}\nstablehlo.return {result[0]} : {ty}\n}}) : ({types}) -> {e.ty(outs[0])}"
        )

    return rule


def _unsplit(e: Any, ins: Any, dims: Any, indices: str, updates: str) -> tuple[str, str]:
    """Indices and updates not split along scatter dimensions, where the parts may be unequal:
    XLA would then scatter the padding too."""
    along = [d for d in range(ins[2].ndim) if d not in dims.update_window_dims]
    if all(e.divides(ins[2].shape[d]) for d in along):
        return indices, updates
    return e.whole(indices, ins[1], range(ins[1].ndim)), e.whole(updates, ins[2], along)


def clamped(indices: Any, *, limits: tuple) -> Any:
    """Index vectors brought between 0 and `limits`."""
    t = type_of(indices)
    limits = tuple(min(n, int(max_value(t.dtype))) for n in limits)
    if len(set(limits)) <= 1:
        return clamp(lit(0, indices), indices, lit(limits[0] if limits else 0, indices))
    high = broadcast_in_dim(np.asarray(limits, t.dtype), shape=t.shape, dims=(t.ndim - 1,))
    return clamp(zeros(t), indices, high)


def _batch_rule(op: Op) -> Callable:
    def rule(size: int, args: Any, ds: Any, *, dimension_numbers: Any, **p: Any) -> tuple:
        window, inserted, places, along, paired = dimension_numbers
        x, updates = batch_first(size, args[0], ds[0]), batch_first(size, args[2], ds[2])
        if ds[1] is None:  # the windows become whole along the hidden dimension
            new = ScatterDimensionNumbers(
                (0, *shifted(window)), shifted(inserted), shifted(places), shifted(along), paired
            )
            return op(x, args[1], updates, dimension_numbers=new, **p), 0
        new = ScatterDimensionNumbers(
            shifted(window), shifted(inserted), shifted(places), (0, *shifted(along)),
            (0, *shifted(paired)),
        )
        indices = batch_first(size, args[1], ds[1])
        return op(x, indices, updates, dimension_numbers=new, **p), 0

    return rule


def read_back(x: Any, indices: Any, updates: Any, dims: Any, p: dict, fill: Any = 0) -> Any:
    """What `x` holds in the windows of a scatter, in the shape of the updates."""
    return gather(
        x, indices, dimension_numbers=as_gather(dims),
        slice_sizes=window_sizes(type_of(x), type_of(updates), dims),
        indices_are_sorted=p.get("indices_are_sorted", False),
        unique_indices=p.get("unique_indices", False),
        mode=p.get("mode", "fill"), fill_value=fill,
    )


def _scatter_op(name: str, body: str, jvp: Callable, transpose: Callable | None) -> Op:
    op = Op(
        name,
        family="scatter",
        type_rule=_type_rule(name),
        dims=_dims_rule,
        lower=_lower_rule(name, body),
        jvp=jvp,
        transpose=transpose,
    )
    op.batch = _batch_rule(op)
    return op


# -- scatter_add, scatter_sub: linear in operand and updates --


def _sum_rules(op: Callable[[], Op], sign: Callable) -> tuple[Callable, Callable]:
    def jvp(primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
        x, indices, _ = primals
        t, _, tu = tangents
        out = op()(*primals, **p)
        if tu is None:
            return out, t
        t = zeros(type_of(x).strong()) if t is None else t
        return out, op()(t, indices, tu, **p)

    def transpose(ct: Any, x: Any, indices: Any, updates: Any, *, dimension_numbers: Any,
                  **p: Any) -> list[Any]:
        ct_updates = None
        if is_linear(updates):
            ct_updates = sign(read_back(ct, indices, updates, dimension_numbers, p))
        return [ct if is_linear(x) else None, None, ct_updates]

    return jvp, transpose


scatter_add = _scatter_op(
    "scatter_add", "add", *_sum_rules(lambda: scatter_add, lambda ct: ct)
)
scatter_sub = _scatter_op(
    "scatter_sub", "subtract", *_sum_rules(lambda: scatter_sub, lambda ct: neg(ct))
)


# -- scatter: replaces --


def _scatter_jvp(primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, updates = primals
    t, _, tu = tangents
    if t is None and tu is None:
        return scatter(*primals, **p), None
    if p.get("unique_indices", False) or tu is None:
        t = zeros(type_of(x).strong()) if t is None else t
        tu = zeros(type_of(updates).strong()) if tu is None else tu
        return scatter(*primals, **p), scatter(t, indices, tu, **p)
    # Which of several updates for one place stays is up to the device. So that value and tangent
    # agree on it, it is found out first, and the others are masked.
    stays = _winners(x, indices, updates, p)
    out = _replace(x, indices, updates, stays, p)
    t = zeros(type_of(x).strong()) if t is None else t
    return out, _replace(t, indices, tu, stays, p)


def _winners(x: Any, indices: Any, updates: Any, p: dict) -> Any:
    """For each element of the updates, whether it is the one that stays."""
    t, dims = type_of(updates), p["dimension_numbers"]
    batch = tuple(i for i in range(t.ndim) if i not in dims.update_window_dims)
    shape = tuple(t.shape[i] for i in batch)
    numbers = np.arange(1, math.prod(shape) + 1, dtype=np.int32).reshape(shape)
    ids = broadcast_in_dim(numbers, shape=t.shape, dims=batch)
    board = zeros(array_type(type_of(x).shape, np.dtype(np.int32)))
    board = scatter(board, indices, ids, **p)
    return eq(read_back(board, indices, ids, dims, p), ids)


def _replace(x: Any, indices: Any, updates: Any, stays: Any, p: dict) -> Any:
    cleared = scatter(x, indices, zeros(type_of(updates)), **p)
    return scatter_add(cleared, indices, where(stays, updates, lit(0, updates)), **p)


def _scatter_transpose(ct: Any, x: Any, indices: Any, updates: Any, *, dimension_numbers: Any,
                       **p: Any) -> list[Any]:
    """Linear scatters come from the jvp rule: unique, or with updates of zero."""
    ct_x = ct_updates = None
    t = type_of(updates)
    if is_linear(x):
        empty = zeros(t.update(dtype=type_of(ct).dtype, weak_type=False))
        ct_x = scatter(ct, indices, empty, dimension_numbers=dimension_numbers, **p)
    if is_linear(updates):
        ct_updates = read_back(ct, indices, updates, dimension_numbers, p)
    return [ct_x, None, ct_updates]


scatter = _scatter_op("scatter", "", _scatter_jvp, _scatter_transpose)


# -- scatter_mul: linear in the operand; in the updates where no two meet --


def _mul_jvp(primals: Any, tangents: Any, *, dimension_numbers: Any, **p: Any) -> tuple[Any, Any]:
    x, indices, updates = primals
    t, _, tu = tangents
    numbers = {"dimension_numbers": dimension_numbers}
    out = scatter_mul(*primals, **numbers, **p)
    total = None if t is None else scatter_mul(t, indices, updates, **numbers, **p)
    if tu is not None:
        _require_unique(p)
        old = read_back(x, indices, updates, dimension_numbers, p)
        empty = zeros(type_of(x).strong())
        part = scatter_add(empty, indices, mul(tu, old), **numbers, **p)
        total = part if total is None else add(total, part)
    return out, total


def _require_unique(p: dict) -> None:
    if not p.get("unique_indices", False):
        raise NotImplementedError(
            "[scatter_mul] can be differentiated with respect to its updates only where no two "
            "of them meet. Pass `unique_indices=True` where that holds."
        )


def _mul_transpose(ct: Any, x: Any, indices: Any, updates: Any, *, dimension_numbers: Any,
                   **p: Any) -> list[Any]:
    if is_linear(updates):
        _require_unique(p)
        return [None, None, read_back(mul(ct, x), indices, updates, dimension_numbers, p)]
    numbers = {"dimension_numbers": dimension_numbers}
    return [scatter_mul(ct, indices, updates, **numbers, **p), None, None]


scatter_mul = _scatter_op("scatter_mul", "multiply", _mul_jvp, _mul_transpose)


# -- scatter_min, scatter_max: ties share the tangent --


def _extremal_jvp(op: Callable[[], Op]) -> Callable:
    def rule(primals: Any, tangents: Any, *, dimension_numbers: Any, **p: Any) -> tuple[Any, Any]:
        x, indices, updates = primals
        t, _, tu = tangents
        numbers = {"dimension_numbers": dimension_numbers}
        out = op()(*primals, **numbers, **p)
        if t is None and tu is None:
            return out, None
        best = read_back(out, indices, updates, dimension_numbers, p)
        from_x = convert_element_type(eq(x, out), dtype=type_of(x).dtype)
        from_updates = convert_element_type(eq(updates, best), dtype=type_of(x).dtype)
        ties = scatter_add(from_x, indices, from_updates, **numbers, **p)
        total = zeros(type_of(x).strong()) if t is None else mul(t, from_x)
        if tu is not None:
            total = scatter_add(total, indices, mul(tu, from_updates), **numbers, **p)
        return out, div(total, ties)

    return rule


scatter_min = _scatter_op("scatter_min", "minimum", _extremal_jvp(lambda: scatter_min), None)
scatter_max = _scatter_op("scatter_max", "maximum", _extremal_jvp(lambda: scatter_max), None)


# -- rules of the reading ops that are scatters --


def _gather_transpose(
    ct: Any, x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: tuple,
    fill_value: Any = None, **p: Any,
) -> list[Any]:
    empty = zeros(x.aval.update(dtype=type_of(ct).dtype, weak_type=False))
    numbers = as_scatter(dimension_numbers)
    return [scatter_add(empty, indices, ct, dimension_numbers=numbers, **p), None]


def _update_batch(size: int, args: Any, ds: Any) -> tuple[Any, int]:
    x, update, *starts = args
    x, update = batch_first(size, x, ds[0]), batch_first(size, update, ds[1])
    if all(d is None for d in ds[2:]):
        zero = lit(0, starts[0]) if starts else np.int32(0)
        return dynamic_update_slice(x, update, zero, *starts), 0
    window = tuple(range(1, len(starts) + 1))
    numbers = ScatterDimensionNumbers(window, (), window, (0,), (0,))
    out = scatter(
        x, stacked(size, starts, ds[2:]), update, dimension_numbers=numbers,
        unique_indices=True, mode="clip",
    )
    return out, 0


gather.transpose = _gather_transpose
dynamic_update_slice.batch = _update_batch

SCATTERS = {
    "set": scatter, "add": scatter_add, "sub": scatter_sub, "mul": scatter_mul,
    "min": scatter_min, "max": scatter_max,
}
__all__ = [
    "SCATTERS", "ScatterDimensionNumbers", "scatter", "scatter_add",
    "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]
