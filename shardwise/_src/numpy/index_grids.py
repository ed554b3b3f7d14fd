"""Grids and joined ranges by subscript: mgrid, ogrid, r_, c_, s_, index_exp.

    mgrid[0:2, 0:3]     r_[0:3, x, 7]     c_[x, y]

A step of `5j` means 5 points up to and including the end. Bounds must be concrete.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.shapes import reshape

s_, index_exp = np.s_, np.index_exp


@public("shardwise.numpy")
class Grid:
    """Coordinates of grid points; each subscript is a range along one dimension."""

    def __init__(self, sparse: bool):
        self.sparse = sparse

    def __reduce__(self) -> str:
        return "ogrid" if self.sparse else "mgrid"

    def __getitem__(self, key: Any) -> Any:
        _reject_traced(key, "ogrid" if self.sparse else "mgrid")
        if not self.sparse:
            return eval_trace().new_array(np.mgrid[key])
        made = np.ogrid[key]
        if isinstance(made, np.ndarray):
            return eval_trace().new_array(made)
        return [eval_trace().new_array(x) for x in made]

    def __repr__(self) -> str:
        return "ogrid" if self.sparse else "mgrid"


def _reject_traced(key: Any, name: str) -> None:
    for part in key if isinstance(key, tuple) else (key,):
        for bound in (part.start, part.stop, part.step) if isinstance(part, slice) else ():
            if hasattr(bound, "needed_for_shape"):
                raise bound.needed_for_shape(f"{name}: a bound of a range")


@public("shardwise.numpy")
class Joined:
    """Joins ranges, numbers and arrays.

    A first subscript such as "0,2,1" specifies the axis; then, optionally, the minimum number of
    dimensions of the operands; then, optionally, the position of each operand's first dimension.
    """

    def __init__(self, name: str, axis: int, ndmin: int, first: int):
        self.name, self.axis, self.ndmin, self.first = name, axis, ndmin, first

    def __reduce__(self) -> str:
        return self.name

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        how = [self.axis, self.ndmin, self.first]
        if parts and isinstance(parts[0], str):
            how = _directive(parts.pop(0), how, self.name)
        axis, ndmin, first = how
        _reject_traced(tuple(parts), self.name)
        return concatenate([self._part(p, ndmin, first) for p in parts], axis=axis)

    def _part(self, part: Any, ndmin: int, first: int) -> Any:
        x = eval_trace().new_array(np.r_[part]) if isinstance(part, slice) else asarray(part)
        shape = type_of(x).shape
        extra = ndmin - len(shape)
        if extra <= 0:
            return x
        before = first if first >= 0 else first + extra + 1
        before = min(max(before, 0), extra)
        return reshape(x, (1,) * before + shape + (1,) * (extra - before))

    def __repr__(self) -> str:
        return self.name


def _directive(text: str, how: list[int], name: str) -> list[int]:
    try:
        given = [operator.index(int(v)) for v in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{name}: a directive must be up to three integers, as in '0,2,1'; got {text!r}."
        ) from None
    return [*given, *how[len(given) :]][:3]


mgrid, ogrid = Grid(sparse=False), Grid(sparse=True)
r_, c_ = Joined("r_", 0, 1, -1), Joined("c_", -1, 2, 0)
