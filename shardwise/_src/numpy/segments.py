"""Reductions over segments: rows with the same id are combined.

    segment_sum(np.array([1, 2, 3, 4]), np.array([0, 0, 2, 2]), num_segments=3)    # [3, 0, 7]

A row whose id is not among 0, 1, …, num_segments - 1 is dropped; a segment without rows is the
identity of its operation.
"""

from __future__ import annotations

from operator import index
from typing import Any

from shardwise._src.base.errors import ConcretizationTypeError
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.statistics import reductions
from shardwise._src.ops.create import full
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding
from shardwise._src.types.dtypes import is_integer, max_value, min_value
from shardwise._src.values.at import write
from shardwise._src.values.convert import cast

_IDENTITY = {"add": lambda dtype: 0, "mul": lambda dtype: 1, "min": max_value, "max": min_value}
_AGAIN = {"add": "sum", "mul": "prod", "min": "min", "max": "max"}  # combines buckets


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sums of the rows of `data` by segment.

    Args:
      data: shape (n, …), any numeric dtype.
      segment_ids: integers of shape (n,): the segment of each row. Negative ones are dropped.
      num_segments: the number of segments in the result; by default the largest id plus one, which
        must be concrete: not inside `jit`.
      indices_are_sorted, unique_indices: promises about `segment_ids`.
      bucket_size: number of rows to sum before combining the sums, for better precision.
      mode: for ids out of bounds, as in `x.at[…]`: "drop" (the default), "clip" or
        "promise_in_bounds".
      out_sharding: how the result is sharded over explicit mesh axes.

    Returns:
      An array of shape (num_segments, …) and of the dtype of `data`.

    Raises:
      TypeError: if `segment_ids` are not integers.
      ValueError: if shapes do not match, or a count is out of range.

    Source: `jax.ops.segment_sum`.
    """
    flags = indices_are_sorted, unique_indices, mode
    return _segments("add", data, segment_ids, num_segments, bucket_size, flags, out_sharding)


def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Products of the rows of `data` by segment; see `segment_sum`. Empty segments are 1."""
    flags = indices_are_sorted, unique_indices, mode
    return _segments("mul", data, segment_ids, num_segments, bucket_size, flags, out_sharding)


def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Element-wise maximum of the rows of `data` by segment; see `segment_sum`.

    Empty segments are -inf, or the smallest number of the dtype.
    """
    flags = indices_are_sorted, unique_indices, mode
    return _segments("max", data, segment_ids, num_segments, bucket_size, flags, out_sharding)


def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Element-wise minimum of the rows of `data` by segment; see `segment_sum`.

    Empty segments are inf, or the largest number of the dtype.
    """
    flags = indices_are_sorted, unique_indices, mode
    return _segments("min", data, segment_ids, num_segments, bucket_size, flags, out_sharding)


def _segments(
    how: str,
    data: Any,
    ids: Any,
    count: int | None,
    bucket: int | None,
    flags: tuple,
    out_sharding: Any,
) -> Any:
    name = f"segment_{_AGAIN[how]}"
    data, ids = asarray(data), asarray(ids)
    _check(name, data, ids, bucket)
    count = _count_of(name, ids) if count is None else index(count)
    if count < 0:
        raise ValueError(f"{name}: num_segments must not be negative; got {count}.")
    return placed(_reduced, out_sharding, data, ids, how, count, bucket, flags)


def _count_of(name: str, ids: Any) -> int:
    try:
        return int(reductions.max(ids)) + 1 if type_of(ids).size else 0
    except ConcretizationTypeError:
        raise ConcretizationTypeError(
            f"{name}: segment_ids are traced, so the number of segments, their maximum plus one, "
            "is unknown. Pass num_segments."
        ) from None


def _check(name: str, data: Any, ids: Any, bucket: int | None) -> None:
    given, t = type_of(ids), type_of(data)
    if not is_integer(given.dtype):
        raise TypeError(f"{name}: segment_ids must be integers; got {given.str_short(True)}.")
    if given.ndim != 1 or not t.ndim or given.shape[0] != t.shape[0]:
        raise ValueError(
            f"{name} takes one id for each row of data; got segment_ids of type "
            f"{given.str_short(True)} for data of type {t.str_short(True)}."
        )
    if bucket is not None and bucket < 1:
        raise ValueError(f"{name}: bucket_size must be at least 1; got {bucket}.")


@fused(arrays=2)
def _reduced(data: Any, ids: Any, how: str, count: int, bucket: int | None, flags: tuple) -> Any:
    t = type_of(data)
    sorted_ids, unique, mode = flags
    start, place = _IDENTITY[how](t.dtype), ids
    shape: tuple[int, ...] = (count,)
    if bucket is not None:
        shape = (count, -(-t.shape[0] // bucket))
        place = (ids, arange(t.shape[0]) // bucket)
    parts = write(
        how,
        full(start, (*shape, *t.shape[1:]), t.dtype),
        place,
        data,
        mode=mode,
        indices_are_sorted=sorted_ids,
        unique_indices=unique,
        wrap_negative_indices=False,
    )
    if bucket is None:
        return parts
    return cast(getattr(reductions, _AGAIN[how])(parts, axis=1), t.dtype)
