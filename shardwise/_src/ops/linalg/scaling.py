"""Scaling of matrices for kernels whose squares overflow or vanish.

    small, scale = scaled_to_one(x)      # small * scale = x, with elements of about 1
    times(r, scale)                      # the same for results that grow with the matrix

The scale is a power of two for each matrix, so neither step rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import reduce_precision
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, identity, spread
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.types.dtypes import is_complex

FLOAT32 = np.dtype(np.float32)
LARGEST = 2.0**126  # its inverse is a normal number, too


def scaled_to_one(x: Any, read: Callable[[Any], Any] = identity) -> list[Any]:
    """Matrices over a scale, and the scales: 1 for matrices of zeros or that are not finite.

    x:    matrices with at least one element.
    read: returns the part of them that counts, with zeros in place of the rest.
    """
    x = read(x)
    t = type_of(x)
    parts = (ew.real(x), ew.imag(x)) if is_complex(t.dtype) else (x,)
    sizes = [reduce_max(ew.abs(part), axes=(t.ndim - 2, t.ndim - 1)) for part in parts]
    largest = sizes[0] if len(sizes) == 1 else ew.max(*sizes)
    good = ew.bitwise_and(ew.is_finite(largest), ew.gt(largest, lit(0, largest)))
    scale, inverse = _power_of_two(where(good, largest, lit(1, largest)))
    return [times(x, inverse), scale]


def times(x: Any, scale: Any) -> Any:
    """Matrices or vectors, each times its own number."""
    t = type_of(x)
    return ew.mul(x, spread(as_dtype(scale, t.dtype), t.shape))


def _power_of_two(size: Any) -> tuple[Any, Any]:
    """A power of two near positive numbers, and its inverse.

    For 64-bit numbers it is the eighth power of one that 32 bits hold: TPUs lack instructions on
    the bits of 64-bit numbers.
    """
    dtype = type_of(size).dtype
    roots = 0 if dtype == FLOAT32 else 3
    for _ in range(roots):
        size = ew.sqrt(size)
    power = _without_mantissa(as_dtype(size, FLOAT32))
    found = []
    for y in (power, _without_mantissa(ew.div(lit(1, power), power))):
        y = as_dtype(y, dtype)
        for _ in range(roots):
            y = ew.mul(y, y)
        found.append(y)
    return found[0], found[1]


def _without_mantissa(x: Any) -> Any:
    x = reduce_precision(x, exponent_bits=8, mantissa_bits=0)
    return ew.min(ew.max(x, lit(1 / LARGEST, x)), lit(LARGEST, x))
