"""Which axes of arguments are mapped, and how many indices they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.core.infer import type_of


def axis_of(what: str, names: Callable[[], list[str]], i: int, x: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int):
        raise TypeError(f"{what}: axes must be ints or None; got {axis!r} for {names()[i]}.")
    t = type_of(x)
    if not -t.ndim <= axis < t.ndim:
        raise ValueError(
            f"{what}: {names()[i]} is of type {t.str_short(True)}, which has no axis {axis} to map "
            f"over. {SHARED_ADVICE}"
        )
    return axis % t.ndim


SHARED_ADVICE = "Pass arguments that all examples share by position, with None in in_axes."
SHOWN = 5  # arguments of each size in a message


def size_of(
    what: str, names: Callable[[], list[str]], values: list, dims: list, axis_size: int | None
) -> int:
    sizes = {type_of(x).shape[d] for x, d in zip(values, dims, strict=True) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        why = "all in_axes are None" if values else "it was called without arrays"
        raise ValueError(f"{what} needs an argument with a mapped axis, or axis_size: {why}.")
    if len(sizes) > 1:
        given = "" if axis_size is None else f"axis_size is {axis_size}, "
        rows = ", ".join(_sizes(names(), values, dims))
        raise ValueError(
            f"{what}: mapped axes must have the same size; {given}{rows}. {SHARED_ADVICE}"
        )
    return sizes.pop()


def _sizes(names: list[str], values: list, dims: list) -> list[str]:
    """The sizes of mapped axes for messages, grouped by size."""
    groups: dict[int, list[str]] = {}
    for n, x, d in zip(names, values, dims, strict=True):
        if d is not None:
            t = type_of(x)
            row = f"axis {d} of {n} of type {t.str_short(True)} has {t.shape[d]}"
            groups.setdefault(t.shape[d], []).append(row)
    rows = []
    for size, group in groups.items():
        rows += group[:SHOWN]
        if len(group) > SHOWN:
            rows.append(f"{len(group) - SHOWN} more have {size}")
    return rows
