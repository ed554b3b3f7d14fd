"""Samples of ops on PRNG keys. The references are jax's, whose streams are equal."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np

from shardwise._src.ops.random.bits import THREEFRY
from shardwise.testing import Sample

KEYS = np.arange(12, dtype=np.uint32).reshape(6, 2) * 77777
SEEDS = np.array([0, 1, -1, 42, 7, 2**31 - 1], np.int32)
WORDS = KEYS.reshape(2, 6) + np.uint32(5)
SEED = np.array([1, 2, 3, 4], np.uint32)


def _typed(keys: np.ndarray) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(keys))


def _each(fun: Any, *operands: np.ndarray) -> np.ndarray:
    """`fun` on each key, with the keys' own operands."""
    rows = [fun(_typed(k), *rest) for k, *rest in zip(*operands, strict=True)]
    return np.stack(
        [
            np.asarray(
                jax.random.key_data(r) if jnp.issubdtype(r.dtype, jax.dtypes.prng_key) else r
            )
            for r in rows
        ]
    )


def _bits(width: int, shape: tuple, **more: Any) -> Sample:
    dtype = f"uint{width}"
    return Sample(
        (KEYS,),
        {"shape": shape, "bit_width": width},
        lambda keys: _each(lambda k: jax.random.bits(k, shape, dtype), keys),
        keys=(0,),
        **more,
    )


LOOP = "a draw is not a smooth function of its parameter; a loop ends when all draws are done"


def _draw(*parameters: Any, **params: Any) -> Sample:
    """Tests of shardwise.random compare the values with jax's."""
    return Sample(
        (KEYS, *map(np.float32, parameters)),
        params,
        keys=(0,),
        order=0,
        heavy=True,
        communicates=True,
        why=LOOP,
    )


def _hash(*words: np.ndarray) -> list[np.ndarray]:
    k1, k2, a, b = (w.ravel() for w in np.broadcast_arrays(*words))
    rows = [
        jax.extend.random.threefry_2x32(jnp.stack([i, j]), jnp.stack([x, y]))
        for i, j, x, y in zip(k1, k2, a, b, strict=True)
    ]
    shape = np.broadcast_shapes(*[w.shape for w in words])
    return [np.stack([np.asarray(r[n]) for r in rows]).reshape(shape) for n in range(2)]


FIRST = "all bits are drawn by the first key, as in jax"


SAMPLES = {
    "random_wrap": [
        Sample(
            (KEYS,),
            {"dtype": THREEFRY},
            lambda k: k,
            unnamed=((0, 1),),
            why="an element of a key array is a whole key",
        )
    ],
    "random_unwrap": [Sample((KEYS,), {}, lambda k: k, keys=(0,))],
    "random_seed": [
        Sample(
            (SEEDS,),
            {"dtype": THREEFRY},
            lambda s: np.stack([np.asarray(jax.random.PRNGKey(int(i))) for i in s]),
        )
    ],
    "random_fold_in": [
        Sample((KEYS, KEYS[:, 1]), {}, lambda k, d: _each(jax.random.fold_in, k, d), keys=(0,)),
        Sample(
            (KEYS, np.uint32(3)),
            {},
            lambda k, d: _each(jax.random.fold_in, k, [d] * 6),
            keys=(0,),
            placed=False,
        ),
    ],
    "random_split": [
        Sample((KEYS,), {"shape": (3,)}, lambda k: _each(jax.random.split, k, [3] * 6), keys=(0,)),
        Sample(
            (KEYS[0],),
            {"shape": (2, 2)},
            lambda k: jax.random.key_data(jax.random.split(_typed(k), (2, 2))),
            keys=(0,),
            placed=False,
        ),
        Sample((KEYS,), {"shape": (3,), "partitionable": False}, keys=(0,), placed=False),
    ],
    "random_bits": [
        _bits(32, (2, 4)),
        _bits(8, (3,), placed=False),
        _bits(16, (3,), placed=False),
        _bits(32, (), placed=False),
        Sample(
            (KEYS,),
            {"shape": (3,), "bit_width": 16, "partitionable": False},
            keys=(0,),
            placed=False,
        ),
    ],
    "random_gamma": [_draw([0.3, 0.7, 1.0, 2.0, 5.0, 9.0], log_space=False)],
    "random_poisson": [_draw([0.0, 1.0, 5.0, 12.0, 30.0, 3.0], dtype=np.dtype(np.int32))],
    "random_binomial": [_draw([1, 5, 20, 60, 90, 7], [0.5, 0.1, 0.3, 0.4, 0.45, 0.2])],
    "rng_bit_generator": [
        Sample(
            (SEED,),
            {"shape": (3, 4), "dtype": np.dtype(width), "algorithm": algorithm},
            lambda key, width=width, algorithm=algorithm: list(
                jax.lax.rng_bit_generator(key, (3, 4), width, jax.lax.RandomAlgorithm(algorithm))
            ),
            batched=False,
            why=FIRST,
        )
        for width, algorithm in [("uint32", 0), ("uint8", 1), ("uint16", 2)]
    ],
    "threefry2x32": [Sample((np.uint32(3), np.uint32(4), WORDS, WORDS[::-1]), {}, _hash)],
    # Test vectors are in tests/random.
    "threefry4x32": [Sample((WORDS, *[np.uint32(7)] * 3, WORDS[::-1], *[np.uint32(2)] * 3))],
    "philox2x32": [Sample((np.uint32(3), WORDS, WORDS[::-1]))],
    "philox4x32": [Sample((np.uint32(3), WORDS, WORDS[::-1], *[np.uint32(7)] * 3))],
}
