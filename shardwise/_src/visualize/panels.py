"""The content of sharding visualizations, before anything is drawn.

A `Picture` is one or more `Panel`s: grids of `Cell`s with a `Line` for each row and column. Arrays
are drawn in the two dimensions that are split; if more are, there is a panel for each position
along the others. `Limits` bound a picture: excess lines are left out in the middle, with a line of
size None in their place.

The inputs are `devices_indices_map(shape)` of a sharding, `devices` and `axis_names` of a mesh, and
`id`, `platform` and the process of a device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.types.devices import Device, is_addressable, process_of, process_of_client

# A device has the same color in all pictures: white text is readable on each, and each is one of
# the 256 terminal colors. Labels distinguish more devices than twelve colors can.
COLORS = (
    "#005f87", "#af5f00", "#008700", "#870087", "#af0000", "#5f5f87",
    "#5f5f00", "#5f00d7", "#005f5f", "#875f00", "#af005f", "#005fd7",
)  # fmt: skip

Range = tuple[int, int]
Place = tuple[int, ...]


def device_color(device: Device) -> str:
    """The color of a device in every picture."""
    number: int = device.id
    return COLORS[number % len(COLORS)]


# ---- blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """An array split into a grid: the index ranges along each dimension, and each block's holders.

    `holders` maps the position of a block in the grid to its devices, in the order of replicas.
    """

    ranges: tuple[tuple[Range, ...], ...]
    holders: dict[Place, tuple[Device, ...]]

    @property
    def counts(self) -> Place:
        return tuple(len(ranges) for ranges in self.ranges)

    def block(self, place: Place) -> tuple[Range, ...]:
        """The ranges of the block at a position of the grid."""
        return tuple(ranges[at] for ranges, at in zip(self.ranges, place, strict=True))

    def shape(self, place: Place) -> tuple[int, ...]:
        """The shape of that block."""
        return tuple(stop - start for start, stop in self.block(place))


def blocks(shape: Sequence[int], sharding: Any) -> Blocks:
    """Reads the grid of blocks from `sharding.devices_indices_map(shape)`."""
    held: dict[tuple[Range, ...], list[Device]] = {}
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        block = tuple(_range(part, size) for part, size in zip(index, shape, strict=True))
        held.setdefault(block, []).append(device)
    ranges = tuple(tuple(sorted(set(along))) for along in zip(*held, strict=True))
    places = [{part: i for i, part in enumerate(along)} for along in ranges]
    holders = {
        tuple(place[part] for place, part in zip(places, block, strict=True)): tuple(devices)
        for block, devices in held.items()
    }
    return Blocks(ranges, holders)


def _range(part: slice, size: int) -> Range:
    start, stop, _ = part.indices(size)
    return start, stop


def index_text(index: Sequence[slice], shape: Sequence[int]) -> str:
    """`[0:2, 8:16]`, for an index of an array of that shape."""
    return block_text(_range(part, size) for part, size in zip(index, shape, strict=True))


def range_text(part: Range) -> str:
    return f"{part[0]}:{part[1]}"


def block_text(parts: Iterable[Range]) -> str:
    return f"[{', '.join(map(range_text, parts))}]"


def devices_text(devices: Sequence[Device], most: int = 16) -> str:
    """`CPU 0,1,2`, those of other processes as `p1:3`; if many, the ends and the count."""
    if len(devices) > most:
        ids = sorted(device.id for device in devices)
        return f"{devices[0].platform.upper()} {ids[0]},{ids[1]},…,{ids[-1]} ({len(ids)})"
    groups: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda device: device.id):
        groups.setdefault(owner_text(device), []).append(str(device.id))
    return ", ".join(owner + ",".join(ids) for owner, ids in groups.items())


def owner_text(device: Device) -> str:
    """The prefix of its id: `CPU `, or `p1:` for a device of process 1."""
    ours = is_addressable(device)
    return f"{device.platform.upper()} " if ours else f"p{process_of(device)}:"


def plain(name: Any) -> str:
    """An axis name as one line of printable text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(name))


# ---- pictures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A row or column: its label, and the number of elements it spans; None for omitted ones."""

    label: str
    size: int | None = 1


OMITTED = Line("…", None)


@dataclass(frozen=True)
class Cell:
    """One block of an array, or one position of a mesh.

    devices: its holders, in the order of replicas; index: its position, as readable text;
    shape: the shape of the block, or None in a mesh.
    """

    devices: tuple[Device, ...]
    index: str
    shape: tuple[int, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return self.shape is not None and 0 in self.shape


@dataclass(frozen=True)
class Panel:
    """One grid; a cell is None if the picture omits something there."""

    heading: str
    rows: list[Line]
    columns: list[Line]
    cells: list[list[Cell | None]]


@dataclass(frozen=True)
class Limits:
    """The most of each that a picture shows; at least three."""

    rows: int
    columns: int
    panels: int


@dataclass(frozen=True)
class Picture:
    panels: list[Panel]
    notes: list[str]


def shown(count: int, most: int) -> list[int | None]:
    """Positions 0..count-1, or `most` of them with None for a gap before the last."""
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]


def drawn_dims(cut: Blocks) -> tuple[int | None, int | None, list[int]]:
    """The dimensions drawn as rows and as columns, and the split ones that are neither."""
    split = [dim for dim, count in enumerate(cut.counts) if count > 1]
    whole = [dim for dim in range(len(cut.counts)) if dim not in split]
    rows, columns = [None, None, *sorted((whole + split)[-2:])][-2:]
    return rows, columns, [dim for dim in split if dim not in (rows, columns)]


def sharding_picture(cut: Blocks, limits: Limits) -> Picture:
    """The blocks of an array, within limits."""
    rows, columns, sliced = drawn_dims(cut)
    places = list(itertools.product(*(range(cut.counts[dim]) for dim in sliced)))
    chosen = shown(len(places), limits.panels)
    panels: list[Panel] = []
    for fixed in (dict(zip(sliced, places[i], strict=True)) for i in chosen if i is not None):
        heading = _heading(cut, rows, columns, fixed) if len(cut.counts) > 2 else ""
        down, along = _along(cut, rows, limits.rows), _along(cut, columns, limits.columns)
        cells = [[_block(cut, {**fixed, rows: i, columns: j}) for j in along] for i in down]
        panels.append(Panel(heading, _lines(cut, rows, down), _lines(cut, columns, along), cells))
    notes = _process_notes(d for devices in cut.holders.values() for d in devices)
    if None in chosen or any(None in row for panel in panels for row in panel.cells):
        notes = [f"{len(cut.holders):,} blocks, some of which are not shown.", *notes]
    return Picture(panels, notes)


def _along(cut: Blocks, dim: int | None, most: int) -> list[int | None]:
    return [0] if dim is None else shown(cut.counts[dim], most)


def _lines(cut: Blocks, dim: int | None, places: Sequence[int | None]) -> list[Line]:
    if dim is None:
        return [Line("")]
    ranges = [None if at is None else cut.ranges[dim][at] for at in places]
    return [Line(range_text(r), r[1] - r[0]) if r else OMITTED for r in ranges]


def _block(cut: Blocks, at: dict[int | None, int | None]) -> Cell | None:
    if None in at.values():
        return None
    place = tuple(at.get(dim) or 0 for dim in range(len(cut.counts)))
    return Cell(cut.holders.get(place, ()), block_text(cut.block(place)), cut.shape(place))


def _heading(cut: Blocks, rows: int | None, columns: int | None, fixed: dict[int, int]) -> str:
    """`[0:4, rows, :, columns]`: the positions of the drawn dimensions, and the others' ranges."""
    parts = [range_text(cut.ranges[dim][fixed[dim]]) if dim in fixed else ":"
             for dim in range(len(cut.counts))]  # fmt: skip
    for dim, name in ((rows, "rows"), (columns, "columns")):
        if dim is not None:
            parts[dim] = name
    return f"[{', '.join(parts)}]"


def _process_notes(devices: Iterable[Device]) -> list[str]:
    foreign = {process_of(d): d for d in devices if not is_addressable(d)}
    if not foreign:
        return []
    numbers = sorted(foreign)
    listed = f"p{numbers[0]}" + (f" to p{numbers[-1]}" if len(numbers) > 1 else "")
    kind = "other processes" if len(numbers) > 1 else "another process"
    here = process_of_client(foreign[numbers[0]])
    return [f"{listed}: devices of {kind}; this is process {here}."]


def mesh_picture(mesh: Any, limits: Limits) -> Picture:
    """The devices of a mesh at their positions, a panel for each position along leading axes."""
    devices, names = mesh.devices, [plain(name) for name in mesh.axis_names]
    grid = devices.reshape((1,) * max(2 - devices.ndim, 0) + devices.shape)
    *outer, down, along = grid.shape
    rows, columns = shown(down, limits.rows), shown(along, limits.columns)
    inner = [None, None, *names][-2:]
    chosen = shown(math.prod(outer), limits.panels)
    places = list(itertools.product(*map(range, outer)))

    def cell(place: Place) -> Cell:
        return Cell((grid[place],), position_text(names, place[-len(names) :] if names else ()))

    panels = [
        Panel(
            position_text(names, place),
            [_axis_line(inner[0], at) for at in rows],
            [_axis_line(inner[1], at) for at in columns],
            [[None if i is None or j is None else cell((*place, i, j)) for j in columns]
             for i in rows],
        )
        for place in (places[i] for i in chosen if i is not None)
    ]  # fmt: skip
    notes = _process_notes(devices.flat)
    if None in (*chosen, *rows, *columns):
        notes = [f"{devices.size:,} devices, some of which are not shown.", *notes]
    return Picture(panels, notes)


def _axis_line(name: str | None, at: int | None) -> Line:
    return OMITTED if at is None else Line("" if name is None else f"{name}={at}")


def position_text(names: Sequence[str], place: Sequence[int]) -> str:
    """`data=0, model=1`, for as many leading axes as `place` has."""
    return ", ".join(f"{name}={at}" for name, at in zip(names, place, strict=False))
