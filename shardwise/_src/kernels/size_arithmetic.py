"""Arithmetic of sizes that several kinds of kernels need."""

from __future__ import annotations

import math
from collections.abc import Sequence


def power_above(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least `n` and `least`."""
    return 1 << max(n - 1, least - 1, 0).bit_length()


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The distances between neighbors along each dimension of an array in row-major order."""
    return tuple([math.prod(shape[d + 1 :]) for d in range(len(shape))])
