"""Bits, uniform floats and integers, and samples that use one uniform sample directly."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import (
    add,
    bitwise_and,
    clamp,
    gt,
    le,
    lt,
    max,
    mul,
    rem,
    sub,
    where,
)
from shardwise._src.ops.families import lit, lit_of
from shardwise._src.ops.random.bits import draw_bits, split_keys, unit_bits, unit_floats
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.random.sampler import sampler
from shardwise._src.random.sampler_arguments import common_sizes, int_dtype, parameter
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.dtypes import (
    canonicalize,
    check_user_dtype,
    finfo,
    iinfo,
    is_float,
    is_integer,
    is_unsigned,
)
from shardwise._src.values.convert import broadcast_to, cast

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


def keys_of(key: Any, count: int) -> list[Any]:
    """The keys that result from splitting one typed key."""
    new = split_keys(key, (count,))
    return [reshape(slice_in_dim(new, i, i + 1, 0), shape=()) for i in range(count)]


# -- bits --


def bits(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Uniform random bits, as unsigned integers.

    dtype: an unsigned integer type; uint32 by default, uint64 if x64 is enabled.
    """
    return bits_sample.draw(out_sharding, key, shape, dtype)


def _unsigned(name: str, dtype: Any) -> Any:
    chosen = canonicalize(np.uint64) if dtype is None else check_user_dtype(dtype, name)
    if not is_unsigned(chosen) or chosen.itemsize * 8 not in (8, 16, 32, 64):
        raise ValueError(f"{name}: dtype must be uint8, uint16, uint32 or uint64; got {chosen}.")
    return chosen


@sampler(_unsigned)
def bits_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    return draw_bits(key, shape, dtype.itemsize * 8)


# -- floats --


def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Uniform floats in [minval, maxval).

    minval, maxval: real, with shapes that broadcast to `shape`.
    """
    if minval.__class__ is float and maxval.__class__ is float and minval == 0 and maxval == 1:
        return unit_sample.draw(out_sharding, key, shape, dtype)
    return uniform_sample.draw(out_sharding, key, minval, maxval, shape, dtype)


@sampler(name="uniform")
def unit_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    """Uniform floats in [0, 1)."""
    return unit_floats(draw_bits(key, shape, unit_bits(dtype)), dtype)


@sampler()
def uniform_sample(key: Any, low: Any, high: Any, shape: tuple, dtype: Any) -> Any:
    """Uniform floats in [low, high)."""
    common_sizes("uniform", shape, low, high)
    low, high = [parameter("uniform", x, dtype, shape) for x in (low, high)]
    unit = unit_sample(key, shape, dtype)
    return max(low, add(mul(unit, sub(high, low)), low))


def bernoulli(
    key: ArrayLike,
    p: ArrayLike = 0.5,
    shape: ShapeLike | None = None,
    mode: str = "low",
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """True with probability `p`.

    p:     floating-point, with a shape that broadcasts to `shape`.
    shape: the shape of `p` by default.
    mode:  "high" draws twice as many bits, which matters for `p` below about 1e-7 in float32.
    """
    if mode not in ("low", "high"):
        raise ValueError(f"bernoulli: mode must be 'low' or 'high'; got {mode!r}.")
    t = type_of(p)
    if not is_float(t.dtype):
        raise TypeError(f"bernoulli: p must be floating-point; got {t.str_short(True)}.")
    return bernoulli_sample.draw(out_sharding, key, p, shape, t.dtype, mode=mode)


@sampler(lambda name, dtype: dtype, common_sizes, cast=True)
def bernoulli_sample(key: Any, p: Any, shape: tuple, dtype: Any, mode: str = "low") -> Any:
    if mode == "low":
        return lt(unit_sample(key, shape, dtype), p)
    both = unit_sample(key, (2, *shape), dtype)
    coarse, fine = [reshape(slice_in_dim(both, i, i + 1, 0), shape=shape) for i in range(2)]
    fine = mul(fine, lit(2.0 ** -finfo(dtype).nmant, fine))
    return lt(fine, sub(p, coarse))


# -- integers --


def randint(
    key: ArrayLike,
    shape: ShapeLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Uniform integers in [minval, maxval); minval if that interval is empty.

    minval, maxval: integers of shapes that broadcast to `shape`; clipped to the range of `dtype`.
        Python integers beyond it must fit the default integer dtype.

    Twice as many bits are drawn as the result has, and reduced modulo the width of the range: if
    the width is not a power of two, the lower values are more likely by a factor of about
    1 + (maxval - minval) / 2**64.
    """
    bounds = [_bound(x, dtype) for x in (minval, maxval)]
    return randint_sample.draw(out_sharding, key, *bounds, shape, dtype)


def _bound(x: Any, dtype: Any) -> Any:
    """A bound; a Python integer that only fits an unsigned type becomes unsigned."""
    if x.__class__ is int:
        default = canonicalize(int)
        own = default if dtype is None else canonicalize(dtype)
        ranges = [iinfo(default), iinfo(own if is_integer(own) else default)]
        fits = any(int(r.min) <= x <= int(r.max) + (r is ranges[1]) for r in ranges)
        if not fits or x >= 1 << 8 * default.itemsize:
            raise OverflowError(
                f"randint: the bound {x} fits neither the dtype of the result nor {default}."
            )
    if x.__class__ is int and not -(1 << 31) <= x < 1 << 31:
        return np.asarray(x)[()] if not 0 < x < 1 << 32 else np.uint32(x)
    return x


@sampler(int_dtype)
def randint_sample(key: Any, low: Any, high: Any, shape: tuple, dtype: Any) -> Any:
    common_sizes("randint", shape, low, high)
    low, high = [
        x if is_integer(type_of(x).dtype) else cast(x, canonicalize(int)) for x in (low, high)
    ]
    if dtype.itemsize < 4:  # drawn in 32 bits, since few bits would bias the modulus
        info = iinfo(dtype)
        low = _clip(cast(low, INT32), int(info.min), int(info.max))
        high = _clip(cast(high, INT32), int(info.min), int(info.max) + 1)
        wide = _integers(key, shape, low, high, INT32)
        return convert_element_type(wide, dtype=dtype)
    return _integers(key, shape, low, high, dtype)


def _integers(key: Any, shape: tuple, low: Any, high: Any, dtype: Any) -> Any:
    info = iinfo(dtype)
    top = min_int(int(info.max), int(iinfo(type_of(high).dtype).max))
    high = broadcast_to(high, shape) if type_of(high).shape else high
    beyond = gt(high, lit(top, high))  # as in randint(key, shape, 0, 256, "uint8")
    low, high = [_into(x, dtype, shape) for x in (low, high)]
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    upper, lower = [draw_bits(k, shape, dtype.itemsize * 8) for k in keys_of(key, 2)]
    one = lit_of(1, unsigned)
    span = convert_element_type(sub(high, low), dtype=unsigned)
    span = where(le(high, low), one, span)
    # one more than `high` can represent; 0 means all values, and the remainder keeps them
    span = where(bitwise_and(beyond, gt(high, low)), add(span, one), span)
    # upper * 2**bits + lower, modulo span, without exceeding the width
    half = rem(lit(2 ** (dtype.itemsize * 4), span), span)
    shift = rem(mul(half, half), span)
    offset = rem(add(mul(rem(upper, span), shift), rem(lower, span)), span)
    return add(low, convert_element_type(offset, dtype=dtype))


def min_int(a: int, b: int) -> int:
    return a if a < b else b


def _clip(x: Any, low: int, high: int) -> Any:
    return clamp(lit(low, x), x, lit(high, x))


def _into(x: Any, dtype: Any, shape: tuple) -> Any:
    """`x` as `dtype`, clipped to its range instead of wrapped around."""
    own, new = iinfo(type_of(x).dtype), iinfo(dtype)
    low = -min_int(-int(own.min), -int(new.min))
    high = min_int(int(own.max), int(new.max))
    return parameter("randint", _clip(x, low, high), dtype, shape)


def rademacher(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """1 or -1, with equal probability."""
    return rademacher_sample.draw(out_sharding, key, shape, dtype)


def _any_dtype(name: str, dtype: Any) -> Any:
    return canonicalize(int) if dtype is None else check_user_dtype(dtype, name)


@sampler(_any_dtype)
def rademacher_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    up = bernoulli_sample(key, np.float32(0.5), shape, FLOAT32)
    return where(up, lit(1, np.zeros((), dtype)), lit(-1, np.zeros((), dtype)))
