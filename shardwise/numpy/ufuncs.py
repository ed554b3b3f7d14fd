"""Universal functions: elementwise, with NumPy's broadcasting and JAX's promotion."""

from __future__ import annotations

from typing import Any

from shardwise.core.fused import fused
from shardwise.core.infer import type_of
from shardwise.numpy.convert import broadcast, cast, promote
from shardwise.ops import elementwise as ew
from shardwise.types.dtypes import to_inexact


@fused(arrays=2)
def add(x1: Any, x2: Any, /) -> Any:
    """Sum of each pair of elements."""
    return ew.add(*broadcast(*promote(x1, x2)))


@fused(arrays=2)
def multiply(x1: Any, x2: Any, /) -> Any:
    """Product of each pair of elements."""
    return ew.mul(*broadcast(*promote(x1, x2)))


@fused(arrays=1)
def sin(x: Any, /) -> Any:
    """Sine of each element, in radians."""
    t = type_of(x)
    return ew.sin(cast(x, to_inexact(t.dtype), t.weak_type))
