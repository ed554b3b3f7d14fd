"""Tokens, and XLA's own random numbers.

A token is an empty array of booleans without content. The library orders effects itself: the only
function that takes tokens is `after_all`, which returns a token that depends on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import zeros
from shardwise._src.ops.barrier import optimization_barrier
from shardwise._src.ops.random.rng_uniform import rng_uniform as rng_uniform_op
from shardwise._src.types.annotations import Array, ArrayLike

_TOKEN = (0,), np.dtype(bool)


def create_token(_: Any = None) -> Array:
    """A token without dependencies. The argument is ignored."""
    return zeros(*_TOKEN)


def is_token(x: Any) -> bool:
    t = type_of(x)
    return (t.shape, t.dtype) == _TOKEN


def after_all(*operands: ArrayLike) -> Array:
    """A token that depends on other tokens.

    Raises:
      TypeError: for an operand that is not a token.
    """
    for x in operands:
        if not is_token(x):
            raise TypeError(f"after_all takes tokens from `create_token`; got {short_repr(x)}.")
    return optimization_barrier(*operands)[0] if operands else create_token()


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Array:
    """Uniform numbers from `a` (inclusive) to `b` (exclusive) from XLA's generator.

    The generator has internal state: each run returns different numbers, which cannot be
    reproduced. `shardwise.random.uniform` draws by keys. There are no derivatives or `vmap` rule.

    Args:
      a, b: scalars of one dtype, an integer or floating-point one.
      shape: of the result.

    Raises:
      TypeError: for other operands.
    """
    return rng_uniform_op(a, b, shape=tuple([int(n) for n in shape]))
