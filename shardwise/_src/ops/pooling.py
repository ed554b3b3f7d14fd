"""Windows that slide over all dimensions of an array: their elements, and folds of them.

    reduce_window_sum(x, window=Window((2,), (2,), ((0, 0),), (1,), (1,)))    # pairs

A window lies at each multiple of the strides where it fits. Around the array is padding, between
its elements (base dilation) and the window's own (window dilation) are holes: of an identity, so
that they add nothing. What `reduce_window_max` and `_min` choose is the first of equals, a NaN
before all: tangents are gathered from there, cotangents scattered to there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shardwise._src.core.infer import type_of
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import concatenate, dilated, pad, places, slice_in_dim


class Window(NamedTuple):
    """Sizes, strides and dilations of a window, one for each dimension; 1 where there is none."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many windows there are along each dimension."""
        rows = zip(shape, *self, strict=True)
        return tuple([
            places(dilated(n, hole) + low + high, dilated(size, between), stride)
            for n, size, stride, (low, high), hole, between in rows
        ])


def patches(x: Any, fill: Any, window: Window) -> Any:
    """The elements of all windows: T[places…, window…]. fill: a scalar for padding and holes."""
    shape = type_of(x).shape
    counts = window.counts(shape)
    config = [(low, high, hole - 1) for (low, high), hole in
              zip(window.padding, window.base_dilation, strict=True)]
    if any(row != (0, 0, 0) for row in config):
        x = pad(x, fill, padding_config=tuple(config))
    for d, count in enumerate(counts):
        size, stride = window.sizes[d], window.strides[d]
        reach = (count - 1) * stride + 1 if count else 0
        starts = [i * window.window_dilation[d] if count else 0 for i in range(size)]
        parts = [slice_in_dim(x, s, s + reach, d, stride) for s in starts]
        parts = [reshape(p, shape=(*type_of(p).shape, 1)) for p in parts]
        x = concatenate(*parts, dimension=len(shape) + d) if size > 1 else parts[0]
    return x
