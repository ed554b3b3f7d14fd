"""Interpolation on grids, under SciPy's name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.floats import isnan
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ordering.sorting import searchsorted
from shardwise._src.numpy.shapes import broadcast_arrays
from shardwise._src.runtime.pytree import register_node
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.indexing import get

_METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """Interpolates values on a rectangular grid; call it with points.

        at = RegularGridInterpolator((x, y), values)
        at(points)                          # float[…], of points float[…, 2]

    Args:
      points: for each leading dimension of values, the coordinates along it: two or more, strictly
        ascending or descending.
      values: of shape (len(points[0]), len(points[1]), …, …); integers become floats.
      method: "linear" or "nearest" (the lower one if halfway).
      bounds_error: must be False: values are unknown in traced programs.
      fill_value: the value outside the grid; None extrapolates from the outermost cells.

    A pytree with the leaves points, values and fill_value.
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ):
        _check_method(method)
        if bounds_error:
            raise NotImplementedError(
                "RegularGridInterpolator: bounds_error must be False; points outside get the "
                "fill_value."
            )
        (self.values,) = inexact(values)
        self.grid = tuple([asarray(as_operand(p)) for p in points])
        sizes = tuple([p.shape for p in self.grid])
        if sizes != tuple([(n,) for n in self.values.shape[: len(sizes)]]) or (1,) in sizes:
            raise ValueError(
                "RegularGridInterpolator: points must be vectors with the sizes of values, at "
                f"least 2 each; got shapes {sizes} for values of shape {self.values.shape}."
            )
        self.method, self.bounds_error = method, bounds_error
        self.fill_value = None if fill_value is None else asarray(as_operand(fill_value))

    def __call__(self, xi: ArrayLike | tuple[ArrayLike, ...], method: str | None = None) -> Array:
        """The values at points (…, number of dimensions), or at a tuple of their coordinates."""
        chosen = self.method if method is None else method
        _check_method(chosen)
        ndim = len(self.grid)
        if isinstance(xi, tuple):
            found = stack(broadcast_arrays(*inexact(*xi)), -1) if len(xi) > 1 else inexact(*xi)[0]
        else:
            (found,) = inexact(xi)
        if found.ndim == 1:
            found = found.reshape(-1, ndim)
        if found.shape[-1:] != (ndim,):
            raise ValueError(
                f"RegularGridInterpolator takes points of {ndim} coordinates along the last "
                f"dimension; got shape {found.shape}."
            )
        fill = [] if self.fill_value is None else [self.fill_value]
        return _interpolated(self.values, found, *self.grid, *fill, method=chosen, ndim=ndim)


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(
            f"RegularGridInterpolator: method must be one of {_METHODS}; got {method!r}."
        )


@fused(arrays=32)
def _interpolated(*arrays: Any, method: str, ndim: int) -> Any:
    values, points, *rest = arrays
    grid, fill = rest[:ndim], rest[ndim:]
    cells, outside = [], isnan(points).any(-1)
    unknown = outside
    for d, g in enumerate(grid):
        x, n = points[..., d], g.shape[0]
        down = g[0] > g[-1]
        g = where(down, g[::-1], g)
        outside = outside | (x < g[0]) | (x > g[-1])
        i = (searchsorted(g, x) - 1).clip(0, n - 2)
        left = get(g, i, mode="clip", wrap=False)
        above = (x - left) / (get(g, i + 1, mode="clip", wrap=False) - left)
        ends = [(i, 1 - above), (i + 1, above)]
        if method == "nearest":
            ends = [(where(above <= 0.5, i, i + 1), where(isnan(x), x, 1))]
        cells.append([(where(down, n - 1 - j, j), w) for j, w in ends])
    total: Any = 0
    more = values.ndim - ndim
    for corner in itertools.product(*cells):
        places, weights = zip(*corner, strict=True)
        weight: Any = 1
        for w in weights:
            weight = weight * w
        found = get(values, places, mode="clip", wrap=False)
        total = total + found * weight.reshape(*weight.shape, *[1] * more)
    if fill:
        outside = (outside & ~unknown).reshape(*outside.shape, *[1] * more)
        total = where(outside, fill[0].astype(total.dtype), total)
    return total


def _remade(kept: Any, leaves: Any) -> RegularGridInterpolator:
    made = object.__new__(RegularGridInterpolator)
    made.grid, made.values, made.fill_value = leaves
    made.method, made.bounds_error = kept
    return made


register_node(
    RegularGridInterpolator,
    lambda x: ((x.grid, x.values, x.fill_value), (x.method, x.bounds_error)),
    _remade,
)
