"""Solves for the variables of symbolic dimensions from the argument shapes of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.export.symbolic_dims import Dim
from shardwise._src.types.array_type import ArrayType


def solved(
    what: str,
    wanted: Sequence[ArrayType],
    given: Sequence[ArrayType],
    names: Callable[[], list[str]],
) -> dict[str, Any]:
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
    sizes = _sizes(what, pairs, lambda i: f"{names()[i]}, of type {rows[i][1].str_short(True)}")
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
    for scope in {m.scope for m, *_ in pairs}:
        _check_constraints(what, scope, sizes)
    return sizes


def _sizes(
    what: str, pairs: Sequence[tuple[Dim, Any, int, int]], name_of: Callable[[int], str]
) -> dict[str, Any]:
    """Solves dimensions that contain one variable, with a coefficient and a constant."""
    sizes: dict[str, Any] = {}
    found = True
    while found:
        found = False
        for dim, size, i, d in pairs:
            left = dim.variables() - {*sizes}
            if len(left) != 1:
                continue
            (name,) = left
            constant, slope = _line(dim, name, sizes)
            if not isinstance(slope, Dim) and not slope:
                continue
            value = (size - constant) // slope
            if not _holds(lambda value=value: value >= 1):
                raise ValueError(
                    f"{what}: dimension {d} of {name_of(i)}, must be {dim}: {name} would be "
                    f"{value}, but is at least 1."
                )
            sizes[name] = value
            found = True
    return sizes


def _line(dim: Dim, name: str, sizes: dict[str, Any]) -> tuple[Any, Any]:
    """Constant and slope of a dimension as a linear function of a variable; 0, 0 if it is not one.

    sizes: the values of the other variables, which may be dimensions of another scope.
    """
    ends = [0, 0]
    for factors, count in dim.terms:
        rest = Dim({tuple([row for row in factors if row[0] != name]): count}, dim.scope)
        power = dict(factors).get(name, 0)
        if power > 1 or name in rest.variables():
            return 0, 0
        ends[power] += rest.at(sizes)
    return ends[0], ends[1]


def _holds(compare: Callable[[], bool]) -> bool:
    """Whether a comparison holds for all sizes of symbolic dimensions."""
    try:
        return compare()
    except InconclusiveDimensionOperation:
        return False


def _check_constraints(what: str, scope: Any, sizes: dict[str, Any]) -> None:
    known = {**sizes}
    for factor, value in scope.equal.items():  # variables that a constraint replaces
        if isinstance(factor, str) and factor not in known and _given(value, known):
            known[factor] = _at(value, known)
    rows = [(c, ">=", 0) for c in scope.positive] + [(a, "==", b) for a, b in scope.equations]
    for left, sign, right in rows:
        if not (_given(left, known) and _given(right, known)):
            continue
        a, b = left.at(known), _at(right, known)
        fails = (lambda a=a, b=b: a < b) if sign == ">=" else (lambda a=a, b=b: bool(a - b))
        if _holds(fails):
            raise ValueError(
                f"{what}: the constraint {left} {sign} {right} of the export does not hold for "
                f"{_text(sizes)}."
            )


def _at(x: Any, sizes: dict[str, Any]) -> Any:
    return x.at(sizes) if isinstance(x, Dim) else x


def _given(x: Any, sizes: dict[str, Any]) -> bool:
    return not isinstance(x, Dim) or x.variables() <= {*sizes}


def _text(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
