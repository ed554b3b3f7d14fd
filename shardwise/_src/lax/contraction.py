"""Sums of products."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise._src.core.infer import type_of
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.numpy.statistics.reductions import checked_dtype
from shardwise._src.ops import contract
from shardwise._src.ops.precision import DotAlgorithm as DotAlgorithm
from shardwise._src.ops.precision import DotAlgorithmPreset as DotAlgorithmPreset
from shardwise._src.ops.precision import Precision as Precision
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding
from shardwise._src.types.annotations import PrecisionLike as PrecisionLike

_Pair = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers = tuple[_Pair, _Pair]
Dimensions = DotDimensionNumbers


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Dimensions,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Sums of products over pairs of dimensions.

    Args:
      dimension_numbers: ((contracted of lhs, of rhs), (batch of lhs, of rhs)).
      precision: for devices that support several; a `Precision`, its name, or a pair for lhs and
        rhs; or a `DotAlgorithmPreset` or `DotAlgorithm`, which sets operand and sum dtypes.
        The CPU supports those of one dtype, and BF16_BF16_F32; its X3 and X6 run in float32.
      preferred_element_type: the dtype of the sums and of the result.
      out_sharding: how the result is sharded over explicit mesh axes, if that is ambiguous.

    Returns:
      An array with the batch dimensions, then the other dimensions of lhs, then those of rhs.

    Raises:
      TypeError: if the dimensions of a pair differ in size.
      ValueError: for an algorithm that the CPU does not support.
    """
    (left, right), (left_batch, right_batch) = dimension_numbers
    numbers = (sizes(left), sizes(right)), (sizes(left_batch), sizes(right_batch))
    preferred = checked_dtype(preferred_element_type, "dot_general")
    return placed(contract.dot, out_sharding, lhs, rhs, numbers, precision, preferred)


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Product of vectors and matrices: the last dimension of lhs with the first of rhs.

    dimension_numbers: as for `dot_general`, for arrays of any rank.
    """
    how = precision, preferred_element_type
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, *how, out_sharding=out_sharding)
    left, right = type_of(lhs), type_of(rhs)
    if left.ndim not in (1, 2) or right.ndim not in (1, 2):
        raise TypeError(
            "[dot] takes vectors and matrices; got "
            f"{left.str_short(True)} and {right.str_short(True)}. Use dot_general."
        )
    numbers = ((left.ndim - 1,), (0,)), ((), ())
    return dot_general(lhs, rhs, numbers, *how, out_sharding=out_sharding)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Matrix products of the last two dimensions; all others are batch dimensions."""
    ndim = type_of(lhs).ndim
    batch = tuple(range(ndim - 2))
    return dot_general(lhs, rhs, (((ndim - 1,), (ndim - 2,)), (batch, batch)), precision)
