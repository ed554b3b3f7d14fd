"""Approximate largest and smallest elements; exact in this implementation."""

from __future__ import annotations

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

    On each platform but TPU the result is exact, so that `recall_target` is met, and
    `reduction_input_size_override`, which only affects the recall, has no effect.
    """
    return _exact("approx_max_k", operand, k, reduction_dimension, recall_target, aggregate_to_topk)


def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """`approx_max_k` for the k smallest, in increasing order."""
    return _exact("approx_min_k", operand, k, reduction_dimension, recall_target, aggregate_to_topk)


def _exact(
    name: str, operand: Any, k: int, dimension: int, recall: float, aggregate: bool
) -> tuple[Any, Any]:
    t = type_of(operand)
    check_domain(name, FLOATING, (t,))
    if not 0.0 < recall <= 1.0:
        raise ValueError(f"{name}: recall_target must be above 0 and at most 1; got {recall}.")
    if not aggregate:
        raise NotImplementedError(
            f"{name}: aggregate_to_topk=False requests the candidates of the TPU algorithm, which "
            "other platforms do not have. Leave it out for the k best."
        )
    return _found(operand, k, axis_of(dimension, t.ndim), name == "approx_min_k")


@fused(arrays=1)
def _found(operand: Any, k: int, axis: int, smallest: bool) -> tuple[Any, Any]:
    values, places = top_k(neg(operand) if smallest else operand, k, axis=axis)
    return (neg(values) if smallest else values), places
