"""`Launch`: what a launch of a kernel consists of, without its programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.types.array_type import array_type

INT = array_type((), np.dtype("int32"))  # of indices


@dataclass(frozen=True)
class Launch:
    """Everything about a launch but its programs.

    grid:     the sizes; None for those that are operands. names, parallel: of its axes.
    prefetch: how many arrays are known before the blocks are read.
    ins, outs: the blocks. aliases: pairs of an input and the result that uses its memory.
    """

    name: str
    grid: tuple[int | None, ...]
    names: tuple[Any, ...]
    parallel: tuple[bool, ...]
    prefetch: int
    ins: tuple[Tile, ...]
    outs: tuple[Tile, ...]
    scratch: tuple[Scratch, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()

    @property
    def dynamic(self) -> int:
        """How many sizes of the grid are operands."""
        return sum(n is None for n in self.grid)

    def parts(self, operands: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The dynamic sizes, the prefetched arrays, the inputs."""
        a, b = self.dynamic, self.dynamic + self.prefetch
        return operands[:a], operands[a:b], operands[b:]
