"""Ops on typed PRNG keys: creating, splitting and folding them, and random bits.

A key array has the dtype `key<fry>` and the shape of its keys; each key is a small array of
integers (`types/extended.py`). Every op here processes each key of an array independently, so that
batching only renames dimensions, and sharding along keys needs no communication.

    key = random_seed(0, dtype=THREEFRY)        # key<fry>[]
    keys = random_split(key, shape=(8,))        # key<fry>[8]
    random_bits(keys, shape=(3,), bit_width=32)     # u32[8,3]

A generator is a record of functions on integers; `GENERATORS` maps names to generators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.config import default_prng_impl, enable_x64, threefry_partitionable
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading, move_axis, reshape
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.elementwise import sub
from shardwise._src.ops.families import elementwise_dims
from shardwise._src.ops.logical import bitwise_or, shift_right_logical
from shardwise._src.ops.random import rng, threefry
from shardwise._src.ops.random.counters import PHILOX2, PHILOX4, THREEFRY4
from shardwise._src.ops.rules import batch_in_place, same_value
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import KeyDType, finfo, is_integer
from shardwise._src.types.symbolic import broadcast_shapes


@dataclass(frozen=True)
class Generator:
    """A random number generator, on keys as u32[..., *key_shape].

    seed(value) → key;  fold_in(key, data) → key;  split(key, shape, partitionable) → keys;
    bits(key, shape, width, partitionable) → unsigned integers. Results have the leading dimensions
    of the key, then `shape`; those of key and data of `fold_in` broadcast.

    each: whether an array of keys returns the values that its keys return individually.
    """

    name: str
    key_shape: tuple[int, ...]
    seed: Callable
    split: Callable
    fold_in: Callable
    bits: Callable
    each: bool = True


def _of(name: str, functions: Any, key_shape: tuple[int, ...], **others: Any) -> Generator:
    """A generator with the functions of a module, or of `Counters`. others: fields that differ."""
    own = {
        "seed": functions.seed,
        "split": functions.split,
        "fold_in": functions.fold_in,
        "bits": functions.bits,
    }
    return Generator(name, key_shape, **own | others)


GENERATORS = {
    found.name: found
    for found in (
        _of("threefry2x32", threefry, threefry.KEY_SHAPE),
        _of("threefry4x32", THREEFRY4, (THREEFRY4.key,)),
        _of("philox2x32", PHILOX2, (PHILOX2.key,)),
        _of("philox4x32", PHILOX4, (PHILOX4.key,)),
        _of("rbg", rng, rng.KEY_SHAPE, each=False),
        _of(
            "unsafe_rbg",
            rng,
            rng.KEY_SHAPE,
            split=rng.unsafe_split,
            fold_in=rng.unsafe_fold_in,
            each=False,
        ),
    )
}
THREEFRY = KeyDType("threefry2x32", threefry.KEY_SHAPE)


def generator(dtype: KeyDType) -> Generator:
    return GENERATORS[dtype.impl_name] if dtype.own is None else dtype.own


def default_dtype() -> KeyDType:
    """The key dtype of the generator that the flag `default_prng_impl` names."""
    name = default_prng_impl.value
    return THREEFRY if name == THREEFRY.impl_name else KeyDType(name, GENERATORS[name].key_shape)


def is_key(t: ArrayType) -> bool:
    return isinstance(t.dtype, KeyDType)


def _check_keys(name: str, t: ArrayType) -> None:
    if not is_key(t):
        raise TypeError(f"[{name}] takes an array of keys; got {t.str_short(True)}.")


def _check_shape(name: str, shape: tuple) -> None:
    if any(n < 0 for n in shape):
        raise ValueError(f"[{name}] sizes must not be negative; got shape {shape}.")


def _key_op(name: str, **fields: Any) -> Op:
    """An op on keys."""
    return Op(name, elements=Elements.KNOWN, is_expensive=True, **fields)


# -- random_wrap, random_unwrap: keys from their integers and back --


def _wrap_type(op: Op, x: ArrayType, *, dtype: KeyDType) -> ArrayType:
    depth = len(dtype.physical_shape)
    if x.dtype != dtype.physical_dtype or x.shape[x.ndim - depth :] != dtype.physical_shape:
        raise TypeError(
            f"[random_wrap] the data of {dtype.impl_name} keys must be uint32 of shape (..., "
            f"{', '.join(map(str, dtype.physical_shape))}); got {x.str_short(True)}."
        )
    return array_type(x.shape[: x.ndim - depth], dtype)


def _wrap_dims(op: Op, x: ArrayType, *, dtype: KeyDType) -> Dims:
    names = letters(x.ndim - len(dtype.physical_shape))
    return Dims(((*names, *[None] * len(dtype.physical_shape)),), (names,))


random_wrap = _key_op(
    "random_wrap", type_rule=_wrap_type, dims=_wrap_dims, lower=same_value, batch=batch_leading
)


def _unwrap_type(op: Op, keys: ArrayType) -> ArrayType:
    _check_keys("random_unwrap", keys)
    return words_of(keys)


def words_of(keys: ArrayType) -> ArrayType:
    """The type of the integers of keys."""
    return array_type(keys.shape + keys.dtype.physical_shape, keys.dtype.physical_dtype)


def _unwrap_dims(op: Op, keys: ArrayType) -> Dims:
    names = letters(keys.ndim)
    return Dims((names,), ((*names, *[None] * len(keys.dtype.physical_shape)),))


random_unwrap = _key_op(
    "random_unwrap",
    type_rule=_unwrap_type,
    dims=_unwrap_dims,
    lower=same_value,
    batch=batch_in_place,
)


# -- random_seed: one key for each integer --


def _seed_type(op: Op, seeds: ArrayType, *, dtype: KeyDType) -> ArrayType:
    if not is_integer(seeds.dtype):
        raise TypeError(f"[random_seed] seeds must be integers; got {seeds.str_short(True)}.")
    return array_type(seeds.shape, dtype)


random_seed = _key_op(
    "random_seed",
    type_rule=_seed_type,
    dims=elementwise_dims,
    lower=lambda op, e, ins, outs, seeds, *, dtype: e.via(generator(dtype).seed, ins, seeds)[0],
    batch=batch_in_place,
)


# -- random_fold_in: a key for each key and uint32 --


def _fold_type(op: Op, keys: ArrayType, data: ArrayType) -> ArrayType:
    _check_keys("random_fold_in", keys)
    if data.dtype != threefry.U32:
        raise TypeError(f"[random_fold_in] data must be uint32; got {data.str_short(True)}.")
    fits = not (keys.ndim and data.ndim) or (
        keys.ndim == data.ndim
        and all(n == m or 1 in (n, m) for n, m in zip(keys.shape, data.shape, strict=True))
    )
    if not fits:
        raise TypeError(
            f"[random_fold_in] keys and data must have equal shapes, up to sizes of 1; got "
            f"{join_types((keys, data))}."
        )
    return array_type(broadcast_shapes(keys.shape, data.shape), keys.dtype)


def _fold_dims(op: Op, keys: ArrayType, data: ArrayType) -> Dims:
    full = broadcast_shapes(keys.shape, data.shape)
    names = letters(len(full))
    given = [
        tuple(name if n == m else None for name, n, m in zip(names, t.shape, full, strict=False))
        for t in (keys, data)
    ]
    return Dims(tuple(given), (names,))


def _fold_lower(op: Op, e: Any, ins: Any, outs: Any, keys: str, data: str) -> str:
    return e.via(generator(ins[0].dtype).fold_in, (words_of(ins[0]), ins[1]), keys, data)[0]


def _fold_batch(op: Op, mapped: Any, args: Any, dims: Any) -> tuple[Any, int]:
    """Unmapped operands get a dimension of size 1, not copies: `unsafe_rbg` would draw for each
    copy."""
    types = [type_of(x) for x in args]
    forms = {(t.shape, d) for t, d in zip(types, dims, strict=True) if t.shape}
    if len(forms) == 1:
        return op(*args), next(d for d in dims if d is not None)
    rank = max(t.ndim + (d is None) for t, d in zip(types, dims, strict=True))
    return op(
        *[_leading(x, t.shape, d, rank) for x, t, d in zip(args, types, dims, strict=True)]
    ), 0


def _leading(x: Any, shape: tuple, dim: int | None, rank: int) -> Any:
    """The value with the mapped dimension first, and `rank` dimensions unless it is a scalar."""
    if dim is None:
        return reshape(x, shape=(1, *shape)) if shape else x
    x = move_axis(x, dim, 0)
    return reshape(x, shape=(shape[dim],) + (1,) * (rank - 1)) if len(shape) == 1 < rank else x


random_fold_in = _key_op(
    "random_fold_in", type_rule=_fold_type, dims=_fold_dims, lower=_fold_lower, batch=_fold_batch
)


# -- random_split, random_bits: an array of keys, or of unsigned integers, for each key --


def _fanned_dims(op: Op, keys: ArrayType, *, shape: tuple, **params: Any) -> Dims:
    names = letters(keys.ndim + len(shape))
    return Dims((names[: keys.ndim],), (names,))


def _split_type(op: Op, keys: ArrayType, *, shape: tuple, partitionable: bool = True) -> ArrayType:
    _check_keys("random_split", keys)
    _check_shape("random_split", shape)
    return array_type(keys.shape + shape, keys.dtype)


def _split_lower(op: Op, e: Any, ins: Any, outs: Any, keys: str, **p: Any) -> str:
    how = {"partitionable": True, **p}
    return e.via(generator(ins[0].dtype).split, (words_of(ins[0]),), keys, **how)[0]


random_split = _key_op(
    "random_split",
    consumes_key=True,
    type_rule=_split_type,
    dims=_fanned_dims,
    lower=_split_lower,
    batch=batch_in_place,
)


def _bits_type(
    op: Op, keys: ArrayType, *, shape: tuple, bit_width: int, partitionable: bool = True
) -> ArrayType:
    _check_keys("random_bits", keys)
    _check_shape("random_bits", shape)
    if bit_width not in threefry.UNSIGNED:
        raise TypeError(f"[random_bits] bit_width must be 8, 16, 32 or 64; got {bit_width}.")
    return array_type(keys.shape + shape, threefry.UNSIGNED[bit_width])


def _bits_lower(op: Op, e: Any, ins: Any, outs: Any, keys: str, *, bit_width: int, **p: Any) -> str:
    how = {"partitionable": True, **p, "width": bit_width}
    return e.via(generator(ins[0].dtype).bits, (words_of(ins[0]),), keys, **how)[0]


random_bits = _key_op(
    "random_bits",
    consumes_key=True,
    type_rule=_bits_type,
    dims=_fanned_dims,
    lower=_bits_lower,
    batch=batch_in_place,
)


# -- in the form that the flag `threefry_partitionable` selects --


def drawing_form() -> dict[str, bool]:
    """The parameters of an op that draws."""
    return {} if threefry_partitionable.value else {"partitionable": False}


def split_keys(keys: Any, shape: tuple[int, ...]) -> Any:
    return random_split(keys, shape=shape, **drawing_form())


def draw_bits(keys: Any, shape: tuple[int, ...], width: int) -> Any:
    return random_bits(keys, shape=shape, bit_width=width, **drawing_form())


# -- from bits to floats --


def unit_bits(dtype: Any) -> int:
    """How many random bits one float in [0, 1) needs."""
    info = finfo(dtype)
    return 8 if info.nmant < 8 else info.bits


def unit_floats(bits: Any, dtype: Any) -> Any:
    """Floats in [0, 1) from unsigned integers of `unit_bits(dtype)` bits: the upper bits become
    the mantissa of a float in [1, 2), from which 1 is subtracted. The results are multiples of the
    machine epsilon.
    """
    info = finfo(dtype)
    if info.bits not in threefry.UNSIGNED:
        raise TypeError(f"random floats must have 8, 16, 32 or 64 bits; got {dtype}.")
    unsigned = threefry.UNSIGNED[info.bits]
    width = unit_bits(dtype)
    if width != info.bits:
        bits = convert_element_type(bits, dtype=unsigned)
    one = np.ones((), dtype).view(unsigned)[()]
    with enable_x64(True):  # so that 64-bit literals are not narrowed
        mantissa = shift_right_logical(bits, unsigned.type(width - info.nmant))
        one_to_two = bitcast_convert_type(bitwise_or(mantissa, one), dtype=dtype)
        return sub(one_to_two, np.ones((), dtype)[()])
