"""What the kernels of the library have in common: options, sizes of blocks, masks at the ends.

Triton takes blocks whose sizes are powers of two; Mosaic takes multiples of 8 rows and 128 columns,
and keeps two copies of each block in VMEM. Blocks of about `ELEMENTS` elements satisfy both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import moveaxis, reshape
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.types.dtypes import is_float, is_integer

ELEMENTS = 2**14
F32 = np.dtype("float32")


@dataclass(frozen=True)
class Options:
    """What kernels of the library pass on to `kernels.call`. blocks: their sizes."""

    blocks: tuple[int, ...]
    check: bool = False
    params: CompilerParams | None = None

    @property
    def of_call(self) -> dict[str, Any]:
        return {"check": self.check, "params": self.params}


def sizes_of(who: str, names: Sequence[str], given: Any, default: Sequence[int]) -> tuple[int, ...]:
    """A checked `blocks` argument. names: of the sizes."""
    if given is None:
        return tuple(default)
    sizes = tuple(given) if isinstance(given, tuple | list) else (given,)
    right = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sizes]
    if len(sizes) != len(names) or not all(right):
        count = "a positive integer" if len(names) == 1 else f"{len(names)} positive integers"
        raise ValueError(
            f"{who}: blocks is {count}, ({', '.join(names)}); got {short_repr(given)}. Compilers "
            "of GPUs take powers of two; those of TPUs multiples of 8 and 128."
        )
    return sizes


def row_block(m: int, n: int, columns: int = 4096) -> tuple[int, int]:
    """The block of m rows of n elements: whole rows, if they have at most `columns` elements."""
    width = min(power_above(n, 128), columns)
    rows = m if m in (1, 2, 4) else min(max(ELEMENTS // width, 8), power_above(m, 8))
    return rows, width


def wide(dtype: Any) -> np.dtype:
    """The dtype in which kernels compute with floats of a dtype: at least float32."""
    return np.dtype(dtype) if np.dtype(dtype).itemsize == 8 else F32


def elements(ref: Any, dtype: Any, beyond: float, *bounds: tuple[int, Any, int]) -> Any:
    """The block in a ref, cast to a dtype, with `beyond` where it extends beyond its array.

    bounds: (dimension, index of the block along it, size of the array along it).
    """
    return inside(ref[...].astype(dtype), beyond, *bounds)


def inside(values: Any, beyond: float, *bounds: tuple[int, Any, int]) -> Any:
    """Like `elements`, of the values of a block."""
    for dim, index, n in bounds:
        if n % (size := values.shape[dim]):
            at = index * size + broadcasted_iota(np.int32, values.shape, dim)
            values = where(at < n, values, np.asarray(beyond, values.dtype))
    return values


def as_numbers(who: str, name: str, x: Any) -> Any:
    """x as an array, if it has floats or integers. name: of the argument."""
    x = asarray(x)
    t = type_of(x)
    if not (is_float(t.dtype) or is_integer(t.dtype)):
        raise TypeError(f"{who}: {name} is {t.str_short(True)}; expected floats or integers.")
    return x


def as_rows(who: str, x: Any, axis: int) -> tuple[Any, Callable[[Any], Any]]:
    """x as rows along an axis, [m, n], and the function that takes such rows back to its shape."""
    t = type_of(x)
    if not t.ndim:
        raise ValueError(f"{who}: x is {t.str_short(True)}, which has no axis.")
    axis = canonical_axis(axis, t.ndim)
    if axis == t.ndim - 1 and t.ndim == 2:
        return x, lambda y: y
    moved = moveaxis(x, axis, -1)
    shape = type_of(moved).shape
    rows = reshape(moved, (math.prod(shape[:-1]), shape[-1]))
    return rows, lambda y: moveaxis(reshape(y, shape), -1, axis)
