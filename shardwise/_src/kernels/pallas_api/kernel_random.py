"""Random numbers in kernels, from the generator that a core has.

    prng_seed(3, program_id(0))
    x = stateful_normal((8, 128))

TPUs have a generator in hardware; on CPUs its state is memory of the launch, which keeps its value
from one program to the next, and numbers are those of threefry. It is accessed by two ops:

    kernel_prng_seed(state, *words)     → the next state
    kernel_prng_bits(state, shape=…)    → the next state, u32[shape]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.control.call import described_call
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.program_frames import own_memory
from shardwise._src.kernels.spaces import SMEM
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape, zeros
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.families import lit
from shardwise._src.ops.random import threefry
from shardwise._src.ops.random.bits import is_key, random_unwrap, unit_bits, unit_floats
from shardwise._src.ops.random.rejection import normal_floats
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.random.draws import bits as random_bits
from shardwise._src.random.draws import bits_sample
from shardwise._src.random.generators import NAMED, PRNGImpl, PRNGSpec
from shardwise._src.random.keys import wrap_key_data
from shardwise._src.random.sampler_arguments import float_dtype
from shardwise._src.refs.refs import put, value_of
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import canonicalize, finfo, is_integer
from shardwise._src.values.convert import cast

U32, I32, F32 = np.dtype("uint32"), np.dtype("int32"), np.dtype("float32")
STATE = array_type((2,), U32)
SEED_ROUND = 13  # how far `fold_in` of a key for TPUs rotates

kernel_prng_seed = described_call("kernel_prng_seed")
kernel_prng_bits = described_call("kernel_prng_bits")
kernel_stochastic_round = described_call("kernel_stochastic_round")


# -- the generator --


def _seeded(state: Any, *words: Any) -> Any:
    def run(state: Any, *words: Any) -> list[Any]:
        state = zeros(STATE)
        for word in words:
            state = threefry.fold_in(state, convert_element_type(word, dtype=U32))
        return [state]

    program = program_of(run, (STATE, *map(type_of, words)), "prng_seed")
    return kernel_prng_seed(state, *words, program=program)[0]


def _drawn(state: Any, shape: tuple[int, ...]) -> list[Any]:
    def run(state: Any) -> list[Any]:
        both = threefry.split(state, (2,), True)
        new, own = [reshape(slice_in_dim(both, i, i + 1, 0), shape=(2,)) for i in range(2)]
        return [new, threefry.bits(own, shape, 32, True)]

    return kernel_prng_bits(state, program=program_of(run, (STATE,), "prng_bits"), shape=shape)


def prng_seed(*seeds: ArrayLike) -> None:
    """Sets the state of the generator, in a kernel.

    seeds: integers, which are combined; or one key of `to_pallas_key`.
    """
    ref = own_memory("prng_seed", "prng", SMEM(STATE.shape, U32))
    put(ref, _seeded(value_of(ref), *_words(seeds)))


def _words(seeds: Sequence[Any]) -> list[Any]:
    values = [as_arraylike(x) for x in seeds]
    if len(values) == 1 and is_key(type_of(values[0])):
        return _key_words(random_unwrap(values[0]))
    for t in map(type_of, values):
        if t.shape or not is_integer(t.dtype):
            raise TypeError(
                f"prng_seed: seeds are integers, or one key of shape (); got {t.str_short(True)}."
            )
    return [cast(x, I32, False) for x in values]


def _key_words(key: Any) -> list[Any]:
    """The scalars of the integers of one key."""
    return [*threefry.words(reshape(key, shape=(2,)))]


def prng_random_bits(shape: Sequence[int]) -> Array:
    """Random int32s, of which all bits are random, in a kernel."""
    return bitcast_convert_type(_bits("prng_random_bits", tuple(shape), 32), dtype=I32)


def _bits(who: str, shape: tuple[int, ...], width: int) -> Any:
    """Random unsigned integers of a number of bits."""
    ref = own_memory(who, "prng", SMEM(STATE.shape, U32))
    words = []
    for _ in range(2 if width == 64 else 1):
        state, found = _drawn(value_of(ref), tuple(shape))
        put(ref, state)
        words.append(found)
    if width == 64:
        return threefry.narrowed(words[0], words[1], 64)
    return convert_element_type(words[0], dtype=threefry.UNSIGNED[width])


# -- samplers --


def stateful_bits(shape: Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
    """Random unsigned integers in a kernel; see `random.bits`, whose dtypes it has."""
    chosen = bits_sample.dtype_of("stateful_bits", dtype)
    return _bits("stateful_bits", tuple(shape), chosen.itemsize * 8)


def stateful_uniform(
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Array:
    """Uniform floats in [minval, maxval), in a kernel."""
    unit = _unit("stateful_uniform", shape, dtype)
    low, high = [cast(as_arraylike(x), type_of(unit).dtype, False) for x in (minval, maxval)]
    return ew.max(low, ew.add(ew.mul(unit, ew.sub(high, low)), low))


def _unit(who: str, shape: Sequence[int], dtype: Any) -> Any:
    """Uniform floats in [0, 1)."""
    chosen = float_dtype(who, dtype)
    return unit_floats(_bits(who, tuple(shape), unit_bits(chosen)), chosen)


def stateful_bernoulli(p: ArrayLike = 0.5, shape: Sequence[int] | None = None) -> Array:
    """True with probability `p`, in a kernel. shape: that of `p` by default."""
    p = as_arraylike(p)
    sizes = type_of(p).shape if shape is None else shape
    return ew.lt(_unit("stateful_bernoulli", sizes, type_of(p).dtype), p)


def stateful_normal(shape: Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
    """Standard normal samples, in a kernel."""
    return normal_floats(_unit("stateful_normal", shape, dtype))


# -- keys --


def _seed(seed: Any) -> Any:
    return broadcast_in_dim(convert_element_type(seed, dtype=U32), shape=(1, 2), dims=())


def _split(key: Any, shape: tuple[int, ...]) -> Any:
    raise NotImplementedError(
        "Keys for the generator of TPUs cannot be split. Make others with `random.fold_in`."
    )


def _key_bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
    if width > 32:
        raise ValueError("Keys for the generator of TPUs give at most 32 bits.")
    found = _drawn(_seeded(zeros(STATE), *_key_words(key)), tuple(shape))[1]
    return convert_element_type(found, dtype=threefry.UNSIGNED[width])


def _fold_in(key: Any, data: Any) -> Any:
    """Adds the data to the second word, and mixes the words by a round of threefry."""
    a, b = _key_words(key)
    b = ew.add(b, convert_element_type(data, dtype=U32))
    a = ew.add(a, b)
    left, right = np.uint32(SEED_ROUND), np.uint32(32 - SEED_ROUND)
    turned = ew.bitwise_or(ew.shift_left(b, left), ew.shift_right_logical(b, right))
    return reshape(threefry.join(a, ew.bitwise_xor(turned, a)), shape=(1, 2))


TPU_KEYS = PRNGImpl((1, 2), _seed, _split, _key_bits, _fold_in, "pallas_tpu", "pl")
NAMED[TPU_KEYS.name] = TPU_KEYS


def to_pallas_key(key: ArrayLike) -> Array:
    """A key for the generator of TPUs, whose random numbers are drawn by it: `key<pl>[]`.

    key: a key, or an array of keys along one dimension.
    """
    t = type_of(key)
    make = partial(random_bits, shape=TPU_KEYS.key_shape, dtype=U32)
    several = t.ndim > (0 if is_key(t) else 1)
    return wrap_key_data((vmap(make) if several else make)(key), impl=PRNGSpec(TPU_KEYS))


# -- rounding --


def stochastic_round(x: ArrayLike, random_bits: ArrayLike, *, target_dtype: Any) -> Array:
    """float32s as narrower floats: one of the two next to each, the nearer the more likely.

    random_bits: uint32s, of x's shape. target_dtype: bfloat16 or a float8.
    """
    x, random = as_arraylike(x), as_arraylike(random_bits)
    types = t, other = type_of(x), type_of(random)
    dtype = canonicalize(target_dtype)
    if t.shape != other.shape or other.dtype != U32:
        raise ValueError(
            f"stochastic_round: random_bits are uint32s of x's shape, {list(t.shape)}; got "
            f"{other.str_short(True)}."
        )
    if t.dtype != F32 or not (dtype.name == "bfloat16" or dtype.name.startswith("float8")):
        raise ValueError(
            "stochastic_round: x is of float32, and the result of bfloat16 or a float8; got "
            f"{t.str_short(True)} and {dtype.name}."
        )
    program = program_of(lambda x, random: [_rounded(x, random, dtype)], types, "stochastic_round")
    return kernel_stochastic_round(x, random, program=program, dtype=dtype)[0]


def _rounded(x: Any, random: Any, dtype: Any) -> Any:
    """Adds random bits below those that the dtype has, and drops what is below. Numbers below its
    least normal one have fewer bits: they are rounded in a sum with it."""
    info = finfo(dtype)
    drop, least = 23 - info.nmant, lit(float(info.tiny), x)
    size = ew.abs(x)
    is_small = ew.lt(size, least)
    bits = bitcast_convert_type(ew.where(is_small, ew.add(size, least), size), dtype=U32)
    bits = ew.add(bits, ew.shift_right_logical(random, np.uint32(32 - drop)))
    kept = ew.bitwise_and(bits, np.uint32(2**32 - 2**drop))
    found = bitcast_convert_type(kept, dtype=F32)
    found = ew.where(is_small, ew.sub(found, least), found)
    found = ew.where(ew.lt(x, lit(0, x)), ew.neg(found), found)
    return convert_element_type(ew.where(ew.is_finite(x), found, x), dtype=dtype)
