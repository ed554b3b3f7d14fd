"""`Value`: the operators and methods that arrays and tracers share.

A subclass provides `aval`; everything else is written with the functions of `shardwise.numpy`.
"""

from __future__ import annotations

from typing import Any

from shardwise.numpy import ufuncs
from shardwise.types.array_type import ArrayType


class Value:
    """Base of `Array` and of all tracers. Required of a subclass: `aval`."""

    __slots__ = ()
    __array_priority__ = 100
    aval: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    def __add__(self, other: Any) -> Any:
        return ufuncs.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return ufuncs.add(other, self)

    def __mul__(self, other: Any) -> Any:
        return ufuncs.multiply(self, other)
