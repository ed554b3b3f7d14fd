"""`Dims`: how the dimensions of an op's operands and results belong together.

Each dimension is named by a *factor*, as in einsum: a matrix product is `(("i","k"), ("k","j")) →
("i","j")`. `None` names a dimension that only this op's own algorithm relates to anything: it
cannot be split. A tuple of factors is a compound dimension, major factor first (reshape). A factor
that no result has is contracted; `combine` says how partial results over it are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Factor = str | None | tuple[str, ...]
Combine = Literal["add", "mul", "max", "min", "and", "or", "xor"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Dims:
    """inputs, outputs: one tuple of factors per operand and result.

    combine: how partial results over a contracted factor go together.
    linear:  groups of operands in which, together, the op is linear: sums over their shards may
             wait until after the op.
    worked:  what becomes of split dimensions that have no factor: they must be "whole"; or results
             are split in the same place, although that takes communication ("kept"); or results
             lack them ("dropped").
    specs:   the mesh axes of each dimension of each result, where factors cannot say it.
    """

    inputs: tuple[tuple[Factor, ...], ...]
    outputs: tuple[tuple[Factor, ...], ...]
    combine: Combine | None = None
    linear: tuple[tuple[int, ...], ...] = ()
    worked: Literal["whole", "kept", "dropped"] = "whole"
    specs: tuple[tuple[tuple[Any, ...], ...], ...] | None = None

    def contracted(self) -> set[str]:
        """Factors that no result has."""
        return _names(self.inputs) - _names(self.outputs)

    def batched(self) -> set[str]:
        """Factors that all operands and results have."""
        rows = (*self.inputs, *self.outputs)
        return {name for name in _names(rows) if all(name in _names((row,)) for row in rows)}


def _names(groups: tuple[tuple[Factor, ...], ...]) -> set[str]:
    names: set[str] = set()
    for group in groups:
        for factor in group:
            if isinstance(factor, tuple):
                names.update(factor)
            elif factor is not None:
                names.add(factor)
    return names


def letters(count: int) -> tuple[str, ...]:
    """The factors of `count` unrelated dimensions."""
    if count <= len(LETTERS):
        return tuple(LETTERS[:count])
    return tuple(f"d{i}" for i in range(count))
