"""The generator of random numbers that a core of TPUs has, and keys for it: `key<pl>[]`.

TPUs have it in hardware; elsewhere its state is u32[2], and numbers are those of threefry. Kernels
use two ops, and the functions of keys do on the state of a key:

    kernel_prng_seed(state, *words)     → the next state
    kernel_prng_bits(state, shape=…)    → the next state, u32[shape]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.control.call import described_call
from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape, zeros
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.random import threefry
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import array_type

NAME, TAG, KEY_SHAPE = "pallas_tpu", "pl", (1, 2)
U32 = np.dtype("uint32")
STATE = array_type((2,), U32)
SEED_ROUND = 13  # how far `fold_in` of a key rotates

kernel_prng_seed = described_call("kernel_prng_seed")
kernel_prng_bits = described_call("kernel_prng_bits")


def seeded(state: Any, *words: Any) -> Any:
    """The state after the generator is seeded by scalars of integers."""

    def run(state: Any, *words: Any) -> list[Any]:
        state = zeros(STATE)
        for word in words:
            state = threefry.fold_in(state, convert_element_type(word, dtype=U32))
        return [state]

    program = program_of(run, (STATE, *map(type_of, words)), "prng_seed")
    return kernel_prng_seed(state, *words, program=program)[0]


def drawn(state: Any, shape: tuple[int, ...]) -> list[Any]:
    """The next state, and random u32[shape]."""

    def run(state: Any) -> list[Any]:
        both = threefry.split(state, (2,), True)
        new, own = [reshape(slice_in_dim(both, i, i + 1, 0), shape=(2,)) for i in range(2)]
        return [new, threefry.bits(own, shape, 32, True)]

    return kernel_prng_bits(state, program=program_of(run, (STATE,), "prng_bits"), shape=shape)


# -- keys: u32[1,2] --


def key_words(key: Any) -> list[Any]:
    """The scalars of the integers of one key."""
    return [*threefry.words(reshape(key, shape=(2,)))]


def seed_of(value: Any) -> Any:
    return broadcast_in_dim(convert_element_type(value, dtype=U32), shape=KEY_SHAPE, dims=())


def split(key: Any, shape: tuple[int, ...]) -> Any:
    raise NotImplementedError(
        "Keys for the generator of TPUs cannot be split. Make others with `random.fold_in`."
    )


def bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
    if width > 32:
        raise ValueError("Keys for the generator of TPUs give at most 32 bits.")
    found = drawn(seeded(zeros(STATE), *key_words(key)), tuple(shape))[1]
    return convert_element_type(found, dtype=threefry.UNSIGNED[width])


def fold_in(key: Any, data: Any) -> Any:
    """Adds the data to the second word, and mixes the words by a round of threefry."""
    a, b = key_words(key)
    b = ew.add(b, convert_element_type(data, dtype=U32))
    a = ew.add(a, b)
    left, right = np.uint32(SEED_ROUND), np.uint32(32 - SEED_ROUND)
    turned = ew.bitwise_or(ew.shift_left(b, left), ew.shift_right_logical(b, right))
    return reshape(threefry.join(a, ew.bitwise_xor(turned, a)), shape=KEY_SHAPE)
