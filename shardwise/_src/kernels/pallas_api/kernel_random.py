"""Random numbers in kernels, from the generator that a core has.

    prng_seed(3, program_id(0))
    x = stateful_normal((8, 128))

The state of the generator (random/core_generator.py) is memory of the launch on CPUs, which keeps
its value from one program to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.program_frames import own_memory
from shardwise._src.kernels.spaces import SMEM
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.random import threefry
from shardwise._src.ops.random.bits import is_key, random_unwrap, unit_bits, unit_floats
from shardwise._src.ops.random.rejection import normal_floats
from shardwise._src.random.core_generator import STATE, U32, drawn, key_words, seeded
from shardwise._src.random.draws import bits as random_bits
from shardwise._src.random.draws import bits_sample
from shardwise._src.random.generators import TPU_KEYS, PRNGSpec
from shardwise._src.random.keys import wrap_key_data
from shardwise._src.random.sampler_arguments import float_dtype
from shardwise._src.refs.refs import put, value_of
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import cast

I32 = np.dtype("int32")


# -- the generator --


def prng_seed(*seeds: ArrayLike) -> None:
    """Sets the state of the generator, in a kernel.

    seeds: integers, which are combined: on TPUs one or two, such as the words of a key; elsewhere
      also one key of `to_pallas_key`, which is the same as its words.
    """
    ref = own_memory("prng_seed", "prng", SMEM(STATE.shape, U32))
    put(ref, seeded(value_of(ref), *_words(seeds)))


def _words(seeds: Sequence[Any]) -> list[Any]:
    values = [as_arraylike(x) for x in seeds]
    if len(values) == 1 and is_key(type_of(values[0])):
        return key_words(random_unwrap(values[0]))
    for t in map(type_of, values):
        if t.shape or not is_integer(t.dtype):
            raise TypeError(
                f"prng_seed: seeds are integers, or one key of shape (); got {t.str_short(True)}."
            )
    return [cast(x, I32, False) for x in values]


def prng_random_bits(shape: Sequence[int]) -> Array:
    """Random int32s, of which all bits are random, in a kernel."""
    return bitcast_convert_type(_bits("prng_random_bits", tuple(shape), 32), dtype=I32)


def _bits(who: str, shape: tuple[int, ...], width: int) -> Any:
    """Random unsigned integers of a number of bits."""
    ref = own_memory(who, "prng", SMEM(STATE.shape, U32))
    words = []
    for _ in range(2 if width == 64 else 1):
        state, found = drawn(value_of(ref), tuple(shape))
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


def to_pallas_key(key: ArrayLike) -> Array:
    """A key for the generator of TPUs, whose random numbers are drawn by it: `key<pl>[]`.

    Kernels take its words, in SMEM: `w = random.key_data(key)`, `prng_seed(w[0, 0], w[0, 1])`.

    key: a key, or an array of keys along one dimension.
    """
    t = type_of(key)
    make = partial(random_bits, shape=TPU_KEYS.key_shape, dtype=U32)
    several = t.ndim > (0 if is_key(t) else 1)
    return wrap_key_data((vmap(make) if several else make)(key), impl=PRNGSpec(TPU_KEYS))
