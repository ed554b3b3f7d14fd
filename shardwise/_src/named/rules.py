"""The one table: which mesh axes each word goes over.

    with rules({"batch": "data", "heads": "model", "embed": stored("data"), "seq": None}, mesh):
        ...

The table is the whole vocabulary: a word that it does not have is an error, not a dimension that is
quietly whole. It is a part of the keys of caches, so that a jitted function is traced again for
another table. Without rules words are checked, and nothing is placed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.flags import UserContext, make_user_context
from shardwise._src.messages.words import join
from shardwise._src.named.words import ANY, Part, flat, parse
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

Axes = tuple[Any, ...]
MeshAxes = str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Mesh axes of a word in what is kept between steps; in use it is whole. See `stored`."""

    axes: Axes


def stored(*axes: str) -> Stored:
    """For tables: a word that is split over mesh axes in what is kept, and whole in use.

    `{"batch": "data", "embed": stored("data")}` is fully sharded: of each of the `parameters`, and
    of the state of an optimiser, each device has a part, and they are whole where `einsum` or
    `axes` speaks of them.
    """
    return Stored(axes)


@dataclass(frozen=True, slots=True)
class Rules:
    """A table and its mesh: for each word the mesh axes in use, and of what is kept."""

    mesh: Mesh
    used: tuple[tuple[str, Axes], ...]
    kept: tuple[tuple[str, Axes], ...]

    def spec(
        self, parts: Sequence[Part], who: str, kept: bool = False, beside: Sequence[str] = ()
    ) -> PartitionSpec:
        """The PartitionSpec of a value with these dimensions.

        kept:   whether it is what is kept between steps.
        beside: words that `vmap` maps around it.

        Raises:
          ValueError: for a word that the table does not have, and where two words go over one mesh
            axis.
        """
        table = dict(self.kept if kept else self.used)
        self._check(flat(parts), list(beside), table, who)
        return PartitionSpec(*[_entry(part, table) for part in parts])

    def _check(self, words: list[str], beside: list[str], table: dict[str, Axes], who: str) -> None:
        first: dict[str, str] = {}
        for word in [*beside, *words]:
            if word == ANY:
                continue
            if word not in table:
                raise ValueError(
                    f"{who}: the rules do not know {word!r}.{did_you_mean(word, table)} They have "
                    f"{join(table)}. Add it to the table: with None, it is whole on each device."
                )
            for axis in table[word]:
                if first.setdefault(axis, word) != word:
                    raise ValueError(
                        f"{who}: by the rules, {first[axis]!r} and {word!r} both go over mesh axis "
                        f"{axis!r}, which can split one of them only. Send one elsewhere; or, if "
                        "it is to be split only where parameters and states are kept, give it "
                        f"`stored({axis!r})`."
                    )


def _entry(part: Part, table: dict[str, Axes]) -> Any:
    """What splits a dimension. A group is split by its major word, or as the partitioner likes."""
    words = (part,) if isinstance(part, str) else part
    if ANY in words or any(table[w] for w in words[1:]):
        return PartitionSpec.UNCONSTRAINED
    return (table[words[0]] or None) if words else None


_rules: UserContext[Rules | None] = make_user_context()


def current_rules() -> Rules | None:
    """The rules of the innermost `rules` block around."""
    return _rules.value


@contextmanager
def rules(table: Mapping[str, MeshAxes | Stored], mesh: Mesh) -> Generator[Rules]:
    """A block in which words go where a table says.

    Args:
      table: for each word a mesh axis, several (major first), None (whole), or `stored(...)`.
      mesh: whose axes these are, Auto or Explicit ones.

    Raises:
      ValueError: for an axis that the mesh does not have. TypeError: for other entries.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"rules: mesh is a Mesh; got {mesh!r} of type {type(mesh).__name__}.")
    if not isinstance(table, Mapping):
        raise TypeError(
            f"rules: the table is a dict such as {{'batch': 'data'}}; got {table!r} of type "
            f"{type(table).__name__}."
        )
    used: list[tuple[str, Axes]] = []
    kept: list[tuple[str, Axes]] = []
    for word, entry in table.items():
        if len(parse(word, "rules")) != 1:
            raise ValueError(f"rules: a key of the table is one word; got {word!r}.")
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
            f"rules: {word!r} goes over a mesh axis, a tuple of them, None or `stored(...)`; got "
            f"{entry!r} of type {type(entry).__name__}."
        )
    for axis in axes:
        if axis not in mesh.axis_names:
            raise ValueError(
                f"rules: {word!r} goes over {axis!r}, but the axes of {mesh} are "
                f"{join(mesh.axis_names)}."
            )
    return tuple(axes)


def sharding_of(spec: PartitionSpec, mesh: Mesh) -> NamedSharding | None:
    """Over the axes of the rules' mesh that are not Manual here; None where all of them are."""
    here = current().mesh
    if here is None or not here.manual_axes:
        return NamedSharding(mesh, spec)
    if len(here.manual_axes) == len(here.axis_names):
        return None
    rows = zip(spec, spec.dims(len(spec)), strict=True)
    entries: list[Any] = [
        entry if entry is PartitionSpec.UNCONSTRAINED
        else tuple([a for a in axes if a not in here.manual_axes])
        for entry, axes in rows
    ]
    return NamedSharding(here, PartitionSpec(*entries))
