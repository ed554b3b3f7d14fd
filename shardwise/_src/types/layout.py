"""Layouts: the order in which the elements of each shard are stored in memory.

    Layout((1, 0))                       # column-major: dimension 1 is the major one
    Format(Layout((1, 0)), sharding)     # the location of an array, and the element order there
    Format(Layout.AUTO, sharding)        # the compiler's choice, for inputs and results of `jit`

Row-major (dimension 0 major) is the default. A layout is about physical order only: the shape,
values and indices of an array do not change with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

from shardwise._src.base.caches import Interned
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import pluralize
from shardwise._src.types.frozen import Frozen
from shardwise._src.types.sharding_base import Sharding

Tiling = tuple[tuple[int, ...], ...]


class AutoLayout:
    """The type of `Layout.AUTO`."""

    def __repr__(self) -> str:
        return "AUTO"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("Layout.AUTO")


AUTO: Final = AutoLayout()


@final
class Layout(Frozen):
    """The order of elements in memory. Equal layouts are the same object.

    major_to_minor: the dimensions, from the one that varies slowest to the one that varies fastest.
    tiling:         sizes of nested tiles of the minor dimensions; None if untiled.
    """

    AUTO: ClassVar[AutoLayout] = AUTO
    major_to_minor: tuple[int, ...]
    tiling: Tiling | None

    def __new__(
        cls, major_to_minor: Sequence[int], tiling: Sequence[Sequence[int]] | None = None
    ) -> Layout:
        order = tuple(int(d) for d in major_to_minor)
        tiles = tuple(tuple(int(n) for n in tile) for tile in tiling or ()) or None
        found = _table.find((order, tiles))
        if found is not None:
            return found
        if sorted(order) != list(range(len(order))):
            raise ValueError(
                f"Layout: major_to_minor={order} must name each of the dimensions 0 to "
                f"{max(len(order) - 1, 0)} once."
            )
        if any(n < 1 for tile in tiles or () for n in tile):
            raise ValueError(f"Layout: tiling={tiles} must be of positive sizes.")
        layout = object.__new__(Layout)
        layout.__dict__.update(major_to_minor=order, tiling=tiles)
        return _table.keep((order, tiles), layout)

    @property
    def is_default(self) -> bool:
        """Whether it is row-major, without tiles."""
        return self.tiling is None and self.major_to_minor == tuple(range(len(self.major_to_minor)))

    def for_rank(self, ndim: int) -> Layout | None:
        """Returns the layout for arrays of `ndim` dimensions: None if it is the default one.

        Raises ValueError if the rank does not match.
        """
        rank = len(self.major_to_minor)
        if rank != ndim:
            mine = pluralize(rank, "dimension")
            raise ValueError(f"{self} is for {mine}, but the array has {ndim}.")
        return None if self.is_default else self

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("Layout", self.major_to_minor, self.tiling)

    def __repr__(self) -> str:
        tiles = "" if self.tiling is None else f", tiling={self.tiling}"
        return f"Layout(major_to_minor={self.major_to_minor}{tiles})"

    def as_text(self) -> str:
        """The layout in XLA's syntax: the minor dimension first, `{0,1:T(8,128)}`."""
        order = ",".join(map(str, reversed(self.major_to_minor)))
        tiles = "".join(f"({','.join(map(str, t))})" for t in self.tiling or ())
        return f"{{{order}{':T' + tiles if tiles else ''}}}"


_table: Interned[Layout] = Interned(__name__, "layouts", 64)


def layout_from_text(text: str) -> Layout:
    """Parses the output of `Layout.as_text`; XLA's memory annotations are ignored."""
    order, _, rest = text.strip("{}").partition(":")
    minor_to_major = [int(d) for d in order.split(",") if d]
    found = re.search(r"T((?:\([\d,]+\))+)", rest)
    tiles = re.findall(r"\(([\d,]+)\)", found[1]) if found else []
    return Layout(minor_to_major[::-1], [[int(n) for n in t.split(",")] for t in tiles])


@final
class Format(Frozen):
    """A layout and a sharding: everything about where the elements of an array are stored.

    layout:   a `Layout`, `Layout.AUTO`, or None for the default one.
    sharding: a sharding; may be None unless `layout` is a `Layout`.
    """

    layout: Layout | AutoLayout | None
    sharding: Sharding | None

    def __new__(
        cls, layout: Layout | AutoLayout | None = None, sharding: Sharding | None = None
    ) -> Format:
        given: tuple[Any, Any] = layout, sharding
        if not isinstance(given[0], Layout | AutoLayout | None):
            raise TypeError(
                f"Format: layout must be a Layout, Layout.AUTO or None; got {layout!r} of type "
                f"{type(layout).__name__}."
            )
        if not isinstance(given[1], Sharding | None):
            raise TypeError(
                f"Format: sharding must be a Sharding or None; got {sharding!r} of type "
                f"{type(sharding).__name__}."
            )
        if isinstance(layout, Layout) and sharding is None:
            raise ValueError(
                f"Format: {layout} needs a sharding, got None: it specifies how each shard is laid "
                "out in memory. Pass a NamedSharding or a SingleDeviceSharding."
            )
        format = object.__new__(Format)
        format.__dict__.update(layout=layout, sharding=sharding)
        return format

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Format):
            return NotImplemented
        return self.layout is other.layout and self.sharding == other.sharding

    def __hash__(self) -> int:
        return hash((self.layout, self.sharding))

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("Format", self.layout, self.sharding)

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


read_by("Layout.AUTO", lambda: AUTO)
read_by("Layout", Layout)
read_by("Format", Format)
