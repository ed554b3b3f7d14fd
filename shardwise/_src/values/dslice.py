"""`ds(start, size)`: an index that is a slice of static size, whose start may be traced.

For example:

    x[ds(i, 4)]              # x[i : i + 4], moved to stay in bounds
    ref[0, ds(i, 4)] = y
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.ops.elementwise import add
from shardwise._src.ops.elementwise import max as larger
from shardwise._src.ops.elementwise import min as smaller
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import lt, where
from shardwise._src.runtime.pytree import register_node
from shardwise._src.types.dtypes import is_integer, is_unsigned


@public("shardwise.kernels")
class Slice:
    """`start : start + size * stride : stride`. Made by `ds`."""

    __slots__ = ("start", "size", "stride")

    def __init__(self, start: Any, size: Any, stride: int = 1):
        self.start, self.size, self.stride = start, size, stride

    @property
    def is_dynamic_start(self) -> bool:
        return not isinstance(self.start, int | np.integer)

    @property
    def is_dynamic_size(self) -> bool:
        return not isinstance(self.size, int | np.integer)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slice):
            return NotImplemented
        mine, its = (self.start, self.size, self.stride), (other.start, other.size, other.stride)
        return mine == its

    __hash__ = None  # pyright: ignore[reportAssignmentType] (an array has none)

    def __repr__(self) -> str:
        return f"Slice(start={self.start}, size={self.size}, stride={self.stride})"


def _children(s: Slice) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A concrete start is part of the structure."""
    if s.is_dynamic_start:
        return (s.start,), (None, s.size, s.stride)
    return (), (s.start, s.size, s.stride)


register_node(
    Slice, _children, lambda known, traced: Slice(traced[0] if traced else known[0], *known[1:])
)


def dslice(start: Any, size: int | None = None, stride: int | None = None) -> slice | Slice:
    """A slice of static size, for indexing an array or a ref.

    Args:
      start: an integer, which may be traced; if negative, counts from the end. None for all:
        `ds(None)` is `:`.
      size: the number of elements. If absent, `start` is the size: `ds(4)` is `:4`.
      stride: the step between elements, at least 1. With a traced start, it must be 1.

    Returns:
      An index that acts as a slice. If the slice would extend out of bounds, it is moved inside.

    Raises:
      TypeError: if the size or stride is not a concrete integer; raised when indexing.
      ValueError: for a negative stride, and when indexing, for a slice longer than its dimension.
    """
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    step = 1 if stride is None else stride
    if not isinstance(step, int) or isinstance(step, bool):
        raise TypeError(f"ds: stride must be a concrete integer; got {stride!r}.")
    if step < 0:
        raise ValueError(f"ds: stride must not be negative; got {stride}.")
    return Slice(start, size, step)


ds = dslice


def entry(s: Slice, n: int, operands: list[Any], windows: bool) -> Any:
    """The pattern entry for a dimension of `n` elements (see `index_pattern`).

    windows: whether concrete starts are operands.
    """
    try:
        size = operator.index(s.size)
    except TypeError:
        raise TypeError(
            f"ds: size must be a concrete integer; got {s}. An array cannot have a traced size; "
            "mask it with `shardwise.numpy.where` instead."
        ) from None
    reach = (size - 1) * s.stride + 1 if size else 0
    if size < 0 or reach > n:
        raise ValueError(
            f"ds: {s} needs a dimension of at least {reach} elements; got {n}."
            if size >= 0
            else f"ds: size must not be negative; got {s}."
        )
    if is_array(s.start) and not isinstance(s.start, np.ndarray | np.generic):
        return _traced(s, size, n, operands)
    start = _known(s)
    start = min(max(start + n if start < 0 else start, 0), n - reach)
    if s.stride != 1:
        return ("slice", start if size else 0, size, s.stride)
    if size == n:
        return "all"
    if windows:
        operands.append(start)
        return ("window", size)
    return ("slice", start, size, 1)


def _known(s: Slice) -> int:
    try:
        return operator.index(s.start.item() if isinstance(s.start, np.ndarray) else s.start)
    except (TypeError, ValueError):
        raise TypeError(f"ds: start must be an integer; got {s.start!r}.") from None


def _traced(s: Slice, size: int, n: int, operands: list[Any]) -> tuple[Any, ...]:
    t = type_of(s.start)
    if t.ndim or not is_integer(t.dtype):
        raise TypeError(f"ds: start must be an integer; got {t.str_short(True)}.")
    if s.stride != 1:
        raise NotImplementedError(
            f"ds: an array as start requires a stride of 1; got stride={s.stride}. Take the window "
            "first, then stride over it: `x[ds(i, n)][::stride]`."
        )
    start = s.start
    if not is_unsigned(t.dtype):
        start = where(lt(start, lit(0, start)), add(start, lit(n, start)), start)
        start = larger(start, lit(0, start))
    operands.append(smaller(start, lit(n - size, start)))
    return ("window", size)
