"""Named dimensions of a value: the entries of `in_axes` and `out_axes` of `xmap`.

The forms:

    {0: "batch"}          dimension 0 is the axis "batch"
    ["batch", None, ...]  the same, for values with at least two dimensions
    ["batch", None]       for values with exactly two
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from shardwise._src.arguments.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.messages.argument_names import Parameters
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType


@dataclass(frozen=True)
class NamedDims:
    """The named dimensions of a value.

    dims: name → dimension. ndim, least: exact or minimal rank. text: for messages.
    """

    dims: dict[Any, int]
    ndim: int | None
    least: int
    text: str

    def check(self, what: str, name: str, t: ArrayType, named: int = 0) -> None:
        """Raises if a value does not fit. named: how many dimensions its type does not have yet."""
        ndim, need = t.ndim + named, max([self.least, *[d + 1 for d in self.dims.values()]])
        if self.ndim is not None and ndim != self.ndim:
            wanted = f"is for {pluralize(self.ndim, 'dimension')}"
            hint = " End the list with `...` where more may follow."
        elif ndim < need:
            wanted, hint = f"needs {pluralize(need, 'dimension')}", ""
        else:
            return
        with_names = f", {ndim} dimensions including named ones" if named else ""
        raise ValueError(
            f"{what} for {name} is {self.text}, which {wanted}; it is of type "
            f"{t.str_short(True)}{with_names}.{hint}"
        )


def parsed(what: str, entry: Any) -> NamedDims:
    """Parses an entry of the user. what: `xmap of f: in_axes`."""
    ndim, least, text = None, 0, repr(entry).replace("Ellipsis", "...")
    if isinstance(entry, dict) and all(isinstance(d, int) for d in entry):
        pairs = [(name, d) for d, name in cast("dict[int, Any]", entry).items()]
    elif isinstance(entry, list | tuple):
        row = list(cast("Sequence[Any]", entry))
        opened = bool(row) and row[-1] is ...
        row = row[:-1] if opened else row
        if ... in row:
            raise ValueError(f"{what}: `...` may only be the last of a list; got {text}.")
        ndim, least = None if opened else len(row), len(row)
        pairs = [(name, d) for d, name in enumerate(row) if name is not None]
    else:
        raise TypeError(
            f"{what} must have dicts (dimension → name), lists of names, or pytrees of them; got "
            f"{short_repr(entry)}."
        )
    names = [name for name, _ in pairs]
    if twice := [n for i, n in enumerate(names) if n in names[:i]]:
        raise ValueError(
            f"{what}: {text} has {twice[0]!r} twice; the names of dimensions must be distinct."
        )
    if negative := [d for _, d in pairs if d < 0]:
        raise ValueError(
            f"{what}: {text} has the dimension {negative[0]}; negative dimensions are not "
            "supported."
        )
    return NamedDims(dict(pairs), ndim, least, text)


def is_entry(x: Any) -> bool:
    """Whether `x` is an entry, not a pytree of them."""
    values = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else None
    return values is not None and not any(isinstance(v, dict | list | tuple) for v in values)


def parsed_tree(what: str, axes: Any) -> list[NamedDims]:
    """All entries of a pytree."""
    return [parsed(what, entry) for entry in flatten(axes, is_entry)[0]]


def of_arguments(
    what: str, in_axes: Any, args: tuple[Any, ...], parameters: Parameters
) -> list[NamedDims]:
    """One for each leaf of the arguments."""
    if not args:
        return []
    prefix = tuple(in_axes) if isinstance(in_axes, list) and not is_entry(in_axes) else in_axes
    found = broadcast_to_arguments(prefix, args, what, parameters, is_entry)
    return [parsed(what, entry) for entry in found]


def of_results(what: str, out_axes: Any, skeleton: Any) -> list[NamedDims]:
    """One for each leaf of the results."""
    prefix = out_axes
    if isinstance(out_axes, list) and not is_entry(out_axes) and isinstance(skeleton, tuple):
        prefix = tuple(out_axes)
    found = broadcast_prefix(prefix, skeleton, what, is_entry, "result")
    return [parsed(what, entry) for entry in found]
