"""Argument checks of the samplers: keys of both kinds, shapes, dtypes, parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.config import default_prng_impl, enable_custom_prng, legacy_prng_key
from shardwise._src.base.errors import ShapeError
from shardwise._src.base.warn import warn
from shardwise._src.core.infer import type_of
from shardwise._src.ops.random.bits import default_dtype, random_wrap
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import (
    ExtendedDType,
    KeyDType,
    canonicalize,
    check_user_dtype,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
)
from shardwise._src.types.symbolic import as_integer, broadcast_shapes
from shardwise._src.values.convert import broadcast_to, cast, reject_traced

# -- keys --


def check_key(name: str, key: Any) -> None:
    """Raises TypeError if `key` cannot be a key; `typed_key` checks its dtype and shape."""
    dtype = getattr(key, "dtype", None)
    if dtype.__class__ is not KeyDType:
        if dtype is None:
            raise TypeError(_key_message(name, f"{key!r} of type {type(key).__name__}"))
        if dtype == np.uint32:  # others are rejected in any case
            _check_legacy(name)


def _check_legacy(name: str) -> None:
    """Errors and warnings for raw keys, depending on the flags."""
    said = (
        f"{name} got a raw key, an array of integers. Make keys with `shardwise.random.key`, or "
        'set the flag "legacy_prng_key" to "allow".'
    )
    if legacy_prng_key.value == "error":
        raise ValueError(said)
    if legacy_prng_key.value == "warn":
        warn(said, UserWarning)
    elif enable_custom_prng.value:
        warn(
            f"{name} got a raw key, an array of integers; it is treated as a "
            f"{default_prng_impl.value} key. Make keys with `shardwise.random.key`.",
            FutureWarning,
        )


def typed_keys(name: str, keys: Any) -> Any:
    """Keys of either kind, in an array of any shape, as typed keys."""
    t = type_of(keys)
    if isinstance(t.dtype, KeyDType):
        return keys
    check_raw(name, t)
    return random_wrap(keys, dtype=default_dtype())


def check_raw(name: str, t: ArrayType) -> None:
    """Raises TypeError for a type that raw keys do not have."""
    wanted = default_dtype()
    if t.dtype != wanted.physical_dtype or t.shape[-1:] != wanted.physical_shape:
        raise TypeError(_key_message(name, f"an array of type {t.str_short(True)}"))


def typed_key(name: str, key: Any) -> Any:
    """One key of either kind as a typed key."""
    found = typed_keys(name, key)
    if type_of(found).shape:
        raise ValueError(
            f"{name} takes a single key; got keys in an array of type "
            f"{type_of(key).str_short(True)}. Use vmap over the keys."
        )
    return found


def is_typed(key: Any) -> bool:
    return isinstance(type_of(key).dtype, KeyDType)


def _key_message(name: str, given: str) -> str:
    made = default_dtype()
    return (
        f"{name} takes a key as its first argument, made by `shardwise.random.key` ({made}[]) or "
        f"`shardwise.random.PRNGKey` (u32[{made.physical_shape[0]}]); got {given}."
    )


# -- shapes --


def sizes(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints; an int means one dimension."""
    if shape.__class__ is tuple:
        for n in shape:
            if n.__class__ is not int or n < 0:
                break
        else:
            return shape
    try:
        found = tuple(as_integer(n) for n in shape) if np.iterable(shape) else (as_integer(shape),)
    except TypeError as error:
        for n in shape if isinstance(shape, tuple | list) else (shape,):
            reject_traced(n, f"{name}: shape", error)
        raise TypeError(f"{name}: shape must be integers; got {shape!r}.") from None
    if any(n < 0 for n in found):
        raise ShapeError(f"{name}: sizes must not be negative; got shape {found}.")
    return found


def common_sizes(name: str, shape: tuple[int, ...] | None, *params: Any) -> tuple[int, ...]:
    """The shape of the result: the given one, or the broadcast shape of the parameters."""
    shapes = [type_of(p).shape for p in params]
    try:
        found = broadcast_shapes(*shapes) if shape is None else broadcast_shapes(shape, *shapes)
    except ValueError:
        found = None
    if found is None or (shape is not None and found != shape):
        wanted = "together" if shape is None else f"to shape {shape}"
        shown = ", ".join(map(str, shapes))
        raise ValueError(f"{name}: parameters of shapes {shown} do not broadcast {wanted}.")
    return found


def row_sizes(name: str, shape: tuple[int, ...] | None, *params: Any) -> tuple[int, ...]:
    """The shape of vectors with the parameters' last dimension, from that without it."""
    t = type_of(params[-1])
    if not t.shape:
        last = "alpha" if name == "dirichlet" else "p"
        raise ValueError(
            f"{name}: {last} must have at least one dimension; got {t.str_short(True)}."
        )
    return common_sizes(name, None if shape is None else (*shape, t.shape[-1]), params[-1])


# -- dtypes --


def float_dtype(name: str, dtype: Any) -> Any:
    """The canonical dtype of floating-point samples; None for the default."""
    if dtype is None:
        return canonicalize(float)
    found = check_user_dtype(dtype, name)
    if not is_float(found):
        raise ValueError(f"{name}: dtype must be a floating-point type; got {found}.")
    return found


def inexact_dtype(name: str, dtype: Any) -> Any:
    if dtype is None:
        return canonicalize(float)
    found = check_user_dtype(dtype, name)
    if not is_inexact(found):
        raise ValueError(f"{name}: dtype must be a floating-point or complex type; got {found}.")
    return found


def int_dtype(name: str, dtype: Any) -> Any:
    if dtype is None:
        return canonicalize(int)
    found = check_user_dtype(dtype, name)
    if not is_integer(found):
        raise TypeError(f"{name}: dtype must be an integer type; got {found}.")
    return found


# -- parameters --


def parameter(name: str, x: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A real parameter in the dtype and shape of the samples; scalars keep their shape."""
    t = type_of(x)
    if isinstance(t.dtype, ExtendedDType) or (is_complex(t.dtype) and not is_complex(dtype)):
        raise TypeError(f"{name}: parameters must be real; got {t.str_short(True)}.")
    x = cast(x, dtype)
    return broadcast_to(x, shape) if t.shape else x
