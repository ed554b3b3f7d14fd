"""Interpolation of images at coordinates."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.unary import absolute, floor
from shardwise._src.ops import elementwise as ew
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import broadcast, cast
from shardwise._src.values.indexing import get

_INT32 = np.dtype(np.int32)


def _mirrored(i: Any, size: int) -> Any:
    """d c b | a b c d | c b a"""
    turn = size - 1
    return absolute((i + turn) % (2 * turn) - turn) if turn else i * 0


# Maps an index out of bounds to the element used instead; "constant" checks the index itself.
_PLACES: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda i, size: i,
    "nearest": lambda i, size: i.clip(0, size - 1),
    "wrap": lambda i, size: i % size,
    "mirror": _mirrored,
    "reflect": lambda i, size: (_mirrored(2 * i + 1, 2 * size + 1) - 1) // 2,  # b a | a b c d | d c
}
_OTHER_NAMES = {"grid-constant": "constant", "grid-wrap": "wrap", "grid-mirror": "reflect"}


def _rounded(x: Any) -> Any:
    return x if is_integer(x.dtype) else ew.round(x)


@fused(arrays=32)
def _mapped(*arrays: Any, order: int, mode: str) -> Any:
    image, cval, *coordinates = [asarray(a) for a in arrays]
    fixed = _PLACES[mode]
    parts = []  # per dimension: indices, whether they are in bounds, and weights
    for x, size in zip(broadcast(*coordinates), image.shape, strict=True):
        if order == 0:
            found = [(cast(_rounded(x), _INT32), 1)]
        else:
            (x,) = inexact(x)
            lower = floor(x)
            i, above = cast(lower, _INT32), x - lower
            found = [(i, 1 - above), (i + 1, above)]
        parts.append([(fixed(i, size), (i >= 0) & (i < size), w) for i, w in found])
    total: Any = 0
    for corner in itertools.product(*parts):
        places, inside, weights = zip(*corner, strict=True)
        value = get(image, places, mode="clip", wrap=False)
        if mode == "constant":
            value = where(functools.reduce(operator.and_, inside), value, cval)
        total = total + functools.reduce(operator.mul, [*weights, value])
    return cast(_rounded(total) if is_integer(image.dtype) else total, image.dtype)


@eager_jit
def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """Interpolated values of an array, in its dtype and the shape of the coordinates.

    Args:
      input: any shape with elements; integers are rounded, halfway cases away from zero.
      coordinates: for each dimension, an array of coordinates along it.
      order: 0 uses the nearest element (halfway cases away from zero), 1 is linear.
      mode: the values out of bounds: "constant" is `cval`, "nearest" the nearest element, "wrap"
        is periodic, "mirror" reflects at the center of the last element, "reflect" at its edge.
        The extension is by elements: SciPy calls the first "grid-constant" and the third
        "grid-wrap", which are aliases here, as is "grid-mirror" for "reflect".

    Raises:
      NotImplementedError: for higher orders, which are splines in SciPy.
    """
    image = as_operand(input)
    mode = _OTHER_NAMES.get(mode, mode)
    found = [as_operand(x) for x in coordinates]
    if order not in (0, 1):
        raise NotImplementedError(
            f"map_coordinates: order must be 0 or 1; got {order!r}. For splines on a regular grid "
            "use `shardwise.image.scale_and_translate(method='cubic')`; those of SciPy run on the "
            "host, with `shardwise.pure_callback`."
        )
    if mode not in _PLACES:
        raise ValueError(
            f"map_coordinates: mode must be one of {[*_PLACES, *_OTHER_NAMES]}; got {mode!r}."
        )
    shape = np.shape(image)
    if len(found) != len(shape) or not shape or 0 in shape:
        raise ValueError(
            "map_coordinates takes a nonempty array of at least one dimension, and coordinates for "
            f"each dimension; got shape {shape} and {len(found)} of them."
        )
    fill = cast(as_operand(cval), asarray(image).dtype)
    return _mapped(image, fill, *found, order=int(order), mode=mode)
