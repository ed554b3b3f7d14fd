"""The generator `threefry2x32`.

Random bits are hashes of counters, so that each element is computed independently, on its own
device. Keys are `u32[2]`, here with any number of leading dimensions, which results have, too.

    bits(key, (3,), 32)        # u32[3]
    split(key, (3,))           # u32[3,2]: three keys
    fold_in(key, data)         # u32[2]

Each function has two forms, which are statistically equivalent and return different values. The
*partitionable* form hashes the index of each element and needs no communication under any sharding;
the other hashes pairs of counters, one from each half of the array.

New keys are behind an optimization barrier, so that XLA does not hash them again in every kernel
that uses them.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Values equal those of
`jax.random` with `jax_threefry_partitionable` on and off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.base.config import enable_x64
from shardwise._src.core.infer import type_of
from shardwise._src.ops.barrier import kept
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import add, mul
from shardwise._src.ops.families import lit_of
from shardwise._src.ops.logical import bitwise_or, bitwise_xor, shift_left, shift_right_logical
from shardwise._src.ops.random.hashes import threefry2x32
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.types.symbolic import Symbolic, broadcast_shapes

U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)
UNSIGNED = {width: np.dtype(f"uint{width}") for width in (8, 16, 32, 64)}
KEY_SHAPE = (2,)

# -- the functions of the generator --


def words(key: Any) -> tuple[Any, ...]:
    """The words of each key: u32[..., n] → n times u32[...]."""
    shape = type_of(key).shape
    parts = [slice_in_dim(key, i, i + 1, len(shape) - 1) for i in range(shape[-1])]
    return tuple(reshape(p, shape=shape[:-1]) for p in parts)


def join(*words: Any) -> Any:
    """Keys from their words: n times u32[...] → u32[..., n]."""
    shape = type_of(words[0]).shape
    parts = [reshape(x, shape=(*shape, 1)) for x in words]
    return concatenate(*parts, dimension=len(shape)) if len(parts) > 1 else parts[0]


def halves(value: Any) -> tuple[Any, Any]:
    """The upper and the lower 32 bits of integers."""
    t = type_of(value)
    low = convert_element_type(value, dtype=U32)
    if t.dtype.itemsize < 8:
        return broadcast_in_dim(np.uint32(0), shape=t.shape, dims=()), low
    return _upper(convert_element_type(value, dtype=U64)), low


def seed(value: Any) -> Any:
    """The key of an integer seed: its upper and lower 32 bits."""
    return join(*halves(value))


def fold_in(key: Any, data: Any) -> Any:
    """A key derived from a key and a uint32; their leading dimensions broadcast."""
    *parts, data = broadcast(*words(key), data)
    zero = broadcast_in_dim(np.uint32(0), shape=type_of(data).shape, dims=())
    return kept(join(*threefry2x32(*parts, zero, data)))


def broadcast(*xs: Any) -> list[Any]:
    """The arrays, broadcast to their common shape."""
    shapes = [type_of(x).shape for x in xs]
    full = broadcast_shapes(*shapes)
    return [
        x
        if shape == full
        else broadcast_in_dim(x, shape=full, dims=tuple(range(len(full)))[len(full) - len(shape) :])
        for x, shape in zip(xs, shapes, strict=True)
    ]


def split(key: Any, shape: tuple[int, ...], partitionable: bool) -> Any:
    """New keys, in an array of the given shape for each key."""
    if partitionable:
        return kept(join(*_hash_indices(key, shape)))
    flat = _hash_counters(key, 2 * math.prod(shape))
    return kept(reshape(flat, shape=(*_leading(key), *shape, 2)))


def bits(key: Any, shape: tuple[int, ...], width: int, partitionable: bool) -> Any:
    """Unsigned integers of `width` bits, in an array of the given shape for each key."""
    if not partitionable:
        return _paired_bits(key, shape, width)
    return narrowed(*_hash_indices(key, shape), width)


def narrowed(high: Any, low: Any, width: int) -> Any:
    """Random bits of `width` from two words of 32 bits."""
    if width == 64:
        return _wide(high, low)
    return convert_element_type(bitwise_xor(high, low), dtype=UNSIGNED[width])


def _leading(key: Any) -> tuple[int, ...]:
    return type_of(key).shape[:-1]


def _wide(high: Any, low: Any) -> Any:
    high, low = [convert_element_type(x, dtype=U64) for x in (high, low)]
    with enable_x64(True):
        return bitwise_or(shift_left(high, np.uint64(32)), low)


def _upper(x: Any) -> Any:
    """The upper half of a uint64."""
    with enable_x64(True):  # so that the literal is not narrowed
        return convert_element_type(shift_right_logical(x, np.uint64(32)), dtype=U32)


def _hash_indices(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The hashes of each element's index in row-major order, as 64 bits."""
    return threefry2x32(*spread(key, shape), *indices(key, shape))


def spread(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """The words of each key, for an array of the given shape for each."""
    full = (*_leading(key), *shape)
    over = tuple(range(len(full) - len(shape)))
    return [broadcast_in_dim(k, shape=full, dims=over) if over else k for k in words(key)]


def indices(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The upper and lower halves of each element's index in such an array."""
    full = (*_leading(key), *shape)
    count = math.prod(shape)
    if not isinstance(count, Symbolic) and count <= 1 << 32:
        return np.uint32(0), _row_major(full, shape, U32)
    with enable_x64(True):
        index = _row_major(full, shape, U64)
    return _upper(index), convert_element_type(index, dtype=U32)


def _row_major(full: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> Any:
    """The row-major index within the last dimensions, `shape`: a sum over the dimensions instead of
    a reshape of one dimension, so that every dimension can be sharded.
    """
    index, stride = None, 1
    for d in reversed(range(len(full) - len(shape), len(full))):
        term = iota(dtype=dtype, shape=full, dimension=d)
        term = term if stride == 1 else mul(term, lit_of(stride, dtype))
        index = term if index is None else add(index, term)
        stride *= full[d]
    return broadcast_in_dim(dtype.type(0), shape=full, dims=()) if index is None else index


# -- the older form: counters hashed in pairs --


def _hash_counters(key: Any, count: int) -> Any:
    """The hashes of 0 … count-1 for each key, in one dimension; counters of the first half are
    paired with those of the second half.
    """
    lead = _leading(key)
    half = -(-count // 2)
    shape = (*lead, half)
    over = tuple(range(len(lead)))
    k1, k2 = [broadcast_in_dim(k, shape=shape, dims=over) for k in words(key)]
    first = iota(dtype=U32, shape=shape, dimension=len(lead))
    second = add(first, np.uint32(half))
    if count % 2:  # the last counter is paired with 0
        known = slice_in_dim(second, 0, half - 1, len(lead))
        none = broadcast_in_dim(np.uint32(0), shape=(*lead, 1), dims=())
        second = concatenate(known, none, dimension=len(lead))
    both = concatenate(*threefry2x32(k1, k2, first, second), dimension=len(lead))
    return slice_in_dim(both, 0, count, len(lead))


def _paired_bits(key: Any, shape: tuple[int, ...], width: int) -> Any:
    size = math.prod(shape)
    lead = _leading(key)
    axis = len(lead)
    count = -(-size * width // 32)
    if count >= (1 << 32) - 1:
        raise NotImplementedError(
            f"random bits of shape {shape} and {width} bits need 2**32 counters or more. Set "
            "threefry_partitionable to True."
        )
    flat = _hash_counters(key, count)
    if width == 64:
        flat = _wide(slice_in_dim(flat, 0, size, axis), slice_in_dim(flat, size, 2 * size, axis))
    elif width < 32:
        flat = slice_in_dim(_pieces(flat, width), 0, size, axis)
    return reshape(flat, shape=(*lead, *shape))


def _pieces(flat: Any, width: int) -> Any:
    """The parts of `width` bits of each word, the lowest first, in the last dimension."""
    *lead, count = type_of(flat).shape
    per_word = 32 // width
    axis = len(lead)
    shape = (*lead, count, per_word)
    wide = broadcast_in_dim(flat, shape=shape, dims=tuple(range(axis + 1)))
    places = mul(iota(dtype=U32, shape=shape, dimension=axis + 1), np.uint32(width))
    parts = convert_element_type(shift_right_logical(wide, places), dtype=UNSIGNED[width])
    return reshape(parts, shape=(*lead, count * per_word))
