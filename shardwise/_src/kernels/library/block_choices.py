"""What the kernels of the library have in common: options, sizes of blocks, masks at the ends.

Triton takes blocks whose sizes are powers of two; Mosaic takes multiples of 8 rows and 128 columns,
and keeps two copies of each block in VMEM. Blocks of about `ELEMENTS` elements satisfy both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import moveaxis, reshape
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.types.dtypes import is_float, is_integer

ELEMENTS = 2**14
F32 = np.dtype("float32")


class Settings(TypedDict, total=False):
    """The options that all functions of the library have.

    derivative: "kernel", the default: in reverse mode, another kernel runs; forward mode is an
      error, but not forward mode over reverse mode. "automatic": derivatives of the kernel itself,
      in both modes; reverse mode stores what a loop over the grid computes.
    check, params: as those of `kernels.call`.
    """

    derivative: Literal["kernel", "automatic"]
    check: bool
    params: CompilerParams | None


@dataclass(frozen=True)
class Options:
    """The checked sizes of blocks and settings of a call."""

    blocks: tuple[int, ...]
    derivative: str = "kernel"
    check: bool = False
    params: CompilerParams | None = None

    def pick(self, by_kernel: Callable[..., Any], automatic: Callable[..., Any]) -> Any:
        return by_kernel if self.derivative == "kernel" else automatic

    def call(self, body: Callable[..., None], out: Any, **launch: Any) -> Callable[..., Any]:
        return call(body, out, check=self.check, params=self.params, **launch)


def options_of(
    who: str, sizes: Mapping[str, int], blocks: Any, settings: Mapping[str, Any]
) -> Options:
    """sizes: the names of the sizes of blocks, with their defaults."""
    given = tuple(blocks) if isinstance(blocks, tuple | list) else (blocks,)
    right = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in given]
    if blocks is not None and (len(given) != len(sizes) or not all(right)):
        count = "a positive integer" if len(sizes) == 1 else f"{len(sizes)} positive integers"
        raise ValueError(
            f"{who}: blocks is {count}, ({', '.join(sizes)}); got {short_repr(blocks)}. Compilers "
            "of GPUs take powers of two, those of TPUs multiples of 8 and 128."
        )
    if unknown := sorted(settings.keys() - Settings.__annotations__.keys()):
        raise TypeError(
            f"{who} has no argument {unknown[0]!r}; its options are derivative, check and params."
        )
    options = Options(given if blocks is not None else tuple(sizes.values()), **settings)
    if options.derivative not in ("kernel", "automatic"):
        raise ValueError(
            f"{who}: derivative is 'kernel' (kernels in reverse mode) or 'automatic' (both modes); "
            f"got {short_repr(options.derivative)}."
        )
    return options


def power_above(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least `n` and `least`."""
    return 1 << max(n - 1, least - 1, 0).bit_length()


def row_block(m: int, n: int, columns: int = 4096) -> dict[str, int]:
    """The block of m rows of n elements: whole rows, if they have at most `columns` elements."""
    width = min(power_above(n, 128), columns)
    rows = m if m in (1, 2, 4) else min(max(ELEMENTS // width, 8), power_above(m, 8))
    return {"rows": rows, "columns": width}


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
    moved = moveaxis(x, axis, -1)
    shape = type_of(moved).shape
    rows = reshape(moved, (math.prod(shape[:-1]), shape[-1]))
    return rows, lambda y: moveaxis(reshape(y, shape), -1, axis)
