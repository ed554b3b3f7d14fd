"""Matrix products with grouped rows or grouped contracted elements; and block-scaled products.

The groups are consecutive along a dimension of lhs, with as many elements in each as a vector of
sizes says. They are written as products with a group dimension, where other groups are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.contraction import Dimensions, dot_general
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.numpy.statistics.reductions import checked_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from shardwise._src.ops.contract import dot, free_dims
from shardwise._src.ops.create import iota
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, PrecisionLike
from shardwise._src.types.array_type import join_types
from shardwise._src.types.dtypes import check_user_dtype, is_integer
from shardwise._src.values.convert import cast


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """Contracted and batch dimensions, as for `dot_general`; the ragged dimension of lhs;
    and the group dimension of rhs, if the ragged dimension is not contracted.
    """

    dot_dimension_numbers: Dimensions
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __init__(
        self,
        dot_dimension_numbers: Any,
        lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int],
    ) -> None:
        (lc, rc), (lb, rb) = dot_dimension_numbers
        numbers = (sizes(lc), sizes(rc)), (sizes(lb), sizes(rb))
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", sizes(lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", sizes(rhs_group_dimensions))


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Multiplies rows T[m, k] by the matrix of their group, T[g, k, n]: T[m, n].

    group_sizes: the number of rows of each group, i[g]; rows beyond their sum give zeros. A NaN
    in any matrix reaches all rows, as with JAX on CPU.
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    how = precision, preferred_element_type, group_offset, out_sharding
    return ragged_dot_general(lhs, rhs, group_sizes, numbers, *how)


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """`dot_general` with a ragged dimension of lhs, partitioned into groups.

    If it is contracted, each group is summed separately, and the result has a leading group
    dimension; if it is a batch dimension, this is a plain product; otherwise rhs has a matrix for
    each group.

    Args:
      group_sizes: i[g], or one for each row of the dimensions before the ragged one: i[b, …, g].

    Raises:
      TypeError: if dimensions or shapes do not fit.
      NotImplementedError: for `group_offset`, which JAX does not implement, either.
    """
    if group_offset is not None:
        raise NotImplementedError(
            "ragged_dot_general: group_offset is not implemented, nor is it in JAX. Slice "
            "`group_sizes` and the groups of rhs instead."
        )
    preferred = checked_dtype(preferred_element_type, "ragged_dot_general")
    args = lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision, preferred
    return placed(_ragged, out_sharding, *args)


@fused(arrays=3)
def _ragged(lhs: Any, rhs: Any, counts: Any, numbers: Any, precision: Any, preferred: Any) -> Any:
    types = type_of(lhs), type_of(rhs), type_of(counts)
    pairs = (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    ragged, grouped = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    free = free_dims(types[0].ndim, lc, lb)
    if len(ragged) != 1 or not 0 <= ragged[0] < types[0].ndim:
        raise TypeError(
            "ragged_dot_general: lhs_ragged_dimensions must be one of the dimensions of "
            f"{types[0].str_short(True)}; got {ragged}."
        )
    at = ragged[0]
    if len(grouped) != (at in free) or any(d in (*rc, *rb) for d in grouped):
        raise TypeError(
            "ragged_dot_general: rhs_group_dimensions must be one dimension that is neither "
            "contracted nor batch if the ragged one is neither, and empty otherwise; got "
            f"{grouped} of {types[1].str_short(True)}."
        )
    if not is_integer(types[2].dtype) or not types[2].ndim:
        raise TypeError(
            f"ragged_dot_general: group_sizes must be integers i[g]; got {join_types(types[2:])}."
        )
    if at in lb:
        return dot(lhs, rhs, pairs, precision, preferred)
    row = lc if at in lc else free
    before = (*lb, *row[: row.index(at)])
    given: Any = types[2].shape
    wanted = tuple([types[0].shape[d] for d in before])
    if len(given) > 1 and given[:-1] != wanted:
        raise TypeError(
            f"ragged_dot_general: group_sizes must be of shape ({given[-1]},) or "
            f"{(*wanted, given[-1])}; got {given}."
        )
    left = _apart(lhs, counts, at, before)
    up = tuple([d + 1 for d in lc]), tuple([d + 1 for d in lb])
    if at in free:
        if types[1].shape[grouped[0]] != given[-1]:
            raise TypeError(
                f"ragged_dot_general: rhs must have an entry for each of {given[-1]} groups along "
                f"dimension {grouped[0]}; got {types[1].str_short(True)}."
            )
        return dot(left, rhs, (((*up[0], 0), (*rc, grouped[0])), (up[1], rb)), precision, preferred)
    place = lc.index(at)
    right = _apart(rhs, counts, rc[place], (*rb, *rc[:place]))
    over = tuple([d + 1 for d in rc]), (0, *[d + 1 for d in rb])
    return dot(left, right, ((up[0], over[0]), ((0, *up[1]), over[1])), precision, preferred)


def _apart(x: Any, counts: Any, at: int, before: Sequence[int]) -> Any:
    """For each group its elements along `at`, and zeros elsewhere: T[g, …]."""
    t, last = type_of(x), type_of(counts).ndim - 1
    ends = cumsum(counts, axis=last)
    shape = (type_of(counts).shape[-1], *t.shape)
    dims = (0, *[d + 1 for d in before]) if last else (0,)
    order = sorted(range(len(dims)), key=dims.__getitem__)

    def wide(v: Any) -> Any:
        v = transpose(move_axis(v, last, 0), perm=tuple(order))
        return broadcast_in_dim(v, shape=shape, dims=tuple(sorted(dims)))

    places = iota(dtype=type_of(counts).dtype, shape=shape, dimension=at + 1)
    inside = ew.bitwise_and(ew.ge(places, wide(ew.sub(ends, counts))), ew.lt(places, wide(ends)))
    repeated = broadcast_in_dim(x, shape=shape, dims=tuple(range(1, t.ndim + 1)))
    return select_n(inside, lit(0, x), repeated)


def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: Dimensions | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`dot_general` of operands with scales for blocks along contracted dimensions.

    Args:
      lhs_scale, rhs_scale: of the operand's shape, except that contracted dimensions are divided by
        the block sizes, which are integers; None: no scales.
      dimension_numbers: as for `dot_general`; None: products of the last two dimensions.
      preferred_element_type: the dtype of scales, products and sums; None: bfloat16.
    """
    n = type_of(lhs).ndim
    if dimension_numbers is None:
        if n < 2:
            raise TypeError(
                "scaled_dot: dimension_numbers must be given for operands with fewer than two "
                f"dimensions; got {join_types((type_of(lhs), type_of(rhs)))}."
            )
        batch = tuple(range(n - 2))
        dimension_numbers = ((n - 1,), (n - 2,)), (batch, batch)
    name = "bfloat16" if preferred_element_type is None else preferred_element_type
    dtype = check_user_dtype(name, "scaled_dot")
    (left, right), batches = dimension_numbers
    numbers = (sizes(left), sizes(right)), (sizes(batches[0]), sizes(batches[1]))
    a = _scaled(lhs, lhs_scale, numbers[0][0], dtype, "lhs")
    b = _scaled(rhs, rhs_scale, numbers[0][1], dtype, "rhs")
    return dot_general(a, b, numbers, preferred_element_type=dtype)


def _scaled(x: Any, scale: Any, contracted: Sequence[int], dtype: Any, name: str) -> Any:
    x = cast(x, dtype)
    if scale is None:
        return x
    shape, blocks = type_of(x).shape, type_of(scale).shape
    fits = len(shape) == len(blocks) and all(
        n == m or (d in contracted and m and n % m == 0)
        for d, (n, m) in enumerate(zip(shape, blocks, strict=True))
    )
    if not fits:
        raise TypeError(
            f"scaled_dot: {name}_scale must have {name}'s shape, {shape}, with contracted "
            f"dimensions optionally divided by integers; got {blocks}."
        )
    apart = [k for n, m in zip(shape, blocks, strict=True) for k in (m, n // max(m, 1))]
    wide = broadcast_in_dim(
        cast(scale, dtype), shape=tuple(apart), dims=tuple(range(0, 2 * len(shape), 2))
    )
    return ew.mul(x, reshape(wide, shape=shape))
