"""Sizes of blocks, and the other options of launches.

Triton takes blocks whose sizes are powers of two; Mosaic takes multiples of 8 rows and 128 columns,
and keeps two copies of each block in VMEM. Blocks of about `ELEMENTS` elements satisfy both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise import kernels
from shardwise._src.kernels.library.argument_checks import require
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.messages.formatting import short_repr

ELEMENTS = 2**14


class Options(NamedTuple):
    """What kernels of the library pass on to `kernels.call`. blocks: their sizes."""

    blocks: tuple[int, ...]
    check: bool = False
    params: kernels.CompilerParams | None = None

    @property
    def of_call(self) -> dict[str, Any]:
        return {"check": self.check, "params": self.params}


def options_of(
    who: str, names: str, usual: Sequence[int], blocks: Any, check: bool, params: Any
) -> Options:
    """The options of a call with these arguments. names, usual: of the sizes of blocks."""
    if blocks is None:
        return Options(tuple(usual), check, params)
    sizes = tuple(blocks) if isinstance(blocks, tuple | list) else (blocks,)
    are_sizes = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sizes]
    count = f"{len(usual)} positive integers" if len(usual) > 1 else "a positive integer"
    text = (
        "blocks is {}, ({}); got {}. Compilers of GPUs take powers of two; those of TPUs multiples "
        "of 8 and 128."
    )
    is_right = len(sizes) == len(usual) and all(are_sizes)
    require(is_right, who, text, count, names, short_repr(blocks))
    return Options(sizes, check, params)


def row_block(m: int, n: int, is_whole: bool = False) -> tuple[int, int]:
    """The block of m rows of n elements: whole rows, if `is_whole` or they are at most 4,096 long.

    Parts of longer rows have 2,048 elements, since kernels for GPUs keep a block in registers.
    """
    width = power_above(n, 128)
    width = width if is_whole or width <= 4096 else 2048
    rows = m if m in (1, 2, 4) else min(max(ELEMENTS // width, 8), power_above(m, 8))
    return rows, width


def row_params(params: kernels.CompilerParams | None, width: int) -> kernels.CompilerParams:
    """Those of a kernel whose blocks have rows of `width`: long ones have more warps of a GPU."""
    return params or kernels.CompilerParams(num_warps=8 if width >= 2048 else 4)
