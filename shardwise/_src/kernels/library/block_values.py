"""What the bodies of the library's kernels have in common: dtypes, products, masks at the ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import lax
from shardwise import numpy as snp


def wide(dtype: Any) -> np.dtype:
    """The dtype in which kernels compute with numbers of a dtype: for floats at least float32."""
    is_wide = snp.issubdtype(dtype, snp.integer) or np.dtype(dtype).itemsize == 8
    return np.dtype(dtype if is_wide else "float32")


def inside(values: Any, beyond: float, *bounds: tuple[int, Any, int]) -> Any:
    """The values of a block, with `beyond` where it extends beyond its array.

    bounds: (dimension, index of the block along it, size of the array along it).
    """
    for dim, index, n in bounds:
        if n % (size := values.shape[dim]):
            at = index * size + lax.broadcasted_iota("int32", values.shape, dim)
            values = snp.where(at < n, values, np.asarray(beyond, values.dtype))
    return values


def product(x: Any, y: Any) -> Any:
    """x @ y, with sums of at least float32."""
    return lax.dot(x, y, preferred_element_type=wide(x.dtype))


def add_exponentials(values: Any, running_max: Any, total: Any) -> tuple[Any, Any]:
    """Adds a block to the largest element of each row, and to the sum of exponentials relative to
    it. Returns the exponentials, and the factor by which earlier ones have changed."""
    new = snp.maximum(running_max[...], values.max(1, keepdims=True))
    exponentials, factor = snp.exp(values - new), snp.exp(running_max[...] - new)
    total[...] = total[...] * factor + exponentials.sum(1, keepdims=True)
    running_max[...] = new
    return exponentials, factor
