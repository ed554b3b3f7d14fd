"""Keys: creating, splitting and folding in data.

There are two kinds: typed keys, such as `key<fry>[]`, and raw keys, `u32[2]`. Every function
accepts both and returns keys of the same kind as its input.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise._src.base.config import (
    debug_key_reuse,
    default_prng_impl,
    enable_custom_prng,
    enable_x64,
    random_seed_offset,
)
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.ops.elementwise import add
from shardwise._src.ops.families import lit
from shardwise._src.ops.random.bits import (
    random_fold_in,
    random_seed,
    random_unwrap,
    random_wrap,
    split_keys,
)
from shardwise._src.random.generators import Generated, PRNGSpec, key_dtype
from shardwise._src.random.sampler_arguments import (
    check_key,
    check_raw,
    is_typed,
    sizes,
    typed_key,
    typed_keys,
)
from shardwise._src.types.annotations import Array, ArrayLike, Ints
from shardwise._src.types.dtypes import KeyDType, is_bool, is_integer
from shardwise._src.values.convert import cast

UINT32 = np.dtype(np.uint32)


def key(seed: ArrayLike, *, impl: Generated = None, dtype: str | KeyDType | None = None) -> Array:
    """A typed key, such as `key<fry>[]`, from an integer seed.

    seed:  an integer, or an integer array of shape ().
    impl:  the generator, by its name or as accepted by `key_dtype`; by default the generator of
           the flag `default_prng_impl`. `dtype` is an alternative.
    """
    if dtype is not None and impl is not None:
        raise ValueError("key: pass `impl` or `dtype`, not both.")
    chosen = key_dtype(dtype if dtype is not None else impl)
    return _key(_seed("key", seed), chosen, True)


def PRNGKey(seed: ArrayLike, *, impl: Generated = None) -> Array:
    """A raw key, `u32[2]`, from an integer seed. New code should use `key`.

    Such a key is assumed to belong to the generator of the flag `default_prng_impl`.
    """
    return _key(_seed("PRNGKey", seed), key_dtype(impl), enable_custom_prng.value)


@fused(arrays=1)
def _key(seed: Any, dtype: KeyDType, typed: bool) -> Any:
    made = random_seed(seed, dtype=dtype)
    return made if typed else random_unwrap(made)


def _seed(name: str, seed: Any) -> Any:
    """A seed as an array or scalar; Python integers are truncated to the default integer width."""
    if not hasattr(seed, "dtype"):
        try:
            value = operator.index(seed)
        except TypeError:
            raise TypeError(f"{name}: a seed must be an integer; got {seed!r}.") from None
        value += random_seed_offset.value
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(
                f"{name}: a seed must fit into a signed 64-bit integer; got {value}."
            )
        if enable_x64.value:
            return np.uint64(value & 0xFFFFFFFFFFFFFFFF)
        return np.uint32(value & 0xFFFFFFFF)
    t = type_of(seed)
    if isinstance(t.dtype, KeyDType):
        raise TypeError(f"{name} makes a key from an integer; got a key, {t.str_short(True)}.")
    if t.shape:
        raise TypeError(
            f"{name} takes one integer as its seed; got an array of type {t.str_short(True)}. Use "
            "vmap to make several keys."
        )
    if is_bool(t.dtype):
        return cast(seed, UINT32)
    if not is_integer(t.dtype):
        raise TypeError(f"{name}: a seed must be an integer; got {t.str_short(True)}.")
    offset = random_seed_offset.value
    return add(seed, lit(offset, seed)) if offset else seed


# -- new keys from existing ones --


def split(key: ArrayLike, num: Ints = 2) -> Array:
    """New keys from one key, independent of it and of each other.

    num: the number of keys, an integer or a shape.
    Returns an array of the given number or shape of keys, of the same kind as `key`.
    """
    check_key("split", key)
    if num.__class__ is int and num == 2:
        return _split_in_two(key)
    return _split(key, sizes("split", num))


@fused(arrays=1)
def _split(key: Any, shape: tuple) -> Any:
    new = split_keys(typed_key("split", key), shape)
    return new if is_typed(key) or enable_custom_prng.value else random_unwrap(new)


@fused(arrays=1)
def _split_in_two(key: Any) -> Any:
    """The usual case: dispatch is fastest without static arguments."""
    return _split(key, (2,))


def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key derived from a key and a 32-bit integer, such as a step or a device number."""
    check_key("fold_in", key)
    if not hasattr(data, "dtype"):
        try:
            value = operator.index(data)  # pyright: ignore[reportArgumentType] (in a try)
        except TypeError:
            raise TypeError(f"fold_in: data must be an integer; got {data!r}.") from None
        if not 0 <= value < 1 << 32:
            raise OverflowError(
                f"fold_in: data must fit into an unsigned 32-bit integer; got {value}."
            )
        data = np.uint32(value)
    return _fold_in(key, data)


@fused(arrays=2)
def _fold_in(key: Any, data: Any) -> Any:
    t = type_of(data)
    if t.shape or isinstance(t.dtype, KeyDType):
        raise TypeError(
            f"fold_in takes one integer; got {t.str_short(True)}. Use vmap to fold in several."
        )
    new = random_fold_in(typed_key("fold_in", key), cast(data, UINT32))
    return new if is_typed(key) or enable_custom_prng.value else random_unwrap(new)


# -- the data of a key --


def key_data(keys: ArrayLike) -> Array:
    """The integers of keys: `key<fry>[...]` → `u32[..., 2]`. Raw keys are returned unchanged."""
    check_key("key_data", keys)
    return _key_data(keys)


@fused(arrays=1)
def _key_data(keys: Any) -> Any:
    return random_unwrap(typed_keys("key_data", keys))


def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: Generated = None, dtype: str | KeyDType | None = None
) -> Array:
    """Typed keys from the given integers, such as `u32[..., 2]` → `key<fry>[...]`.

    impl, dtype: the generator, as for `key`.
    """
    if dtype is not None and impl is not None:
        raise ValueError("wrap_key_data: pass `impl` or `dtype`, not both.")
    return _wrap(key_bits_array, key_dtype(dtype if dtype is not None else impl))


@fused(arrays=1)
def _wrap(data: Any, dtype: KeyDType) -> Any:
    return random_wrap(data, dtype=dtype)


def key_impl(keys: ArrayLike) -> str | PRNGSpec:
    """The generator of keys: its name, or the result of `define_prng_impl`."""
    check_key("key_impl", keys)
    t = type_of(keys)
    if isinstance(t.dtype, KeyDType):
        return t.dtype.impl_name if t.dtype.own is None else PRNGSpec(t.dtype.own.impl)
    check_raw("key_impl", t)
    return default_prng_impl.value


def clone(key: ArrayLike) -> Array:
    """The key itself; tells readers, and checks of key reuse, that the reuse is intentional."""
    check_key("clone", key)
    if debug_key_reuse.value and is_typed(key):
        return _clone(key)
    return check_alive(key)


@fused(arrays=1)
def _clone(key: Any) -> Any:
    return random_wrap(random_unwrap(key), dtype=type_of(key).dtype)
