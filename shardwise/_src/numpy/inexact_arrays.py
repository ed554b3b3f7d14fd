"""Common helpers of the functions under SciPy's names."""

from __future__ import annotations

from typing import Any

from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.values.convert import promote_inexact


def inexact(*xs: Any) -> list[Any]:
    """Arrays of a common floating-point or complex dtype, with operators."""
    return [asarray(x) for x in promote_inexact(*[as_operand(x) for x in xs])]
