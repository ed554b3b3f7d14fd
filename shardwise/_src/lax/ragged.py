"""`ragged_all_to_all`: exchanges rows between all indices, with sizes that depend on data.

XLA has an instruction for it that not all backends support. This implementation uses two exchanges
that all backends support: of the offsets, and of all rows, from which each receiver picks its own.
So it works over mapped axes and mesh axes, and its derivatives follow from its parts. It always
sends as many rows as all operands have, whatever the sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.lax.collective_axes import AxisNames, CollectiveAxes, Groups, collective_axes
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import iota
from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, GatherScatterMode
from shardwise._src.ops.indexing.gather_scatter import gather
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.ops.sharded import collective as ops
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer

INT32 = np.dtype("int32")
NOWHERE = np.int32(-1)


def ragged_all_to_all(
    operand: ArrayLike,
    output: ArrayLike,
    input_offsets: ArrayLike,
    send_sizes: ArrayLike,
    output_offsets: ArrayLike,
    recv_sizes: ArrayLike,
    *,
    axis_name: AxisNames,
    axis_index_groups: Groups = None,
) -> Array:
    """Sends slices of rows of `operand` to other indices, into slices of their `output`.

    There are k slices for each index: slice i goes to index i // k, and the k entries of
    `recv_sizes` from j * k on describe the slices received from index j.

    Args:
      operand: the rows to send, f32[N,…].
      output: the rows to write into, f32[M,…], of the same dtype and trailing dimensions.
      input_offsets: where each slice begins in `operand`: i32[K], with K = k times the number of
        indices.
      send_sizes: how many rows each slice has: i32[K].
      output_offsets: where each slice begins in the `output` of its receiver: i32[K].
      recv_sizes: how many rows are received: i32[K];
        `all_to_all(send_sizes, axis_name, 0, 0, tiled=True)`. If they differ, the smaller counts.
      axis_index_groups: see `shardwise.lax.psum`; groups of one size.

    Returns:
      `output` with the received rows; f32[M,…]. Rows outside `operand` are not sent, rows outside
      `output` are not written, and if several are written to one row, the last slice wins.

    Raises:
      TypeError: if operand and output differ in dtype or the dimensions of a row, or offsets or
        sizes are not integers.
      ValueError: if these differ in length, or the number of indices does not divide the length.
    """
    axes = collective_axes("ragged_all_to_all", axis_name, axis_index_groups)
    axes.need_even()
    places = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    _check(axes, operand, output, places)
    if not axes.names:
        sent = list(map(_as_int32, places.values()))
        every = check_alive(operand)
    else:
        how = {"groups": axes.groups, **axes.params}
        columns = [axes.varied(_column(x)) for x in places.values()]
        moved = concatenate(*columns[:3], dimension=1)
        moved = ops.all_to_all(moved, split=0, concat=0, **how)
        sent = [_vector(moved, i) for i in range(3)] + [_as_int32(recv_sizes)]
        every = ops.all_gather(axes.varied(operand), axis=0, to="varying", **how)
    return _written(every, axes.varied(output), *sent, rows=type_of(operand).shape[0])


def _as_int32(x: Any) -> Any:
    """Offsets and sizes; there are no rows beyond the range of an int32."""
    t = type_of(x)
    if t.dtype.itemsize > 4 or t.dtype == np.dtype("uint32"):
        limits = np.iinfo(INT32)
        low = 0 if t.dtype.kind == "u" else limits.min
        low, high = [np.asarray(n).astype(t.dtype)[()] for n in (low, limits.max)]
        x = ew.clamp(low, x, high)
    return convert_element_type(x, dtype=INT32)


def _column(x: Any) -> Any:
    return reshape(_as_int32(x), shape=(type_of(x).shape[0], 1))


def _vector(x: Any, i: int) -> Any:
    return reshape(slice_in_dim(x, i, i + 1, 1), shape=type_of(x).shape[:1])


def _written(
    every: Any, output: Any, starts: Any, sent: Any, targets: Any, came: Any, rows: int
) -> Any:
    """The output of one index, with the rows that it receives.

    every:  the operands of all indices, one after another, each with `rows` rows.
    starts, sent, targets, came: by slice: its start in `every`, the number of rows sent, the target
      row, the number of rows received.
    """
    t, count = type_of(output), type_of(starts).shape[0]
    if not rows or not t.shape[0]:
        return check_alive(output)
    grid = (t.shape[0], count)

    def spread(x: Any, dim: int = 1) -> Any:
        return broadcast_in_dim(x, shape=grid, dims=(dim,))

    def both(*flags: Any) -> Any:
        return flags[0] if len(flags) == 1 else ew.bitwise_and(flags[0], both(*flags[1:]))

    size = type_of(every).shape[0] // rows
    source = np.repeat(np.arange(size, dtype=INT32), count // size) * np.int32(rows)
    within = ew.sub(iota(dtype=INT32, shape=grid, dimension=0), spread(targets))
    place = ew.add(spread(starts), within)
    here = both(
        ew.ge(within, np.int32(0)),
        ew.lt(within, spread(ew.min(sent, came))),
        ew.ge(place, np.int32(0)),
        ew.lt(place, np.int32(rows)),
    )
    slices = iota(dtype=INT32, shape=grid, dimension=1)
    last = reduce_max(ew.where(here, slices, NOWHERE), axes=(1,))
    chosen = ew.eq(slices, spread(last, 0))
    found = reduce_max(ew.where(chosen, ew.add(place, spread(source)), NOWHERE), axes=(1,))
    dims = GatherDimensionNumbers(tuple(range(1, t.ndim)), (0,), (0,))
    new = gather(
        every,
        reshape(ew.max(found, np.int32(0)), shape=(t.shape[0], 1)),
        dimension_numbers=dims,
        slice_sizes=(1, *t.shape[1:]),
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=None,
    )
    there = broadcast_in_dim(ew.ge(last, np.int32(0)), shape=t.shape, dims=(0,))
    return ew.where(there, new, output)


def _check(axes: CollectiveAxes, operand: Any, output: Any, places: dict[str, Any]) -> None:
    given, wanted = type_of(operand), type_of(output)
    for name, t in (("operand", given), ("output", wanted)):
        if not t.ndim:
            raise TypeError(
                f"{axes.who}: {name} must have rows, along its first dimension; got "
                f"{t.str_short(True)}."
            )
    if given.dtype != wanted.dtype or given.shape[1:] != wanted.shape[1:]:
        raise TypeError(
            f"{axes.who}: operand and output must have the same dtype, and rows of the same shape; "
            f"got {given.str_short(True)} and {wanted.str_short(True)}. Convert one of them with "
            "`astype`, or reshape it."
        )
    types = {name: type_of(x) for name, x in places.items()}
    for name, t in types.items():
        if not is_integer(t.dtype):
            raise TypeError(
                f"{axes.who}: {name} must be integers, one for each slice; got {t.str_short(True)}."
            )
        if t.ndim != 1 or not t.shape[0] or t.shape[0] % axes.count:
            raise ValueError(
                f"{axes.who}: {name} must be a vector with the same number of entries for each of "
                f"the {axes.count} indices of {'a group of ' if axes.groups else ''}{axes.shown}; "
                f"got {t.str_short(True)}."
            )
    if len({t.shape for t in types.values()}) > 1:
        shown = ", ".join(f"{name} is {t.str_short(True)}" for name, t in types.items())
        raise ValueError(f"{axes.who}: offsets and sizes must have the same length; {shown}.")
