"""Reading at places that are known when the program runs: dynamic_slice and gather.

`gather` cuts a window of `slice_sizes` out of the operand for every index vector. The last
dimension of `indices` holds the vectors; `GatherDimensionNumbers` says how dimensions correspond.
Indices beyond the bounds follow `mode`: "clip" moves the window inside, "fill" gives `fill_value`
in its place, "promise_in_bounds" says that there are none.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, ints, move_axis, reshape, zeros
from shardwise._src.ops.families import lit, shown
from shardwise._src.ops.logical import bitwise_and, ge, le, where
from shardwise._src.ops.shape import along, concatenate, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import (
    is_bool,
    is_inexact,
    is_integer,
    is_signed,
    max_value,
    min_value,
)


class GatherScatterMode(enum.StrEnum):
    """What happens to windows that are not wholly inside the operand."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        if isinstance(mode, GatherScatterMode):
            return mode
        if mode in ("fill", "drop", None):
            return GatherScatterMode.FILL_OR_DROP
        if mode in ("clip", "promise_in_bounds"):
            return GatherScatterMode(mode)
        raise ValueError(
            f"unknown mode {mode!r} for indices out of bounds; expected 'fill' (or 'drop'), "
            "'clip' or 'promise_in_bounds'."
        )


class GatherDimensionNumbers(NamedTuple):
    """How the dimensions of a gather's operands and result correspond.

    offset_dims:              dimensions of the result that come from the windows.
    collapsed_slice_dims:     dimensions of the operand, of window size 1, that the result lacks.
    start_index_map:          the operand dimension of each component of an index vector.
    operand_batching_dims:    dimensions of the operand that go, one by one, with
    start_indices_batching_dims: these dimensions of the indices.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


def attribute(name: str, fields: dict[str, tuple], vector_dim: int) -> str:
    """`#stablehlo.gather<…>`: dimension numbers as text; empty lists are left out."""
    parts = [f"{field} = {ints(dims)}" for field, dims in fields.items() if dims]
    return f"#stablehlo.{name}<{', '.join([*parts, f'index_vector_dim = {vector_dim}'])}>"


def flag(value: bool) -> str:
    return "true" if value else "false"


# -- dynamic_slice: the window of slice_sizes at the start indices, moved inside the operand --


def check_starts(name: str, x: ArrayType, starts: tuple) -> None:
    fits = len(starts) == x.ndim and all(
        not t.shape and is_integer(t.dtype) and t.dtype == starts[0].dtype for t in starts
    )
    if not fits:
        raise TypeError(
            f"[{name}] takes an integer scalar, all of one dtype, for each dimension of "
            f"{x.str_short(True)}; got {shown(starts) if starts else 'none'}."
        )


def _dynamic_slice_type(x: ArrayType, *starts: ArrayType, slice_sizes: tuple) -> ArrayType:
    check_starts("dynamic_slice", x, starts)
    fits = len(slice_sizes) == x.ndim and all(
        0 <= n <= size for n, size in zip(slice_sizes, x.shape, strict=True)
    )
    if not fits:
        raise TypeError(
            f"[dynamic_slice] slice_sizes must be within the shape of {x.str_short(True)}; "
            f"got {slice_sizes}."
        )
    return array_type(slice_sizes, x.dtype, x.weak_type)


def _dynamic_slice_dims(x: ArrayType, *starts: ArrayType, slice_sizes: tuple) -> Dims:
    names = along(x, [i for i in range(x.ndim) if slice_sizes[i] != x.shape[i]])
    return Dims((names, *[()] * x.ndim), (names,), linear=((0,),), worked="kept")


def _dynamic_slice_lower(
    e: Any, ins: Any, outs: Any, x: str, *starts: str, slice_sizes: tuple
) -> str:
    # XLA's partitioner gathers an array for a dynamic_slice, but not for a gather.
    moving = tuple(i for i, n in enumerate(slice_sizes) if n != ins[0].shape[i])
    if e.devices > 1 and any(slice_sizes[i] == 1 for i in moving):
        kept = [ins[0], *[ins[1 + i] for i in moving]]
        names = [starts[i] for i in moving]
        return e.via(_window_gathered, kept, x, *names, moving=moving, slice_sizes=slice_sizes)[0]
    types = ", ".join(map(e.ty, ins))
    return e.let(
        f"stablehlo.dynamic_slice {', '.join([x, *starts])}, sizes = {ints(slice_sizes)} : "
        f"({types}) -> {e.ty(outs[0])}"
    )


def _window_gathered(x: Any, *starts: Any, moving: tuple, slice_sizes: tuple) -> Any:
    columns = [reshape(s, shape=(1,)) for s in starts]
    vector = concatenate(*columns, dimension=0) if len(columns) > 1 else columns[0]
    numbers = GatherDimensionNumbers(tuple(range(len(slice_sizes))), (), moving)
    return gather(x, vector, dimension_numbers=numbers, slice_sizes=slice_sizes, mode="clip")


def _dynamic_slice_jvp(primals: Any, tangents: Any, *, slice_sizes: tuple) -> tuple[Any, Any]:
    out = dynamic_slice(*primals, slice_sizes=slice_sizes)
    if tangents[0] is None:
        return out, None
    return out, dynamic_slice(tangents[0], *primals[1:], slice_sizes=slice_sizes)


def _dynamic_slice_transpose(ct: Any, x: Any, *starts: Any, slice_sizes: tuple) -> list[Any]:
    empty = zeros(x.aval.update(dtype=type_of(ct).dtype))
    return [dynamic_update_slice(empty, ct, *starts), *[None] * len(starts)]


def _dynamic_slice_batch(
    size: int, args: Any, ds: Any, *, slice_sizes: tuple
) -> tuple[Any, int]:
    x, *starts = args
    if all(d is None for d in ds[1:]):
        first = move_axis(x, ds[0], 0)
        zero = lit(0, starts[0]) if starts else np.int32(0)
        return dynamic_slice(first, zero, *starts, slice_sizes=(size, *slice_sizes)), 0
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
    vectors = stacked(size, starts, ds[1:])
    return gather(operand, vectors, dimension_numbers=dims, slice_sizes=sizes, mode="clip"), 0


def stacked(size: int, starts: Any, ds: Any) -> Any:
    """Scalars, some of which carry a hidden dimension, as the vectors i32[size, len(starts)]."""
    columns = [
        reshape(batch_first(size, s, d), shape=(size, 1)) for s, d in zip(starts, ds, strict=True)
    ]
    return concatenate(*columns, dimension=1) if len(columns) > 1 else columns[0]


dynamic_slice = Op(
    "dynamic_slice",
    type_rule=_dynamic_slice_type,
    dims=_dynamic_slice_dims,
    lower=_dynamic_slice_lower,
    jvp=_dynamic_slice_jvp,
    transpose=_dynamic_slice_transpose,
    batch=_dynamic_slice_batch,
)


# -- dynamic_update_slice: the operand with the window at the start indices replaced --


def _update_type(x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
    check_starts("dynamic_update_slice", x, starts)
    fits = update.ndim == x.ndim and all(
        n <= size for n, size in zip(update.shape, x.shape, strict=True)
    )
    if not fits or update.dtype != x.dtype:
        raise TypeError(
            "[dynamic_update_slice] the update must have the operand's dtype and rank and fit "
            f"inside; got {shown((x, update))}."
        )
    return x.update(weak_type=x.weak_type and update.weak_type, spec=None, mesh=None)


def _update_dims(x: ArrayType, update: ArrayType, *starts: ArrayType) -> Dims:
    names = along(x, [i for i in range(x.ndim) if update.shape[i] != x.shape[i]])
    return Dims((names, names, *[()] * x.ndim), (names,), linear=((0, 1),), worked="kept")


def _update_lower(e: Any, ins: Any, outs: Any, x: str, update: str, *starts: str) -> str:
    operands, types = ", ".join([x, update, *starts]), ", ".join(map(e.ty, ins))
    return e.let(f"stablehlo.dynamic_update_slice {operands} : ({types}) -> {e.ty(outs[0])}")


def _update_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    x, update, *starts = primals
    out = dynamic_update_slice(*primals)
    t, tu = tangents[:2]
    if t is None and tu is None:
        return out, None
    t = zeros(type_of(x)) if t is None else t
    tu = zeros(type_of(update)) if tu is None else tu
    return out, dynamic_update_slice(t, tu, *starts)


def _update_transpose(ct: Any, x: Any, update: Any, *starts: Any) -> list[Any]:
    window = type_of(update)
    ct_x = ct_update = None
    if is_linear(x):
        empty = zeros(window.update(dtype=type_of(ct).dtype))
        ct_x = dynamic_update_slice(ct, empty, *starts)
    if is_linear(update):
        ct_update = dynamic_slice(ct, *starts, slice_sizes=window.shape)
    return [ct_x, ct_update, *[None] * len(starts)]


dynamic_update_slice = Op(
    "dynamic_update_slice",
    type_rule=_update_type,
    dims=_update_dims,
    lower=_update_lower,
    jvp=_update_jvp,
    transpose=_update_transpose,
)  # its batch rule is a scatter: see ops.scatter


# -- gather --


def fill_value_for(dtype: Any) -> Any:
    """What "fill" gives by default: NaN, the least signed or greatest unsigned integer, True."""
    if is_inexact(dtype):
        return np.nan
    if is_bool(dtype):
        return True
    return min_value(dtype) if is_signed(dtype) else max_value(dtype)


def _gather_type(x: ArrayType, indices: ArrayType, *, dimension_numbers: Any, slice_sizes: tuple,
                 **_: Any) -> ArrayType:
    dims = dimension_numbers
    _check_gather(x, indices, dims, slice_sizes)
    gone = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    window = iter([n for i, n in enumerate(slice_sizes) if i not in gone])
    batch = iter(indices.shape[:-1])
    rank = len(dims.offset_dims) + indices.ndim - 1
    shape = tuple(next(window if i in dims.offset_dims else batch) for i in range(rank))
    return array_type(shape, x.dtype, x.weak_type)


def _check_gather(x: ArrayType, indices: ArrayType, dims: Any, slice_sizes: tuple) -> None:
    def require(holds: bool, what: str) -> None:
        if not holds:
            raise TypeError(
                f"[gather] {what}; got operands {shown((x, indices))}, {dims} and slice_sizes "
                f"{slice_sizes}."
            )

    require(is_integer(indices.dtype) and indices.ndim > 0, "indices must be integer vectors")
    require(
        len(slice_sizes) == x.ndim
        and all(0 <= n <= size for n, size in zip(slice_sizes, x.shape, strict=True)),
        "slice_sizes must be within the operand's shape",
    )
    gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    require(
        len(set(gone)) == len(gone) and all(0 <= d < x.ndim for d in gone),
        "collapsed_slice_dims and operand_batching_dims must be distinct operand dimensions",
    )
    require(all(slice_sizes[d] <= 1 for d in gone), "these need a slice size of 1")
    require(
        len(dims.start_index_map) == indices.shape[-1]
        and len(set(dims.start_index_map)) == len(dims.start_index_map)
        and not {*dims.start_index_map} & {*dims.operand_batching_dims}
        and all(0 <= d < x.ndim for d in dims.start_index_map),
        "start_index_map must name an operand dimension for each component of an index vector",
    )
    rank = x.ndim - len(gone) + indices.ndim - 1
    require(
        len(dims.offset_dims) == x.ndim - len(gone)
        and list(dims.offset_dims) == sorted(set(dims.offset_dims))
        and all(0 <= d < rank for d in dims.offset_dims),
        "offset_dims must name, in increasing order, a result dimension for each window dimension",
    )
    pairs = zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=False)
    require(
        len(dims.operand_batching_dims) == len(dims.start_indices_batching_dims)
        and all(j < indices.ndim - 1 and x.shape[i] == indices.shape[j] for i, j in pairs),
        "batching dimensions must correspond and have equal sizes",
    )


def window_factors(
    x: ArrayType, indices: ArrayType, gone: Any, indexed: Any, paired: dict[int, int],
    sizes: tuple,
) -> tuple[tuple, tuple, list]:
    """Factors of the operand, the index batch, and the window dimensions of a gather or scatter."""
    names = letters(x.ndim + indices.ndim)
    batch = list(names[x.ndim : x.ndim + indices.ndim - 1])
    operand: list[Any] = []
    windows: list[Any] = []
    for i, n in enumerate(x.shape):
        if i in paired:
            operand.append(names[i])
            batch[paired[i]] = names[i]
            continue
        whole = i not in indexed and sizes[i] == n
        operand.append(names[i] if whole else None)
        if i not in gone:
            windows.append(operand[-1])
    return tuple(operand), tuple(batch), windows


def placed(windows: list, batch: tuple, places: tuple, rank: int) -> tuple:
    """Window factors at `places`, batch factors in between."""
    w, b = iter(windows), iter(batch)
    return tuple(next(w if i in places else b) for i in range(rank))


def _gather_dims(x: ArrayType, indices: ArrayType, *, dimension_numbers: Any, slice_sizes: tuple,
                 **_: Any) -> Dims:
    dims = dimension_numbers
    paired = dict(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    operand, batch, windows = window_factors(
        x, indices, dims.collapsed_slice_dims, dims.start_index_map, paired, slice_sizes
    )
    rank = len(windows) + indices.ndim - 1
    out = placed(windows, batch, dims.offset_dims, rank)
    return Dims((operand, (*batch, None)), (out,), linear=((0,),))


def _gather_lower(
    e: Any, ins: Any, outs: Any, x: str, indices: str, *, dimension_numbers: Any,
    slice_sizes: tuple, indices_are_sorted: bool = False, unique_indices: bool = False,
    mode: str = "fill", fill_value: Any = None,
) -> str:
    if mode == "fill":
        return e.via(
            _filled, ins, x, indices, dimension_numbers=dimension_numbers, slice_sizes=slice_sizes,
            indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
            fill_value=fill_value,
        )[0]
    dims, vector = dimension_numbers, ins[1].ndim - 1
    text = attribute("gather", {
        "offset_dims": dims.offset_dims,
        "collapsed_slice_dims": dims.collapsed_slice_dims,
        "operand_batching_dims": dims.operand_batching_dims,
        "start_indices_batching_dims": dims.start_indices_batching_dims,
        "start_index_map": dims.start_index_map,
    }, vector)
    sizes = ", ".join(map(str, slice_sizes))
    sizes = f"array<i64: {sizes}>" if sizes else "array<i64>"
    return e.let(
        f'"stablehlo.gather"({x}, {indices}) <{{dimension_numbers = {text}, indices_are_sorted = '
        f"{flag(indices_are_sorted)}, slice_sizes = {sizes}}}> : "
        f"({e.ty(ins[0])}, {e.ty(ins[1])}) -> {e.ty(outs[0])}"
    )


def _filled(
    x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: tuple, fill_value: Any,
    **params: Any,
) -> Any:
    """Gathers within bounds, then overwrites the windows that are not wholly inside."""
    dims = dimension_numbers
    out = gather(
        x, indices, dimension_numbers=dims, slice_sizes=slice_sizes, mode="promise_in_bounds",
        **params,
    )
    t = type_of(out)
    inside = windows_inside(x, indices, dims.start_index_map, slice_sizes)
    if inside is None:
        return out
    kept = tuple(i for i in range(t.ndim) if i not in dims.offset_dims)
    value = fill_value_for(t.dtype) if fill_value is None else fill_value
    return where(broadcast_in_dim(inside, shape=t.shape, dims=kept), out, lit(value, out))


def windows_inside(x: Any, indices: Any, index_map: tuple, sizes: tuple) -> Any:
    """For each index vector, whether its window lies within the operand."""
    shape, t = type_of(x).shape, type_of(indices)
    inside = None
    for j, d in enumerate(index_map):
        column = slice_in_dim(indices, j, j + 1, t.ndim - 1)
        i = reshape(column, shape=t.shape[:-1])
        for test in _within(i, shape[d] - sizes[d]):
            inside = test if inside is None else bitwise_and(inside, test)
    return inside


def _within(i: Any, limit: int) -> list[Any]:
    dtype = type_of(i).dtype
    tests = [ge(i, lit(0, i))] if is_signed(dtype) else []
    if limit < max_value(dtype):
        tests.append(le(i, lit(limit, i)))
    return tests


def _gather_jvp(primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, indices = primals
    out = gather(x, indices, **p)
    if tangents[0] is None:
        return out, None
    if p.get("mode", "fill") == "fill":
        p = {**p, "fill_value": 0}
    return out, gather(tangents[0], indices, **p)


def _gather_batch(
    size: int, args: Any, ds: Any, *, dimension_numbers: Any, slice_sizes: tuple, **p: Any
) -> tuple[Any, int]:
    (x, indices), (dx, di) = args, ds
    dims = dimension_numbers
    if dx is None:  # one dimension of index vectors more
        new = dims._replace(
            offset_dims=shifted(dims.offset_dims),
            start_indices_batching_dims=shifted(dims.start_indices_batching_dims),
        )
        indices = move_axis(indices, di, 0)
        p = {**p, "indices_are_sorted": False, "unique_indices": False}
        return gather(x, indices, dimension_numbers=new, slice_sizes=slice_sizes, **p), 0
    operand = {
        "collapsed_slice_dims": shifted(dims.collapsed_slice_dims),
        "start_index_map": shifted(dims.start_index_map),
    }
    x = move_axis(x, dx, 0)
    if di is None:  # one whole dimension more in each window
        new = dims._replace(
            offset_dims=(0, *shifted(dims.offset_dims)),
            operand_batching_dims=shifted(dims.operand_batching_dims), **operand,
        )
        return gather(x, indices, dimension_numbers=new, slice_sizes=(size, *slice_sizes), **p), 0
    new = dims._replace(
        offset_dims=shifted(dims.offset_dims),
        operand_batching_dims=(0, *shifted(dims.operand_batching_dims)),
        start_indices_batching_dims=(0, *shifted(dims.start_indices_batching_dims)), **operand,
    )
    one = 1 if size else 0
    return gather(x, move_axis(indices, di, 0), dimension_numbers=new,
                  slice_sizes=(one, *slice_sizes), **p), 0


def shifted(dims: tuple) -> tuple:
    return tuple(d + 1 for d in dims)


gather = Op(
    "gather",
    type_rule=_gather_type,
    dims=_gather_dims,
    lower=_gather_lower,
    jvp=_gather_jvp,
    batch=_gather_batch,
)  # its transpose rule is a scatter: see ops.scatter
