"""Approximate largest and smallest elements; exact in this implementation."""

from __future__ import annotations

import math
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.dimension_numbers import axis_of
from shardwise._src.lax.lax_reductions import top_k
from shardwise._src.ops.elementwise import neg
from shardwise._src.ops.families import FLOATING, check_domain
from shardwise._src.types.annotations import Array, ArrayLike


def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """(the k largest along a dimension in decreasing order, their indices), of floats.

    The result is exact, so that `recall_target` is met.

    Args:
      aggregate_to_topk: if False, returns as many candidates as the algorithm of TPUs needs for
        `recall_target`: at least k, here the best ones. Parts of an array that are searched
        separately are combined this way.
      reduction_input_size_override: the number of elements of all parts; affects only the number of
        candidates.
    """
    count = None if aggregate_to_topk else reduction_input_size_override
    return _exact("approx_max_k", operand, k, reduction_dimension, recall_target, count)


def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """`approx_max_k` for the k smallest, in increasing order."""
    count = None if aggregate_to_topk else reduction_input_size_override
    return _exact("approx_min_k", operand, k, reduction_dimension, recall_target, count)


def _exact(
    name: str, operand: Any, k: int, dimension: int, recall: float, parts: int | None
) -> tuple[Any, Any]:
    """parts: the number of elements of all parts; None for only the k best."""
    t = type_of(operand)
    check_domain(name, FLOATING, (t,))
    if not 0.0 < recall <= 1.0:
        raise ValueError(f"{name}: recall_target must be above 0 and at most 1; got {recall}.")
    axis = axis_of(dimension, t.ndim)
    if parts is not None:
        k = _candidates(name, t.shape[axis], t.ndim, k, recall, parts)
    return _found(operand, k, axis, name == "approx_min_k")


def _candidates(name: str, n: int, rank: int, k: int, recall: float, parts: int) -> int:
    """The number of candidates: the elements are distributed over bins, each of which yields its
    best element. The number of bins is the smallest, in full tiles, that reaches the recall.
    https://arxiv.org/abs/2206.14286
    """
    whole = n if parts == -1 else parts
    if whole < n:
        raise ValueError(
            f"{name}: reduction_input_size_override must be at least the size {n}; got {parts}."
        )
    tile = 1024 if rank == 1 else 128
    if n <= tile or (recall == 1.0 and k > 1):
        return n
    tiles = math.ceil(n / tile)
    if k == 1:
        halvings = (tiles - 1).bit_length()  # one tile is left
    else:
        bins = max(int((1 - k) / math.log(recall)), tile)
        if whole < bins:
            return n
        halvings = min((whole // bins).bit_length() - 1, (n // tile - 1).bit_length())
    return min(math.ceil(tiles / 2**halvings) * tile, n)


@fused(arrays=1)
def _found(operand: Any, k: int, axis: int, smallest: bool) -> tuple[Any, Any]:
    values, places = top_k(neg(operand) if smallest else operand, k, axis=axis)
    return (neg(values) if smallest else values), places
