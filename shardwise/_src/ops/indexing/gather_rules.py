"""Dynamic indexing: how gather and scatter describe the elements that they use at run time.

Index vectors are along the last dimension of `indices`; each is the start of a window. The numbers
of a gather or scatter describe how the dimensions of its operands and windows correspond. This
module contains the rules of the ops that execute nothing: types, dimensions and lowered text.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.errors import ShapeError
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.basis import broadcast_in_dim, ints, zeros
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import clamp
from shardwise._src.ops.shape import along, concatenate
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import (
    is_bool,
    is_inexact,
    is_integer,
    is_signed,
    max_value,
    min_value,
)
from shardwise._src.types.symbolic import Symbolic


@public("shardwise.lax")
class GatherScatterMode(enum.StrEnum):
    """How windows that are partly out of bounds are handled."""

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
            f"unknown mode {mode!r} for out-of-bounds indices; expected 'fill' (or 'drop'), "
            "'clip' or 'promise_in_bounds'."
        )


class GatherDimensionNumbers(NamedTuple):
    """How the dimensions of a gather's operands and result correspond.

    offset_dims:              dimensions of the result that come from the windows.
    collapsed_slice_dims:     dimensions of the operand, of window size 1, that the result lacks.
    start_index_map:          the operand dimension of each component of an index vector.
    operand_batching_dims:    dimensions of the operand that correspond one to one with
    start_indices_batching_dims: these dimensions of the indices.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """How the dimensions of a scatter's operands correspond; the counterpart of a gather's.

    update_window_dims:           dimensions of the updates that are window dimensions.
    inserted_window_dims:         operand dimensions, of window size 1, that the updates lack.
    scatter_dims_to_operand_dims: the operand dimension of each component of an index vector.
    operand_batching_dims:        dimensions of the operand that correspond one to one with
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


# -- lowered text --


def attribute(name: str, fields: dict[str, tuple], vector_dim: int) -> str:
    """`#stablehlo.gather<…>`: dimension numbers as text; empty lists are omitted."""
    parts = [f"{field} = {ints(dims)}" for field, dims in fields.items() if dims]
    return f"#stablehlo.{name}<{', '.join([*parts, f'index_vector_dim = {vector_dim}'])}>"


def flag(value: bool) -> str:
    return "true" if value else "false"


# -- dynamic_slice and dynamic_update_slice --


def check_starts(name: str, x: ArrayType, starts: tuple) -> None:
    fits = len(starts) == x.ndim and all(
        not t.shape and is_integer(t.dtype) and t.dtype == starts[0].dtype for t in starts
    )
    if not fits:
        raise ShapeError(
            f"[{name}] takes an integer scalar for each dimension of {x.str_short(True)}, all of "
            f"the same dtype; got {join_types(starts) if starts else 'none'}."
        )


def dynamic_slice_type(op: Op, x: ArrayType, *starts: ArrayType, slice_sizes: tuple) -> ArrayType:
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


def dynamic_slice_dims(op: Op, x: ArrayType, *starts: ArrayType, slice_sizes: tuple) -> Dims:
    names = along(x, [i for i in range(x.ndim) if slice_sizes[i] != x.shape[i]])
    return Dims((names, *[()] * x.ndim), (names,), linear=((0,),), worked="kept")


def update_type(op: Op, x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
    check_starts("dynamic_update_slice", x, starts)
    fits = update.ndim == x.ndim and all(
        n <= size for n, size in zip(update.shape, x.shape, strict=True)
    )
    if not fits or update.dtype != x.dtype:
        raise TypeError(
            "[dynamic_update_slice] the update must have the operand's dtype and rank and fit "
            f"inside; got {join_types((x, update))}."
        )
    return x.update(weak_type=x.weak_type and update.weak_type, spec=None, mesh=None)


def update_dims(op: Op, x: ArrayType, update: ArrayType, *starts: ArrayType) -> Dims:
    names = along(x, [i for i in range(x.ndim) if update.shape[i] != x.shape[i]])
    return Dims((names, names, *[()] * x.ndim), (names,), linear=((0, 1),), worked="kept")


# -- gather --


def fill_value_for(dtype: Any) -> Any:
    """The default fill value: NaN, the least signed or greatest unsigned integer, True."""
    if is_inexact(dtype):
        return np.nan
    if is_bool(dtype):
        return True
    return min_value(dtype) if is_signed(dtype) else max_value(dtype)


def gather_type(op: Op, x: ArrayType, indices: ArrayType, **p: Any) -> ArrayType:
    dims, slice_sizes = p["dimension_numbers"], p["slice_sizes"]
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
                f"[gather] {what}; got operands {join_types((x, indices))}, {dims} and slice_sizes "
                f"{slice_sizes}."
            )

    require(is_integer(indices.dtype) and indices.ndim > 0, "indices must be integer vectors")
    gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    own = [n for d, n in enumerate(slice_sizes) if d not in gone]
    nothing = 0 in (*indices.shape[:-1], *own)  # no windows, or none with elements, are read
    require(
        len(slice_sizes) == x.ndim
        and all(
            n >= 0 and (n <= size or nothing) for n, size in zip(slice_sizes, x.shape, strict=True)
        ),
        "slice_sizes must be within the operand's shape",
    )
    require(
        len(set(gone)) == len(gone) and all(0 <= d < x.ndim for d in gone),
        "collapsed_slice_dims and operand_batching_dims must be distinct operand dimensions",
    )
    require(
        all(slice_sizes[d] <= 1 for d in gone),
        "collapsed_slice_dims and operand_batching_dims need slice sizes of 1",
    )
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
    x: ArrayType, indices: ArrayType, gone: Any, indexed: Any, paired: dict[int, int], sizes: tuple
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


def gather_dims(op: Op, x: ArrayType, indices: ArrayType, **p: Any) -> Dims:
    dims, slice_sizes = p["dimension_numbers"], p["slice_sizes"]
    paired = dict(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    operand, batch, windows = window_factors(
        x, indices, dims.collapsed_slice_dims, dims.start_index_map, paired, slice_sizes
    )
    rank = len(windows) + indices.ndim - 1
    out = placed(windows, batch, dims.offset_dims, rank)
    return Dims((operand, (*batch, None)), (out,), linear=((0,),))


def shifted(dims: tuple) -> tuple:
    return tuple(d + 1 for d in dims)


# -- scatter --


def scatter_type(
    op: Op, x: ArrayType, indices: ArrayType, updates: ArrayType, **p: Any
) -> ArrayType:
    dims = p["dimension_numbers"]
    what = _misfit(x, indices, updates, dims)
    if what:
        raise TypeError(f"[{op.name}] {what}; got {join_types((x, indices, updates))} and {dims}.")
    return x.update(weak_type=x.weak_type and updates.weak_type, spec=None, mesh=None)


def _misfit(x: ArrayType, indices: ArrayType, updates: ArrayType, dims: Any) -> str:
    """The mismatch of a scatter's operands; empty if they match."""
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
        return "scatter_dims_to_operand_dims must have an entry per component of an index vector"
    if updates.ndim != len(dims.update_window_dims) + indices.ndim - 1:
        return "updates must have the dimensions of the windows and those of the index vectors"
    batch = [n for i, n in enumerate(updates.shape) if i not in dims.update_window_dims]
    if tuple(batch) != indices.shape[:-1]:
        return "updates must contain a window for each index vector"
    sizes = window_sizes(x, updates, dims)
    if any(
        n > size for i, (n, size) in enumerate(zip(sizes, x.shape, strict=True)) if i not in gone
    ):
        return "windows must not be larger than the operand"
    return ""


def scatter_dims(
    op: Op,
    x: ArrayType,
    indices: ArrayType,
    updates: ArrayType,
    *,
    linear: tuple[tuple[int, ...], ...] = ((0, 2),),
    **p: Any,
) -> Dims:
    """linear: see `Dims`; most scatters are jointly linear in operand and updates."""
    dims = p["dimension_numbers"]
    paired = dict(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True))
    operand, batch, windows = window_factors(
        x,
        indices,
        dims.inserted_window_dims,
        dims.scatter_dims_to_operand_dims,
        paired,
        window_sizes(x, updates, dims),
    )
    # Each shard of a dimension takes the updates that fall on it, if their windows have size 1.
    free = letters(x.ndim)
    operand = tuple(free[i] if i in dims.inserted_window_dims else f for i, f in enumerate(operand))
    # The operand lacks the other batch dimensions: the scatter works along them.
    batch = tuple(f if i in paired.values() else None for i, f in enumerate(batch))
    given = placed(windows, batch, dims.update_window_dims, updates.ndim)
    return Dims((operand, (*batch, None), given), (operand,), linear=linear)


def scatter_lower(body: str) -> Callable:
    """The lowered text of a scatter. body: the name of the combiner; empty to replace."""

    def rule(
        op: Op, e: Any, ins: Any, outs: Any, *xs: str, dimension_numbers: Any, **p: Any
    ) -> str:
        (x, indices, updates), dims, mode = xs, dimension_numbers, p.pop("mode", "fill")
        if mode == "clip":
            sizes = window_sizes(ins[0], ins[2], dims)
            axes = dims.scatter_dims_to_operand_dims
            limits = tuple(ins[0].shape[d] - sizes[d] for d in axes)
            indices = e.via(clamped, (ins[1],), indices, limits=limits)[0]
        return e.scatter((x, indices, updates), ins, dims, body, **p)

    return rule


def clamped(indices: Any, *, limits: tuple) -> Any:
    """Index vectors clamped between 0 and `limits`."""
    t = type_of(indices)
    most = int(max_value(t.dtype))
    limits = tuple(n if isinstance(n, Symbolic) else min(n, most) for n in limits)
    if len(set(limits)) <= 1:
        return clamp(lit(0, indices), indices, lit(limits[0] if limits else 0, indices))
    if any(isinstance(n, Symbolic) for n in limits):
        each = [broadcast_in_dim(lit(n, indices), shape=(1,), dims=()) for n in limits]
        row = concatenate(*each, dimension=0)
    else:
        row = np.asarray(limits, t.dtype)
    high = broadcast_in_dim(row, shape=t.shape, dims=(t.ndim - 1,))
    return clamp(zeros(t), indices, high)
