"""Axes of meshes: names, types, and the parsing of arguments that specify them."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from shardwise._src.base.lazy import public
from shardwise._src.messages.formatting import pluralize

AxisName: TypeAlias = Any


@public("shardwise.sharding")
class AxisType(enum.Enum):
    """How arrays are split along a mesh axis.

    Auto: the compiler decides. Explicit: the types of arrays record it. Manual: the program sees
    one shard and communicates explicitly, as in `shard_map`.
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def axis_names_of(axis_names: Any) -> tuple[AxisName, ...]:
    if isinstance(axis_names, str):
        return (axis_names,)
    if not isinstance(axis_names, Iterable):
        raise TypeError(f"axis_names must be a name or a sequence of names, got {axis_names!r}.")
    names = tuple(cast("Iterable[AxisName]", axis_names))
    if not all(isinstance(name, Hashable) for name in names):
        raise TypeError(f"the names of mesh axes must be hashable, got axis_names={names!r}.")
    if None in names:
        raise ValueError(f"None cannot name a mesh axis; got axis_names={names!r}.")
    if len(set(names)) != len(names):
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        raise ValueError(f"mesh axis names must differ, but {names!r} has {twice[0]!r} twice.")
    return names


def types_of(
    axis_types: Any, names: tuple[AxisName, ...], default: AxisType
) -> tuple[AxisType, ...]:
    if axis_types is None:
        return (default,) * len(names)
    if isinstance(axis_types, AxisType):
        return (axis_types,) * len(names)
    types = tuple(cast("Iterable[Any]", axis_types))
    for given in types:
        if not isinstance(given, AxisType):
            raise TypeError(f"axis_types must be AxisType members, got {given!r}.")
    if len(types) != len(names):
        raise ValueError(
            f"a mesh got {pluralize(len(types), 'axis type')}, {types!r}, "
            f"but {pluralize(len(names), 'axis name')}, {names!r}."
        )
    return types


def split_pairs(pairs: Sequence[Any]) -> tuple[tuple[int, ...], tuple[AxisName, ...]]:
    for pair in pairs:
        if not isinstance(pair, tuple) or len(cast("tuple[Any, ...]", pair)) != 2:
            raise TypeError(
                "AbstractMesh takes sizes and names, or pairs (name, size) alone; "
                f"got {tuple(pairs)!r} and no names."
            )
    return tuple(size for _, size in pairs), tuple(name for name, _ in pairs)
