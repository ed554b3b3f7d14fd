"""Convolution and correlation of vectors: windows of the longer one times the shorter one."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.ordering.sorting import INT32, take_from
from shardwise._src.numpy.statistics.reductions import checked_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.contract import dot
from shardwise._src.ops.create import iota
from shardwise._src.ops.shape import pad, rev
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, PrecisionLike
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import cast, promote_inexact

MODES = ("full", "same", "valid")


@fused(arrays=2)
def _convolve(
    a: Any, v: Any, mode: str, precision: Any, preferred: Any, correlate: bool, name: str
) -> Any:
    shapes = type_of(a).shape, type_of(v).shape
    if len(shapes[0]) != 1 or len(shapes[1]) != 1:
        raise ValueError(f"{name} takes vectors; got shapes {shapes[0]} and {shapes[1]}.")
    if 0 in (*shapes[0], *shapes[1]):
        raise ValueError(f"{name}: vectors must not be empty; got {shapes[0]} and {shapes[1]}.")
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {MODES}; got {mode!r}.")
    a, v = promote_inexact(a, v)
    weak = type_of(a).weak_type and preferred is None
    swapped = type_of(a).size < type_of(v).size
    forward = correlate and not swapped  # otherwise the windows are read backwards
    if correlate and is_complex(type_of(v).dtype):
        v = ew.conj(v)
    if correlate and swapped:
        v = rev(v, dimensions=(0,))
    if swapped:
        a, v = v, a
    n, m = type_of(a).size, type_of(v).size
    start, count = 0, n + m - 1  # the requested range of all sums
    if mode == "valid":
        start, count = m - 1, n - m + 1
    elif mode == "same":
        # NumPy centers a correlation with a longer second vector from the other end.
        start = (m - 1) // 2 if not (correlate and swapped) else m // 2
        count = n
    low = m - 1 - start
    zero = np.zeros((), type_of(a).dtype)[()]
    wide = pad(a, zero, padding_config=((low, count + start - n, 0),))
    shape = (count, m)  # also of the indices, which would be a large constant
    first, within = [iota(dtype=INT32, shape=shape, dimension=d) for d in (0, 1)]
    places = ew.add(first, within if forward else ew.sub(np.int32(m - 1), within))
    windows = take_from(wide, places)
    numbers = (((1,), (0,)), ((), ()))
    out = dot(windows, v, numbers, precision, preferred)
    return cast(out, type_of(out).dtype, weak)


@eager_jit(arrays=2)
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Convolution of two vectors of sizes n and m.

    mode: "full" with size n + m - 1; "same" with the longer one's size; "valid" where both overlap
          completely.
    """
    preferred = checked_dtype(preferred_element_type, "convolve")
    return _convolve(a, v, mode, precision, preferred, False, "convolve")


@eager_jit(arrays=2)
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Correlation of two vectors: convolution with `v` conjugated and reversed."""
    preferred = checked_dtype(preferred_element_type, "correlate")
    return _convolve(a, v, mode, precision, preferred, True, "correlate")
