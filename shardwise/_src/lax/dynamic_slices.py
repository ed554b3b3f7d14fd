"""Reading and writing at positions that are known only at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shardwise._src.base.named import named
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.core.op import Op
from shardwise._src.lax.dimension_numbers import axis_of, sizes
from shardwise._src.lax.shape_operators import index_in_dim
from shardwise._src.messages.formatting import brief
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.ops import shape
from shardwise._src.ops.families import add, lit
from shardwise._src.ops.indexing import gather_scatter as index
from shardwise._src.ops.indexing.gather_rules import (
    GatherDimensionNumbers as GatherDimensionNumbers,
)
from shardwise._src.ops.indexing.gather_rules import GatherScatterMode as GatherScatterMode
from shardwise._src.ops.indexing.gather_rules import (
    ScatterDimensionNumbers as ScatterDimensionNumbers,
)
from shardwise._src.ops.logical import lt, where
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import in_row
from shardwise._src.types.dtypes import is_integer, is_unsigned
from shardwise._src.types.symbolic import as_integer
from shardwise._src.values.binary import remainder
from shardwise._src.values.convert import cast, strip_weak_type

INT32 = np.dtype(np.int32)

# -- windows at dynamic positions: shifted inside if they extend past the edge --


def _starts(operand: Any, starts: Any, negative: bool | Sequence[bool]) -> list[Any]:
    """One start per dimension, of one dtype; negative ones count from the end where allowed."""
    shape = type_of(operand).shape
    wrap = list(negative) if isinstance(negative, tuple | list) else [bool(negative)] * len(shape)
    if len(wrap) != len(shape):
        raise ValueError(
            "allow_negative_indices must be a bool, or one for each dimension of the operand, "
            f"which is {type_of(operand).str_short(True)}; got {brief(negative)}."
        )
    if not isinstance(starts, tuple | list):
        starts = [index_in_dim(starts, i, 0, False) for i in range(type_of(starts).shape[0])]
    dtype = _dtype_of_starts(starts)
    rows = zip(starts, shape, wrap, strict=False)
    signed = not is_unsigned(dtype)
    return [_from_front(cast(s, dtype), n) if w and signed else cast(s, dtype) for s, n, w in rows]


def _dtype_of_starts(starts: Sequence[Any]) -> Any:
    """The common dtype: that of the arrays and NumPy's scalars; int32 for Python integers alone."""
    types = [type_of(s) for s in starts]
    strong = {t.dtype for t in types if not t.weak_type}
    if len(strong) > 1 or not all(is_integer(t.dtype) for t in types):
        raise TypeError(
            f"start_indices must be integers of one dtype; got {in_row(types)}. Convert them with "
            "`astype`."
        )
    weak = [t.dtype for s, t in zip(starts, types, strict=True) if is_array(s)]
    return next(iter([*strong, *weak]), INT32)


def _from_front(start: Any, size: int) -> Any:
    if not is_array(start):
        return start + start.dtype.type(size) if start < 0 else start
    return where(lt(start, lit(0, start)), add(start, lit(size, start)), start)


def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A window of the operand.

    Args:
      start_indices: the window's position, an integer for each dimension (a sequence or an array).
        Negative ones count from the end; a window that extends past the edge is shifted inside.
      slice_sizes: the window's shape.
      allow_negative_indices: whether negative indices count from the end, for all dimensions or
        each; otherwise they are before the start, and the window is shifted inside.
    """
    try:
        starts = _starts(operand, start_indices, allow_negative_indices)
        return index.dynamic_slice(operand, *starts, slice_sizes=sizes(slice_sizes))
    except Exception as error:
        pass_on(error)
        raise


def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """A window along one dimension, with all other dimensions in full; see `dynamic_slice`."""
    old = list(type_of(operand).shape)
    axis = axis_of(axis, len(old))
    starts: list[Any] = [0] * len(old)
    starts[axis], old[axis] = start_index, as_integer(slice_size)
    return dynamic_slice(operand, starts, old, allow_negative_indices=allow_negative_indices)


@fused(arrays=2)
def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The element at one index of a dimension, which is kept with size 1 or removed."""
    part = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return part if keepdims else shape.squeeze(part, (axis_of(axis, type_of(part).ndim),))


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with a window replaced; positions as for `dynamic_slice`."""
    starts = _starts(operand, start_indices, allow_negative_indices)
    return strip_weak_type(index.dynamic_update_slice(operand, update, *starts))


def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The operand with a window along one dimension replaced."""
    ndim = type_of(operand).ndim
    starts: list[Any] = [0] * ndim
    starts[axis_of(axis, ndim)] = start_index
    return dynamic_update_slice(
        operand, update, starts, allow_negative_indices=allow_negative_indices
    )


@fused(arrays=3)
def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The operand with the element at one index of a dimension replaced."""
    ndim = type_of(operand).ndim
    axis = axis_of(axis, ndim)
    if type_of(update).ndim != ndim:
        update = shape.expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )


# -- many windows per call --


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """A window of the operand for every index vector.

    Args:
      start_indices: integers; the last dimension contains the index vectors.
      dimension_numbers: how the dimensions correspond.
      slice_sizes: the windows' shape, in dimensions of the operand.
      unique_indices, indices_are_sorted: promises that allow faster code.
      mode: for windows that are partly out of bounds: "clip" shifts them, "fill" (also None)
        returns `fill_value` (NaN by default, or the extreme of an integer type),
        "promise_in_bounds".
    """
    return index.gather(
        operand,
        start_indices,
        dimension_numbers=_hashable(dimension_numbers),
        slice_sizes=sizes(slice_sizes),
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        mode=GatherScatterMode.from_any(mode),
        fill_value=fill_value,
    )


def _hashable(numbers: Any) -> Any:
    return type(numbers)(*map(tuple, numbers))


class Scatter(Protocol):
    def __call__(
        self,
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array: ...


def _scatter(name: str, op: Op, doc: str) -> Scatter:
    def fun(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        return op(
            operand,
            scatter_indices,
            updates,
            dimension_numbers=_hashable(dimension_numbers),
            mode=GatherScatterMode.from_any(mode),
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
        )

    return named(fun, name, doc)


_REPLACED = """The operand with windows replaced: the inverse of `gather`.

    Args:
      scatter_indices: integers; the last dimension contains the index vectors.
      updates: a window for every vector.
      mode: for windows that are partly out of bounds: "clip" shifts them, "drop" (also None)
        omits them, "promise_in_bounds".
    """
_COMBINED = "The operand with {}; arguments as for `scatter`."

scatter = _scatter("scatter", index.scatter, _REPLACED)
scatter_add = _scatter(
    "scatter_add", index.scatter_add, _COMBINED.format("windows added to its elements")
)
scatter_sub = _scatter(
    "scatter_sub", index.scatter_sub, _COMBINED.format("windows subtracted from its elements")
)
scatter_mul = _scatter(
    "scatter_mul", index.scatter_mul, _COMBINED.format("its elements multiplied by windows")
)
scatter_min = _scatter(
    "scatter_min", index.scatter_min, _COMBINED.format("the minimum of its elements and windows")
)
scatter_max = _scatter(
    "scatter_max", index.scatter_max, _COMBINED.format("the maximum of its elements and windows")
)


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """The slices of `src` at indices along `axes`: T[n, …] for vectors i[n], one per axis.

    Indices are taken modulo the size of their axis.
    """
    t = type_of(src)
    taken = tuple([axis_of(a, t.ndim) for a in axes])
    columns = [
        shape.expand_dims(remainder(i, np.asarray(t.shape[a], type_of(i).dtype)), (1,))
        for i, a in zip(idxs, taken, strict=True)
    ]
    vectors = shape.concatenate(*columns, dimension=1) if len(columns) > 1 else columns[0]
    numbers = GatherDimensionNumbers(tuple(range(1, t.ndim - len(taken) + 1)), taken, taken)
    window = tuple([1 if d in taken else n for d, n in enumerate(t.shape)])
    return gather(src, vectors, numbers, window)


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Array], Array],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Array:
    """The operand with `func` applied to windows of `update_shape`, once per occurrence.

    func: elementwise. The windows are those of `scatter`.
    """
    times = scatter_add(
        np.zeros(type_of(operand).shape, np.int32),
        scatter_indices,
        np.ones(sizes(update_shape), np.int32),
        dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )

    def once(i: Any, x: Any) -> Any:
        return where(lt(i, times), cast(func(x), type_of(x).dtype), x)

    if unique_indices:
        return once(np.int32(0), operand)
    most = reduce_max(times, axes=tuple(range(type_of(times).ndim))) if type_of(times).size else 0
    return fori_loop(np.int32(0), most, once, operand)
