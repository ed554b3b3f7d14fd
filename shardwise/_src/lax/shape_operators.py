"""Shapes and dtypes: broadcasting, reshaping, transposing, slicing, padding, joining, casting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.infer import check_alive, is_array, type_of
from shardwise._src.lax.dimension_numbers import axis_of, sizes
from shardwise._src.numpy import creation, joining
from shardwise._src.numpy.creation import asarray, full_at
from shardwise._src.ops import basis, cast, create, shape
from shardwise._src.ops.sharded.sharding_ops import own_place, own_sharding, placed, reshard
from shardwise._src.types import symbolic
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding
from shardwise._src.types.array_type import says_nothing
from shardwise._src.types.dtypes import DType, check_user_dtype, float0, names_dtype
from shardwise._src.types.sharding_base import Sharding

# -- broadcasting --


def broadcast_in_dim(
    operand: ArrayLike,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The operand repeated to `shape`.

    Args:
      shape: of the result.
      broadcast_dimensions: the result dimension of each operand dimension, in increasing order.
        Each operand size is 1 or equal to the result size.
    """
    how = {"shape": sizes(shape), "dims": sizes(broadcast_dimensions)}
    return placed(basis.broadcast_in_dim, out_sharding, operand, **how)


def broadcast(
    operand: ArrayLike, sizes: Sequence[int], *, out_sharding: OutSharding = None
) -> Array:
    """The operand repeated along new leading dimensions of the given sizes."""
    old = type_of(operand).shape
    dims = range(len(sizes), len(sizes) + len(old))
    return broadcast_in_dim(operand, (*sizes, *old), tuple(dims), out_sharding=out_sharding)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """The operand with new leading dimensions of size 1, up to rank `rank`."""
    return expand_dims(x, range(rank - type_of(x).ndim))


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to by NumPy's rule."""
    for given in shapes:
        if any(n.__class__ is int and n < 0 for n in given):
            raise TypeError(f"broadcast_shapes: sizes must not be negative; got {given}.")
    return symbolic.broadcast_shapes(*shapes)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The operand with new dimensions of size 1 at the positions `dimensions` of the result."""
    ndim = type_of(array).ndim + len(dimensions)
    places = tuple([axis_of(d, ndim) for d in dimensions])
    if len({*places}) != len(places):
        raise ValueError(f"expand_dims: dimensions must be distinct; got {tuple(dimensions)}.")
    return shape.expand_dims(array, places)


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The operand without the dimensions `dimensions`, which have size 1."""
    ndim = type_of(array).ndim
    return shape.squeeze(array, tuple(axis_of(d, ndim) for d in dimensions))


# -- order and shape --


def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The elements in row-major order, in another shape.

    Args:
      new_sizes: the new shape; all sizes are explicit (`shardwise.numpy.reshape` accepts a -1).
      dimensions: an order in which to transpose the operand's dimensions first.
      out_sharding: how the result is sharded over explicit mesh axes, if that is ambiguous.
    """
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    return placed(basis.reshape, out_sharding, operand, shape=sizes(new_sizes))


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Dimension i of the result is dimension `permutation[i]` of the operand."""
    return basis.transpose(operand, perm=sizes(permutation))


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """The operand with dimensions `start_dimension` to `stop_dimension` (exclusive) merged."""
    old = type_of(operand).shape
    first, last, _ = slice_of(start_dimension, stop_dimension).indices(len(old))
    return reshape(operand, (*old[:first], math.prod(old[first:last]), *old[last:]))


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The elements in reverse order along `dimensions`."""
    return shape.rev(operand, dimensions=sizes(dimensions))


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """The operand repeated `reps[i]` times along each dimension i."""
    return shape.tile(operand, sizes(reps))


# -- slices --

slice_of = slice


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """The elements from `start_indices` up to `limit_indices`, every `strides`-th."""
    return shape.slice_(
        operand,
        start_indices=sizes(start_indices),
        limit_indices=sizes(limit_indices),
        strides=None if strides is None else sizes(strides),
    )


def slice_in_dim(
    operand: ArrayLike,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """A slice along one dimension, by Python's rules for negative and missing bounds."""
    old = type_of(operand).shape
    axis = axis_of(axis, len(old))
    start, limit, _ = slice_of(start_index, limit_index).indices(old[axis])
    return shape.slice_in_dim(operand, start, limit, axis, stride)


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The element at a static index of one dimension, which is kept with size 1 or removed."""
    old = type_of(operand).shape
    axis = axis_of(axis, len(old))
    index = axis_of(index, old[axis])
    part = shape.slice_in_dim(operand, index, index + 1, axis)
    return part if keepdims else shape.squeeze(part, (axis,))


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Parts of the given sizes along `axis`."""
    places = tuple(int(n) for n in sizes)
    return shape.split(operand, sizes=places, axis=axis_of(axis, type_of(operand).ndim))


def pad(
    operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
) -> Array:
    """The operand padded with `padding_value` around and between its elements.

    Args:
      padding_value: a scalar of the operand's dtype.
      padding_config: for each dimension how many to add before, after and between elements;
        negative numbers before and after crop.
    """
    config = tuple([tuple(map(symbolic.as_integer, row)) for row in padding_config])
    return shape.pad(operand, padding_value, padding_config=config)


def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """The operands, of one dtype, concatenated along `dimension`."""
    if len(operands) == 0:
        raise ValueError("concatenate: operands must contain at least one array; got none.")
    ndim = type_of(operands[0]).ndim
    return shape.concatenate(*operands, dimension=axis_of(dimension, ndim))


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """The operands, of one shape and dtype, stacked along a new dimension `axis` of the result."""
    place = axis_of(axis, max([type_of(x).ndim for x in operands], default=0) + 1)
    return concatenate(shape.each_once(lambda x: shape.expand_dims(x, (place,)), operands), place)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension."""
    return joining.unstack(x, axis=axis)


# -- new arrays and dtypes --


def full(
    shape: Sequence[int],
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    sharding: Sharding | None = None,
) -> Array:
    """An array filled with one value; the dtype is that of the value by default.

    sharding: a sharding, or a spec over explicit mesh axes.
    """
    t = type_of(fill_value)
    weak = dtype is None and t.weak_type
    dtype = t.dtype if dtype is None else check_user_dtype(dtype, "full")
    return _filled(sharding, fill_value, sizes(shape), dtype, weak)


def _filled(sharding: Any, *args: Any) -> Any:
    if args[2] is float0:  # has no data, so its arrays are NumPy's
        return np.zeros(args[1], float0)
    if sharding is None or says_nothing(sharding):
        return create.full(*args)
    mesh = getattr(sharding, "mesh", None)
    if isinstance(sharding, Sharding) and (mesh is None or not mesh.are_all_axes_explicit):
        return full_at(*args, device=sharding)
    return placed(create.full, sharding, *args)


def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    sharding: Sharding | None = None,
) -> Array:
    """An array filled with one value, by default with the shape, dtype and sharding of `x`."""
    t = type_of(x)
    weak = dtype is None and t.weak_type
    dtype = t.dtype if dtype is None else check_user_dtype(dtype, "full_like")
    size = type_of(x).shape if shape is None else sizes(shape)
    place = own_place(x, size) if sharding is None else None
    if place is not None:
        return full_at(fill_value, size, dtype, weak, place)
    sharding = own_sharding(x, size) if sharding is None else sharding
    return _filled(sharding, fill_value, size, dtype, weak)


def iota(dtype: DTypeLike, size: int) -> Array:
    """0, 1, …, size - 1."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(
    dtype: DTypeLike, shape: Sequence[int], dimension: int, *, out_sharding: OutSharding = None
) -> Array:
    """Each element's index along `dimension`."""
    dtype = check_user_dtype(dtype, "iota")
    how = {"dtype": dtype, "shape": sizes(shape), "dimension": int(dimension)}
    return placed(create.iota, out_sharding, **how)


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The operand converted to another dtype; complex to real takes the real part."""
    new = check_user_dtype(new_dtype, "convert_element_type")
    if is_array(operand) and operand.dtype == new and not operand.weak_type:
        return check_alive(operand)
    return cast.convert_element_type(operand, dtype=new)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The operand's bits as another dtype.

    If the new elements are smaller, a new last dimension contains those of one old element; if
    they are larger, the last dimension contains the parts of one new element and is removed.
    """
    new = check_user_dtype(new_dtype, "bitcast_convert_type")
    return cast.bitcast_convert_type(operand, dtype=new)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """The operand, rounded as if stored with these numbers of bits; the dtype is unchanged."""
    return cast.reduce_precision(
        operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits)
    )


# -- other functions of jax.lax --


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """`arr` in the shape of `like_arr`, by NumPy's rule, with its sharding over explicit axes.

    Raises:
      ValueError: if the shapes do not fit, or a dimension of `arr` is sharded differently.
    """
    own, t = type_of(arr), type_of(like_arr)
    shown = own.str_short(True)
    if own.ndim > t.ndim:
        raise ValueError(f"broadcast_like: {shown} has more dimensions than {t.str_short(True)}.")
    dims = tuple(range(t.ndim - own.ndim, t.ndim))
    sharding = own_sharding(like_arr, t.shape)
    if sharding is None or own.spec is None:
        return broadcast_in_dim(arr, t.shape, dims, out_sharding=sharding)
    pairs = zip(own.spec.dims(own.ndim), sharding.spec.dims(t.ndim)[-own.ndim :], strict=False)
    if any(mine and mine != theirs for mine, theirs in pairs):
        raise ShardingTypeError(
            f"broadcast_like: {shown} is sharded differently from {t.str_short(True)}. Use "
            f"`shardwise.sharding.reshard(arr, P())`."
        )
    return reshard(broadcast_in_dim(arr, t.shape, dims), sharding=sharding)


def dtype(x: Any) -> DType:
    """The dtype of a value as an array, or the dtype that arrays have for a requested one."""
    if x is not None and names_dtype(x):
        return check_user_dtype(x, "dtype")
    return type_of(x).dtype


def empty(shape: Sequence[int], dtype: DTypeLike, *, out_sharding: OutSharding = None) -> Array:
    """An array of zeros: memory is never left uninitialized."""
    return creation.empty(shape, dtype, out_sharding=out_sharding)


def shape_as_value(shape: Sequence[int]) -> np.ndarray:
    """A shape as a vector of integers."""
    return np.asarray(sizes(shape), np.int32)


def stage(x: ArrayLike, /) -> Array:
    """The value as an array, or as a tracer while tracing."""
    return asarray(x)
