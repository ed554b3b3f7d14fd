"""The rules table: which mesh axes shard each logical axis.

    with rules({"batch": "data", "heads": "model", "embed": stored("data"), "seq": None}, mesh):
        ...

The table is the whole vocabulary: an unknown logical axis is an error, not a dimension that is
silently replicated. It is part of all cache keys, so that a jitted function is traced again for
another table. Without rules logical axes are checked, and nothing is sharded.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.flags import UserContext, make_user_context
from shardwise._src.messages.formatting import join
from shardwise._src.named.logical_axes import ANY, Part, flat, parse
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

Axes = tuple[Any, ...]
MeshAxes = str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Mesh axes that shard a logical axis between steps; in use it is replicated. See `stored`."""

    axes: Axes


def stored(*axes: str) -> Stored:
    """For tables: a logical axis that is sharded when stored, and replicated in use.

    `{"batch": "data", "embed": stored("data")}` is FSDP: each device has a shard of each of the
    `parameters` and of the optimizer state, and these are gathered where `einsum` or `axes` uses
    them.
    """
    return Stored(axes)


@dataclass(frozen=True, slots=True)
class Rules:
    """A table and its mesh: the mesh axes of each logical axis, in use and when stored."""

    mesh: Mesh
    used: tuple[tuple[str, Axes], ...]
    kept: tuple[tuple[str, Axes], ...]

    def spec(
        self, parts: Sequence[Part], who: str, kept: bool = False, vmapped: Sequence[str] = ()
    ) -> PartitionSpec:
        """The PartitionSpec of a value with these dimensions.

        kept:    whether the value is stored between steps.
        vmapped: logical axes of the enclosing `vmap`s.

        Raises:
          ValueError: if a logical axis is missing in the table, or two share a mesh axis.
        """
        table = dict(self.kept if kept else self.used)
        self._check(flat(parts), list(vmapped), table, who)
        return PartitionSpec(*[_entry(part, table) for part in parts])

    def _check(
        self, words: list[str], vmapped: list[str], table: dict[str, Axes], who: str
    ) -> None:
        first: dict[str, str] = {}
        for word in [*vmapped, *words]:
            if word == ANY:
                continue
            if word not in table:
                raise ValueError(
                    f"{who}: the rules have no entry for {word!r}.{did_you_mean(word, table)} They "
                    f"have {join(table)}. Add it to the table: with None, it is replicated."
                )
            for axis in table[word]:
                if first.setdefault(axis, word) != word:
                    raise ValueError(
                        f"{who}: by the rules, {first[axis]!r} and {word!r} are both sharded over "
                        f"mesh axis {axis!r}, which can shard only one of them. Choose another for "
                        "one; or, if it should be sharded only where parameters and states are "
                        f"stored, use `stored({axis!r})`."
                    )


def _entry(part: Part, table: dict[str, Axes]) -> Any:
    """The mesh axes of a dimension. A group is sharded by its major axis, or by the partitioner."""
    words = (part,) if isinstance(part, str) else part
    if ANY in words or any(table[w] for w in words[1:]):
        return PartitionSpec.UNCONSTRAINED
    return (table[words[0]] or None) if words else None


_rules: UserContext[Rules | None] = make_user_context()


def current_rules() -> Rules | None:
    """The rules of the innermost enclosing `rules` block."""
    return _rules.value


@contextmanager
def rules(table: Mapping[str, MeshAxes | Stored], mesh: Mesh) -> Generator[Rules]:
    """A block in which logical axes are sharded by a table.

    Args:
      table: for each logical axis a mesh axis, several (major first), None (replicated), or
        `stored(...)`.
      mesh: the mesh with these axes, Auto or Explicit ones.

    Raises:
      ValueError: if the mesh does not have an axis. TypeError: for other entries.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"rules: mesh must be a Mesh; got {mesh!r} of type {type(mesh).__name__}.")
    if not isinstance(table, Mapping):
        raise TypeError(
            f"rules: the table must be a dict such as {{'batch': 'data'}}; got {table!r} of type "
            f"{type(table).__name__}."
        )
    used: list[tuple[str, Axes]] = []
    kept: list[tuple[str, Axes]] = []
    for word, entry in table.items():
        if len(parse(word, "rules")) != 1:
            raise ValueError(f"rules: a key of the table must be one axis name; got {word!r}.")
        axes = _axes(word, entry, mesh)
        used.append((word, () if isinstance(entry, Stored) else axes))
        kept.append((word, axes))
    found = Rules(mesh, tuple(used), tuple(kept))
    with _rules(found):
        yield found


def _axes(word: str, entry: Any, mesh: Mesh) -> Axes:
    given = entry.axes if isinstance(entry, Stored) else entry
    axes = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(axes, tuple | list):
        raise TypeError(
            f"rules: {word!r} must be sharded over a mesh axis, a tuple of them, None or "
            f"`stored(...)`; got {entry!r} of type {type(entry).__name__}."
        )
    for axis in axes:
        if axis not in mesh.axis_names:
            raise ValueError(
                f"rules: {word!r} is sharded over {axis!r}, but the axes of {mesh} are "
                f"{join(mesh.axis_names)}."
            )
    return tuple(axes)


def sharding_of(spec: PartitionSpec, mesh: Mesh) -> NamedSharding | None:
    """The sharding over the axes of the rules' mesh that are not Manual; None if all are Manual."""
    here = current().mesh
    if here is None or not here.manual_axes:
        return NamedSharding(mesh, spec)
    if len(here.manual_axes) == len(here.axis_names):
        return None
    rows = zip(spec, spec.dims(len(spec)), strict=True)
    entries: list[Any] = [
        entry
        if entry is PartitionSpec.UNCONSTRAINED
        else tuple([a for a in axes if a not in here.manual_axes])
        for entry, axes in rows
    ]
    return NamedSharding(here, PartitionSpec(*entries))
