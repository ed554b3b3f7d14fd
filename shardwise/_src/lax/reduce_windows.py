"""Reductions over sliding windows of an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.control.reduce_window import folded_windows
from shardwise._src.core.infer import type_of
from shardwise._src.lax.conv_general import Padding, padtype_to_pads, pairs
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.ops.pooling import Window
from shardwise._src.ops.shape import dilated
from shardwise._src.runtime.pytree import flatten


def _window(
    shape: Sequence[int],
    dimensions: Any,
    strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
) -> Window:
    taken = sizes(dimensions)
    ones = (1,) * len(taken)
    steps, holes, between = (
        ones if given is None else sizes(given)
        for given in (strides, base_dilation, window_dilation)
    )
    if isinstance(padding, str):
        if not len(shape) == len(taken) == len(steps) == len(between):
            raise TypeError(
                "reduce_window: a window has a size, stride and dilation for each of the "
                f"{len(shape)} dimensions of the operand; got {taken}, {steps} and {between}."
            )
        padding = padtype_to_pads(shape, [*map(dilated, taken, between)], steps, padding)
    return Window(taken, steps, pairs(padding, "reduce_window"), holes, between)


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduces the elements of each window with an associative function.

    Args:
      operand: an array, or a pytree of arrays of one shape.
      init_value: a scalar, or a pytree of scalars, to start from. Padding and holes are skipped.
      computation: `(accumulated, elements) → new`, on pytrees of scalars like these.
      window_dimensions: a size for each dimension of the operand; 1 where each element is alone.
      window_strides: distance between windows; None: 1.
      padding: 'VALID', 'SAME', 'SAME_LOWER', or a pair (low, high) for each dimension; negative
        values crop.
      base_dilation, window_dilation: distances between the elements of operand and window.

    Sums, and maxima or minima from their identities, have their own derivative rules; among
    equals the first gets the cotangent, a NaN before all others. Other functions are differentiated
    through their own ops.
    """
    shape = type_of(flatten(operand)[0][0]).shape
    window = _window(
        shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    return folded_windows(operand, init_value, computation, window)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of `reduce_window` for an array of this shape."""
    window = _window(
        operand_shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    return window.counts(sizes(operand_shape))
