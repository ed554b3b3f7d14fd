"""Checks of the arguments of the library's functions, and the forms that kernels need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import shardwise as sw
from shardwise import numpy as snp


def require(
    is_right: Any, who: str, text: str, *values: Any, error: type[Exception] = ValueError
) -> None:
    """Raises an error unless `is_right`. The text has {} for each value: arrays by their types."""
    if not is_right:
        shown = [sw.typeof(v).str_short(True) if hasattr(v, "dtype") else v for v in values]
        raise error(f"{who}: {text.format(*shown)}")


def is_float(x: Any) -> bool:
    return snp.issubdtype(x.dtype, snp.floating)


def is_integer(x: Any) -> bool:
    return snp.issubdtype(x.dtype, snp.integer)


def as_numbers(who: str, name: str, x: Any) -> sw.Array:
    """x as an array, if it has floats or integers. name: of the argument."""
    x = snp.asarray(x)
    text = f"{name} is {{}}; expected floats or integers."
    require(is_float(x) or is_integer(x), who, text, x, error=TypeError)
    return x


def as_rows(who: str, x: sw.Array, axis: int) -> tuple[sw.Array, Callable[[Any], sw.Array]]:
    """x as rows along an axis, [m, n], and the function that takes such rows back to its shape."""
    require(x.ndim, who, "x is {}, which has no axis.", x)
    moved = snp.moveaxis(x, axis, -1)
    rows = moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])
    return rows, lambda y: snp.moveaxis(y.reshape(moved.shape), -1, axis)
