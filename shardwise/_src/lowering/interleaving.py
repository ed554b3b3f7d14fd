"""Alternating elements of two arrays, for compilers of accelerators.

    x[..., 0], y[..., 0], x[..., 1], y[..., 1], …

Programs write this as a concatenation of two arrays along a new dimension, which is then merged
with the one before it. XLA would store the array with the new dimension, of size 2: that is slow on
GPUs, and on TPUs fills only 2 of 128 lanes. So the reshape is emitted as two paddings, with holes
for the other array's elements, and a choice between them; nothing then uses the concatenation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.symbolic import Symbolic

INT32 = np.dtype(np.int32)


class Pair(NamedTuple):
    """Two arrays of size 1 along a dimension, that are concatenated along it."""

    first: str
    second: str
    t: ArrayType
    dimension: int
    lines: list[str]  # of the block


def pair_of(e: Any, xs: Any, ins: Any, dimension: int) -> Pair | None:
    """The pair of a concatenation, if it may be of alternating elements, for one accelerator."""
    if e.platform.is_xla_cpu or e.devices > 1 or len(xs) != 2 or dimension == 0:
        return None
    sizes = [t.shape[dimension] for t in ins]
    if sizes != [1, 1] or any(isinstance(n, Symbolic) for n in ins[0].shape):
        return None
    return Pair(xs[0], xs[1], ins[0], dimension, e.lines)


def interleaved(e: Any, pair: Pair, out: ArrayType) -> str | None:
    """The pair's elements as an array of type `out`; None if that is another order."""
    d, shape = pair.dimension, pair.t.shape
    before, n, after = shape[: d - 1], shape[d - 1], shape[d + 1 :]
    if out.shape != (*before, 2 * n, *after) or pair.lines is not e.lines:
        return None
    flat = array_type((*before, n, *after), pair.t.dtype)
    zero = e.scalar(0, flat.dtype)
    spread = []
    for x, low in ((pair.first, 0), (pair.second, 1)):
        config = [(0, 0, 0)] * out.ndim
        config[d - 1] = (low, 1 - low, 1)
        spread.append(e.pad(e.plain_reshape(x, pair.t, flat), zero, flat, config))
    places = array_type(out.shape, INT32)
    bit = e.apply("and", places, e.iota(places, d - 1), e.constant(1, places))
    is_first = e.compare("EQ", bit, e.constant(0, places), places)
    return e.select(is_first, spread[0], spread[1], out)
