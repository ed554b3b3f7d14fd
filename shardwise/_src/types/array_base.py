"""`ArrayBase`: the class of arrays and tracers, below the packages that define them."""

from __future__ import annotations


class ArrayBase:
    """Base class of `Array` and of all tracers; what annotations name `Array` at run time."""

    __slots__ = ()
