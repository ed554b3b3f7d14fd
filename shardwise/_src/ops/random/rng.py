"""`rng_bit_generator`: XLA's own generator, and the generators `rbg` and `unsafe_rbg`.

    key, bits = rng_bit_generator(key, shape=(3,), dtype=uint32, algorithm=0)   # key: u32[4]

Its bits depend on the full shape and on the platform, not on their sharding. Under `vmap`, and for
an array of keys, the bits of all keys are drawn with the first key, as in jax: these generators are
for speed. New keys of `rbg` are computed by threefry, separately for both halves of a key; new keys
of `unsafe_rbg` are random bits, too.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.barrier import kept
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape
from shardwise._src.ops.logical import bitwise_xor
from shardwise._src.ops.random import threefry
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims

U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)
KEY_SHAPE = (4,)
KEYS = (((4,), U32), ((2,), U64))


class RandomAlgorithm(enum.IntEnum):
    """Algorithms of `rng_bit_generator`: the platform's default, Threefry-2x32, Philox-4x32."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


_TEXTS = ("DEFAULT", "THREE_FRY", "PHILOX")


def _type(
    op: Op, key: ArrayType, *, shape: tuple, dtype: Any, algorithm: int
) -> tuple[ArrayType, ArrayType]:
    if (key.shape, key.dtype) not in KEYS:
        raise TypeError(
            f"[rng_bit_generator] takes a key u32[4] or u64[2]; got {join_types((key,))}."
        )
    if dtype not in threefry.UNSIGNED.values():
        raise TypeError(
            f"[rng_bit_generator] bits must be uint8, uint16, uint32 or uint64; got {dtype}."
        )
    return array_type(key.shape, key.dtype), array_type(shape, dtype)


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, key: str, *, shape: tuple, dtype: Any, algorithm: int
) -> list[str]:
    ty, own = e.ty(array_type((2,), U64)), e.ty(ins[0])
    pairs = e.ty(array_type((2, 2), U32))
    if ins[0].dtype == U32:
        key = e.let(f"stablehlo.reshape {key} : ({own}) -> {pairs}")
        key = e.let(f"stablehlo.bitcast_convert {key} : ({pairs}) -> {ty}")
    key, bits = e.lets(
        f"stablehlo.rng_bit_generator {key}, algorithm = {_TEXTS[algorithm]} : ({ty}) -> "
        f"({ty}, {e.ty(outs[1])})",
        2,
    )
    if ins[0].dtype == U32:
        key = e.let(f"stablehlo.bitcast_convert {key} : ({ty}) -> {pairs}")
        key = e.let(f"stablehlo.reshape {key} : ({pairs}) -> {own}")
    return [key, bits]


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, shape: tuple, **p: Any
) -> tuple[list, list]:
    keys = move_axis(args[0], dims[0], 0)
    one = type_of(keys).shape[1:]
    first = reshape(slice_in_dim(keys, 0, 1, 0), shape=one)
    new, bits = op(first, shape=(mapped.size, *shape), **p)
    others = slice_in_dim(keys, 1, mapped.size, 0)
    return [concatenate(reshape(new, shape=(1, *one)), others, dimension=0), bits], [0, 0]


rng_bit_generator = Op(
    "rng_bit_generator",
    multiple=True,
    is_expensive=True,
    type_rule=_type,
    dims=lambda op, key, *, shape, **p: Dims(((None,),), ((None,), (None,) * len(shape))),
    lower=_lower,
    jvp=lambda op, primals, tangents, **p: (op(*primals, **p), [None, None]),
    batch=_batch,
)


# -- the functions of the generators --


def _drawn(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of the given shape for each key, drawn with the first key."""
    lead = type_of(key).shape[:-1]
    if 0 in (*lead, *shape):
        return broadcast_in_dim(np.zeros((), dtype)[()], shape=(*lead, *shape), dims=())
    for _ in lead:
        key = reshape(slice_in_dim(key, 0, 1, 0), shape=type_of(key).shape[1:])
    return rng_bit_generator(key, shape=(*lead, *shape), dtype=dtype, algorithm=0)[1]


def _halves(key: Any) -> Any:
    return reshape(key, shape=(*type_of(key).shape[:-1], 2, 2))


def seed(value: Any) -> Any:
    """The key of an integer seed: the key of threefry, twice."""
    half = threefry.seed(value)
    return concatenate(half, half, dimension=type_of(half).ndim - 1)


def bits(key: Any, shape: tuple[int, ...], width: int, partitionable: bool) -> Any:
    return _drawn(key, shape, threefry.UNSIGNED[width])


def split(key: Any, shape: tuple[int, ...], partitionable: bool) -> Any:
    lead = type_of(key).shape[:-1]
    new = threefry.split(_halves(key), shape, partitionable)  # u32[*lead, 2, *shape, 2]
    new = move_axis(new, len(lead), len(lead) + len(shape))
    return reshape(new, shape=(*lead, *shape, 4))


def fold_in(key: Any, data: Any) -> Any:
    shape = type_of(data).shape
    if shape:  # the same for both halves
        data = broadcast_in_dim(
            reshape(data, shape=(*shape, 1)), shape=(*shape, 2), dims=tuple(range(len(shape) + 1))
        )
    new = threefry.fold_in(_halves(key), data)
    return reshape(new, shape=(*type_of(new).shape[:-2], 4))


def unsafe_split(key: Any, shape: tuple[int, ...], partitionable: bool) -> Any:
    """Every tenth group of four words of random bits."""
    lead, count = type_of(key).shape[:-1], math.prod(shape)
    drawn = _drawn(key, (10 * count, 4), U32)
    if count:
        drawn = slice_in_dim(drawn, 0, 10 * count, len(lead), 10)
    return kept(reshape(drawn, shape=(*lead, *shape, 4)))


def unsafe_fold_in(key: Any, data: Any) -> Any:
    """Exclusive or with the tenth group of four words of bits that the number, as a seed,
    generates."""
    shape = type_of(data).shape
    drawn = slice_in_dim(_drawn(seed(data), (10, 4), U32), 9, 10, len(shape))
    pairs = zip(threefry.words(key), threefry.words(reshape(drawn, shape=(*shape, 4))), strict=True)
    return kept(threefry.join(*[bitwise_xor(*threefry.broadcast(x, y)) for x, y in pairs]))
