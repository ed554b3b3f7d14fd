"""Ops that draw samples by rejection: gamma, Poisson and binomial numbers.

Candidates are drawn for all elements at once until each has accepted one; whoever is done keeps
what it has. So the loop is one `while` over whole arrays, which partitions like any elementwise op.

    random_gamma(keys, a, log_space=True)      # one key for each element of a
    random_poisson(keys, rate, dtype=int32)    # i32[*keys.shape, *rest], for rates of that shape

The draws are those of `jax.random` for the same keys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.core.op import Op
from shardwise.core.infer import type_of
from shardwise.ops.basis import batch_first, broadcast_in_dim, reshape
from shardwise.ops.cast import convert_element_type
from shardwise.ops.create import full
from shardwise.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    ceil,
    div,
    eq,
    exp,
    floor,
    ge,
    gt,
    le,
    log,
    log1p,
    lt,
    mul,
    ne,
    neg,
    pow,
    sqrt,
    sub,
    where,
)
from shardwise.ops.families import BOOL, FLOATING, check_domain, elementwise_dims, lit, shown
from shardwise.ops.incomplete import random_gamma_grad
from shardwise.ops.loops import iterate
from shardwise.ops.random_bits import KEYED, generator, is_key, unit_bits, unit_floats
from shardwise.ops.shape import slice_in_dim
from shardwise.ops.special import erf_inv, lgamma
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dims import Dims, letters
from shardwise.types.dtypes import finfo, is_integer

FLOAT32 = np.dtype(np.float32)

# -- draws, from keys as integers --


class Source:
    """Draws for keys `u32[..., *key_shape]`, as the parameters of an op say."""

    def __init__(self, dtype: Any, partitionable: bool):
        self.generator = generator(dtype)
        self.partitionable = partitionable

    def split(self, keys: Any, count: int) -> list[Any]:
        new = self.generator.split(keys, (count,), self.partitionable)
        shape = type_of(keys).shape
        axis = len(shape) - len(self.generator.key_shape)
        return [reshape(slice_in_dim(new, i, i + 1, axis), shape=shape) for i in range(count)]

    def uniform(self, keys: Any, shape: tuple, dtype: Any) -> Any:
        """Floats in [0, 1): `shape` for each key."""
        bits = self.generator.bits(keys, shape, unit_bits(dtype), self.partitionable)
        return unit_floats(bits, dtype)

    def normal(self, keys: Any, dtype: Any) -> Any:
        return normal_floats(self.uniform(keys, (), dtype))


def normal_floats(unit: Any) -> Any:
    """Normal numbers from uniform ones in [0, 1), by the inverse of the distribution function."""
    dtype = type_of(unit).dtype
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    span = np.subtract(np.array(1, dtype), low, dtype=dtype)
    inside = _larger(lit(low, unit), add(mul(unit, lit(span, unit)), lit(low, unit)))
    return mul(lit(np.sqrt(2), unit), erf_inv(inside))


def _larger(x: Any, y: Any) -> Any:
    return where(gt(x, y), x, y)


def _keys_type(t: ArrayType) -> ArrayType:
    return array_type(t.shape + t.dtype.physical_shape, t.dtype.physical_dtype)


# -- random_gamma: a number for each key and shape parameter `a`; its logarithm in log_space --
#
# Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. Below 1, a
# sample for a + 1 is multiplied by a uniform number to the power 1/a.


def _gamma_type(
    keys: ArrayType, a: ArrayType, *, log_space: bool, partitionable: bool = True
) -> ArrayType:
    check_domain("random_gamma", FLOATING, (a,))
    if not is_key(keys) or keys.shape != a.shape:
        raise TypeError(
            f"[random_gamma] takes a key for each parameter; got {shown((keys, a))}."
        )
    return array_type(a.shape, a.dtype)


def _gamma_setup(a: Any) -> tuple[Any, Any]:
    """The constants d and c of the method."""
    boosted = where(ge(a, lit(1, a)), a, add(a, lit(1, a)))
    d = sub(boosted, lit(1 / 3, a))
    return d, div(lit(1 / 3, a), sqrt(d))


def _gamma_start(keys: Any, a: Any, *, source: Source) -> list[Any]:
    d, c = _gamma_setup(a)
    keys, _ = source.split(keys, 2)
    yes = full(True, type_of(a).shape, BOOL)
    one = full(1, type_of(a).shape, type_of(a).dtype)
    return [yes, keys, d, c, one]


def _gamma_step(active: Any, keys: Any, d: Any, c: Any, v: Any) -> list[Any]:
    raise NotImplementedError


# The loops' bodies are functions of their state alone, so a source's settings are bound to them.
_bodies: dict[tuple, tuple] = {}


def _gamma_bodies(dtype: Any, partitionable: bool) -> tuple:
    """(start, inner step, between, outer step) for a generator."""
    key = (dtype, partitionable)
    if key not in _bodies:
        _bodies[key] = _make_gamma_bodies(Source(dtype, partitionable))
    return _bodies[key]
