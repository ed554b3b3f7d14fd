"""`Dims`: how the dimensions of an op's operands and results correspond.

Each dimension is named by a *factor*, as in einsum: a matrix product is `(("i","k"), ("k","j")) →
("i","j")`. `None` marks a dimension that only the op's own algorithm can relate to others: it
cannot be split. A tuple of factors is a compound dimension, major factor first (reshape). A factor
that no result has is contracted; `combine` says how to combine partial results over it.
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

    combine: how partial results over a contracted factor are combined.
    linear:  groups of operands in which the op is jointly linear: sums over their shards can be
             deferred until after the op.
    worked:  what happens to split dimensions without a factor: they must not be split
             ("unsharded");
             results are split in the same dimension, at the cost of communication ("kept"); or
             results lack them ("dropped").
    specs:   the mesh axes of each dimension of each result, if factors cannot express them.
    """

    inputs: tuple[tuple[Factor, ...], ...]
    outputs: tuple[tuple[Factor, ...], ...]
    combine: Combine | None = None
    linear: tuple[tuple[int, ...], ...] = ()
    worked: Literal["unsharded", "kept", "dropped"] = "unsharded"
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
    """Returns the factors of `count` unrelated dimensions."""
    if count <= len(LETTERS):
        return tuple(LETTERS[:count])
    return tuple(f"d{i}" for i in range(count))
