"""Solves for the variables of symbolic dimensions from the argument shapes of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.export.symbolic_dims import Dim
from shardwise._src.types.array_type import ArrayType


def solved(
    what: str,
    wanted: Sequence[ArrayType],
    given: Sequence[ArrayType],
    names: Callable[[], list[str]],
) -> dict[str, int]:
    """The sizes of the variables in the expected types.

    names: returns the names of the arguments, for messages.

    Raises:
      ValueError: the argument types do not match the expected types.
    """
    rows = list(zip(wanted, given, strict=True))
    if all(w is g or (w.shape, w.dtype) == (g.shape, g.dtype) for w, g in rows):
        return {}
    for i, (w, g) in enumerate(rows):
        fits = len(w.shape) == len(g.shape) and all(
            isinstance(m, Dim) or m == n for m, n in zip(w.shape, g.shape, strict=True)
        )
        if w.dtype != g.dtype or not fits:
            raise ValueError(
                f"{what}: {names()[i]} must be of type {w.str_short(True)}; got "
                f"{g.str_short(True)}. Convert it, or export the function for such arguments."
            )
    pairs = [
        (m, n, i, d)
        for i, (w, g) in enumerate(rows)
        for d, (m, n) in enumerate(zip(w.shape, g.shape, strict=True))
        if isinstance(m, Dim)
    ]
    sizes = _sizes(pairs)
    for m, n, i, d in pairs:
        missing = m.variables() - {*sizes}
        if missing:
            raise ValueError(
                f"{what}: the symbolic dimension {m} of {names()[i]} does not determine "
                f"{' and '.join(sorted(missing))}, and no other dimension does. Export the "
                "function with an argument that has it alone as a dimension."
            )
        found = m.at(sizes)
        if found != n:
            raise ValueError(
                f"{what}: dimension {d} of {names()[i]} must be {m}, which is {found} for "
                f"{_text(sizes)}; got {n}, in {rows[i][1].str_short(True)}."
            )
    _check_scopes(what, {m.scope for m, *_ in pairs}, sizes)
    return sizes


def _sizes(pairs: Sequence[tuple[Dim, int, int, int]]) -> dict[str, int]:
    """Solves dimensions that contain one variable, with a coefficient and a constant."""
    sizes: dict[str, int] = {}
    found = True
    while found:
        found = False
        for dim, size, _, _ in pairs:
            left = dim.variables() - {*sizes}
            if len(left) != 1:
                continue
            name = left.pop()
            rest = dim.at({**sizes, name: Dim({((name, 1),): 1}, dim.scope)})
            slope, constant = rest.line(name) if isinstance(rest, Dim) else (0, 0)
            if slope and (size - constant) // slope > 0:
                sizes[name] = (size - constant) // slope
                found = True
    return sizes


def _check_scopes(what: str, scopes: set[Any], sizes: dict[str, int]) -> None:
    for scope in scopes:
        for c in scope.positive:
            if c.variables() <= {*sizes} and c.at(sizes) < 0:
                raise ValueError(
                    f"{what}: the constraint {c} >= 0 of the export does not hold for "
                    f"{_text(sizes)}."
                )


def _text(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
