"""Windows for signals: bartlett, blackman, hamming, hanning, kaiser.

The points depend only on the size, so they are computed on the host in full precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import fused
from shardwise._src.numpy.creation import as_operand, ones
from shardwise._src.numpy.unary import i0
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.binary import divide, multiply
from shardwise._src.values.convert import as_integer, promote_inexact


def bartlett(M: int) -> Array:
    """A triangular window of M points, zero at both ends."""
    return eval_trace().new_array(np.bartlett(as_integer(M, "bartlett: M")))


def blackman(M: int) -> Array:
    """The Blackman window of M points: three cosine terms."""
    return eval_trace().new_array(np.blackman(as_integer(M, "blackman: M")))


def hamming(M: int) -> Array:
    """The Hamming window of M points: a raised cosine on a pedestal."""
    return eval_trace().new_array(np.hamming(as_integer(M, "hamming: M")))


def hanning(M: int) -> Array:
    """The Hann window of M points: a raised cosine, zero at both ends."""
    return eval_trace().new_array(np.hanning(as_integer(M, "hanning: M")))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """The Kaiser window of M points; a larger `beta` is narrower. `beta` may be traced."""
    size = as_integer(M, "kaiser: M")
    return _kaiser(as_operand(beta), size) if size > 1 else ones(max(size, 0))


@fused(arrays=1)
def _kaiser(beta: Any, size: int) -> Any:
    (beta,) = promote_inexact(beta)
    height = np.sqrt(np.maximum(0, 1 - np.linspace(-1, 1, size) ** 2)).astype(np.float32)
    return divide(i0(multiply(beta, height)), i0(beta))
