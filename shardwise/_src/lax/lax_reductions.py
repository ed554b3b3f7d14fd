"""Reductions, running reductions and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.lax.dimension_numbers import axis_of
from shardwise._src.numpy.statistics.reductions import place_along
from shardwise._src.ops import basis, cumulative, reduce
from shardwise._src.ops import sort as sorting
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding
from shardwise._src.types.dtypes import check_user_dtype
from shardwise._src.values.convert import as_integer, strip_weak_type

# -- reductions over `axes`, which are removed --


def _reduced(op: Op, operand: Any, axes: Sequence[int], out_sharding: Any = None) -> Any:
    ndim = type_of(operand).ndim
    return placed(op, out_sharding, operand, axes=tuple([axis_of(a, ndim) for a in axes]))


def reduce_sum(
    operand: ArrayLike, axes: Sequence[int], *, out_sharding: OutSharding = None
) -> Array:
    """The sum over `axes`. out_sharding: its sharding, or unreduced, over explicit axes."""
    return _reduced(basis.reduce_sum, operand, axes, out_sharding)


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The product over `axes`."""
    return _reduced(reduce.reduce_prod, operand, axes)


def reduce_max(
    operand: ArrayLike, axes: Sequence[int], *, out_sharding: OutSharding = None
) -> Array:
    """The maximum over `axes`; of no elements the smallest value of the dtype.

    out_sharding: how the result is sharded over explicit axes.
    """
    return _reduced(reduce.reduce_max, operand, axes, out_sharding)


def reduce_min(
    operand: ArrayLike, axes: Sequence[int], *, out_sharding: OutSharding = None
) -> Array:
    """The minimum over `axes`; of no elements the largest value of the dtype.

    out_sharding: how the result is sharded over explicit axes.
    """
    return _reduced(reduce.reduce_min, operand, axes, out_sharding)


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Logical and over `axes`; bitwise for integers."""
    return _reduced(reduce.reduce_and, strip_weak_type(operand), axes)


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Logical or over `axes`; bitwise for integers."""
    return _reduced(reduce.reduce_or, strip_weak_type(operand), axes)


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Exclusive or over `axes`; bitwise for integers."""
    return _reduced(reduce.reduce_xor, strip_weak_type(operand), axes)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the maximum along `axis`: the first of equals, or of NaNs."""
    return _place(reduce.argmax, operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the minimum along `axis`: the first of equals, or of NaNs."""
    return _place(reduce.argmin, operand, axis, index_dtype)


def _place(op: Op, operand: Any, axis: int, index_dtype: Any) -> Any:
    dtype = check_user_dtype(index_dtype, op.name)
    return place_along(operand, axis_of(axis, type_of(operand).ndim), dtype, op)


# -- running reductions: element i of the result reduces the elements up to i --


def _running(op: Op, operand: Any, axis: int, reverse: bool) -> Any:
    return op(operand, axis=axis_of(axis, type_of(operand).ndim), reverse=bool(reverse))


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running sum along `axis`; from the end with `reverse`."""
    return _running(cumulative.cumsum, operand, axis, reverse)


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running product along `axis`; from the end with `reverse`."""
    return _running(cumulative.cumprod, operand, axis, reverse)


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running maximum along `axis`; from the end with `reverse`."""
    return _running(cumulative.cummax, operand, axis, reverse)


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running minimum along `axis`; from the end with `reverse`."""
    return _running(cumulative.cummin, operand, axis, reverse)


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running log(sum(exp(x))) along `axis`; from the end with `reverse`."""
    return _running(cumulative.cumlogsumexp, operand, axis, reverse)


# -- sorting --


@overload
def sort(
    operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[Array, ...]: ...
def sort(
    operand: ArrayLike | Sequence[ArrayLike],
    dimension: int = -1,
    is_stable: bool = True,
    num_keys: int = 1,
) -> Array | tuple[Array, ...]:
    """The elements along `dimension` in increasing order; NaNs last.

    Args:
      operand: an array, or several of one shape, which are all sorted by the first ones.
      is_stable: whether equal elements keep their order.
      num_keys: how many of the operands are sort keys, compared lexicographically.

    Returns:
      An array, or a tuple of them.
    """
    several = isinstance(operand, tuple | list)
    operands = operand if several else [operand]
    outs = sorting.sort(
        *operands,
        dimension=axis_of(dimension, type_of(operands[0]).ndim),
        is_stable=bool(is_stable),
        num_keys=as_integer(num_keys, "sort: num_keys"),
    )
    return tuple(outs) if several else outs[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """(sorted keys, values in the same order)."""
    keys, values = sort((keys, values), dimension, is_stable, num_keys=1)
    return keys, values


def top_k(
    operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """(the k largest along `axis` in decreasing order, their indices).

    is_stable: no effect; equal elements always keep their order.
    """
    ndim = type_of(operand).ndim
    axis = axis_of(axis, ndim)
    k = as_integer(k, "top_k: k")
    values, places = sorting.top_k(basis.move_axis(operand, axis, ndim - 1), k=k)
    return basis.move_axis(values, ndim - 1, axis), basis.move_axis(places, ndim - 1, axis)
