"""The windows that gather and scatter read and write: their positions, and bounds checks.

`checkify` calls the rules `*_windows` (`Op.windows`).
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, reshape
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_rules import window_sizes
from shardwise._src.ops.logical import bitwise_and, ge, le
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.types.dtypes import is_signed, max_value
from shardwise._src.types.symbolic import Symbolic


def stacked(size: int, starts: Any, ds: Any) -> Any:
    """Scalars, some with a batch dimension, as the vectors i32[size, len(starts)]."""
    columns = [
        reshape(batch_first(size, s, d), shape=(size, 1)) for s, d in zip(starts, ds, strict=True)
    ]
    return concatenate(*columns, dimension=1) if len(columns) > 1 else columns[0]


def windows_inside(x: Any, indices: Any, index_map: tuple, sizes: tuple) -> Any:
    """For each index vector, whether its window is in bounds."""
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
    if isinstance(limit, Symbolic) or limit < max_value(dtype):
        tests.append(le(i, lit(limit, i)))
    return tests


def _at_starts(x: Any, starts: Any, sizes: tuple) -> tuple | None:
    """The single window at starts along all dimensions."""
    if not starts:
        return None
    column = [broadcast_in_dim(s, shape=(1,), dims=()) for s in starts]
    vector = concatenate(*column, dimension=0) if len(column) > 1 else column[0]
    return x, vector, tuple(range(len(sizes))), sizes


def slice_windows(op: Op, args: Any, *, slice_sizes: tuple) -> tuple | None:
    return _at_starts(args[0], args[1:], slice_sizes)


def update_windows(op: Op, args: Any) -> tuple | None:
    return _at_starts(args[0], args[2:], type_of(args[1]).shape)


def gather_windows(
    op: Op, args: Any, *, dimension_numbers: Any, slice_sizes: tuple, **p: Any
) -> tuple:
    return *args, dimension_numbers.start_index_map, slice_sizes


def scatter_windows(op: Op, args: Any, *, dimension_numbers: Any, **p: Any) -> tuple:
    x, indices, updates = args
    sizes = window_sizes(type_of(x), type_of(updates), dimension_numbers)
    return x, indices, dimension_numbers.scatter_dims_to_operand_dims, sizes
