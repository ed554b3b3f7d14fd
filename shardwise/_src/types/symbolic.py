"""Symbolic sizes: dimensions whose values are not known yet."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


class Symbolic:
    """A dimension of exported programs, determined at each call (export/symbolic_dims.py)."""

    __slots__ = ()

    @property
    def least(self) -> float:
        """A lower bound for its value, in every call."""
        raise NotImplementedError

    def as_array(self, dtype: Any) -> Any:
        """Its value, an array of rank 0, in the program being traced."""
        raise NotImplementedError

    def cut(self, part: slice, size: Any) -> tuple[Any, Any, int]:
        """The start, length and step of a slice of a dimension; `self` is the dimension's size
        or a bound of the slice."""
        raise NotImplementedError


def as_integer(n: Any) -> Any:
    """A user-supplied size unchanged, if it is an integer or symbolic; else TypeError."""
    return n if isinstance(n, Symbolic) else operator.index(n)


def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that all shapes broadcast to, as in NumPy; ValueError if no such shape exists.

    Symbolic sizes broadcast with 1 and with the same dimension.
    """
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        pass  # maybe only because NumPy limits the number of elements
    except TypeError:
        if not any(isinstance(n, Symbolic) for shape in shapes for n in shape):
            raise
    found: list[Any] = []
    for row in itertools.zip_longest(*[shape[::-1] for shape in shapes], fillvalue=1):
        sizes = dict.fromkeys([n for n in row if isinstance(n, Symbolic) or n != 1])
        if len(sizes) > 1:
            raise ValueError(f"shapes {shapes} do not broadcast together")
        found.append(next(iter(sizes), 1))
    return tuple(found[::-1])
