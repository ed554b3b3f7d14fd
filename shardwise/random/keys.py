"""Keys: making, splitting and folding them.

There are two kinds: typed keys, `key<fry>[]`, and raw ones, `u32[2]`. Every function takes both and
returns keys of the kind that it was given.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise.base.config import enable_x64
from shardwise.core.fused import fused
from shardwise.core.infer import type_of
from shardwise.numpy.convert import cast
from shardwise.ops.random_bits import (
    GENERATORS,
    THREEFRY,
    random_fold_in,
    random_seed,
    random_unwrap,
    random_wrap,
    split_keys,
)
from shardwise.random.arguments import check_key, is_typed, typed_key, typed_keys
from shardwise.types.dtypes import KeyDType, is_integer

UINT32 = np.dtype(np.uint32)


def key_dtype(impl: Any = None) -> KeyDType:
    """The dtype of typed keys of a generator, by its name; None for the default, threefry2x32."""
    if impl is None:
        return THREEFRY
    if isinstance(impl, KeyDType):
        return impl
    if impl in GENERATORS:
        return KeyDType(impl, GENERATORS[impl].key_shape)
    known = ", ".join(map(repr, GENERATORS))
    raise ValueError(f"unknown generator {impl!r}. Known are: {known}.")


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A typed key, `key<fry>[]`, from an integer seed.

    seed:  an integer, or an integer array of shape ().
    impl:  name of the generator. `dtype` may say the same.
    """
    if dtype is not None and impl is not None:
        raise ValueError("key: give `impl` or `dtype`, not both.")
    chosen = key_dtype(dtype if dtype is not None else impl)
    return _key(_seed("key", seed), chosen, True)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A raw key, `u32[2]`, from an integer seed. New code is better off with `key`."""
    return _key(_seed("PRNGKey", seed), key_dtype(impl), False)


@fused(arrays=1)
def _key(seed: Any, dtype: KeyDType, typed: bool) -> Any:
    made = random_seed(seed, dtype=dtype)
    return made if typed else random_unwrap(made)


def _seed(name: str, seed: Any) -> Any:
    """A seed as an array or scalar; Python integers are cut to the width of the default integer."""
    if seed.__class__ is int:
        if not -(1 << 63) <= seed < 1 << 64:
            raise OverflowError(f"{name}: a seed must fit into 64 bits; got {seed}.")
        if enable_x64.value:
            return np.array(seed & ((1 << 64) - 1), np.uint64)[()]
        return np.uint32(seed & 0xFFFFFFFF) if seed >= 0 else np.int32(_wrapped(seed))
    if isinstance(seed, bool | np.bool_) or not (hasattr(seed, "dtype") or _is_index(seed)):
        if isinstance(seed, bool | np.bool_):
            return np.int32(seed)
        raise TypeError(f"{name}: a seed must be an integer; got {seed!r}.")
    if not hasattr(seed, "dtype"):
        return _seed(name, operator.index(seed))
    t = type_of(seed)
    if t.shape:
        raise TypeError(
            f"{name} takes one integer as its seed; got an array of type {t.str_short(True)}. Use "
            "vmap to make several keys."
        )
    if isinstance(t.dtype, KeyDType):
        raise TypeError(f"{name} makes a key from an integer; got a key, {t.str_short(True)}.")
    if not is_integer(t.dtype):
        raise TypeError(f"{name}: a seed must be an integer; got {t.str_short(True)}.")
    return seed
