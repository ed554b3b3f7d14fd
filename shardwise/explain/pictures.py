"""Pictures of shardings and meshes for the terminal: which devices hold which block.

    visualize_array_sharding(x)
    console.print(ShardingPicture(x.shape, x.sharding))

An 8 x 16 array over `P("data", None)` of a 4 x 2 mesh begins:

         0:16
        ┌─────────┐
    0:2 │ CPU 0,1 │
        ├─────────┤
    2:4 │ CPU 2,3 │

Rows and columns of boxes are the blocks of the array; the labels are index ranges. Arrays of more
than two dimensions are drawn in the two that are split; if more are split, as one picture for each
slice; if there are too many boxes for the terminal, as a table of blocks.

A sharding is only asked for `devices_indices_map(shape)`, a mesh for `devices` and `axis_names`,
a device for `id` and `platform`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

COLORS = (
    "color(24)", "color(130)", "color(28)", "color(90)", "color(30)", "color(94)", "color(60)",
    "color(52)", "color(65)", "color(18)", "color(88)", "color(58)", "color(54)", "color(23)",
)  # fmt: skip
MAX_ROWS = 32  # boxes down one picture
MAX_SLICES = 8  # pictures for one array
MAX_LISTED = 64  # rows of the table of blocks

Range = tuple[int, int]


# ---- blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """An array cut into a grid: the index ranges along each dimension, and who holds each block.

    `holders` maps the position of a block in the grid to its devices, ordered by id.
    """

    ranges: tuple[tuple[Range, ...], ...]
    holders: dict[tuple[int, ...], tuple[Any, ...]]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(len(ranges) for ranges in self.ranges)


def blocks(shape: Sequence[int], sharding: Any) -> Blocks:
    """Reads the grid of blocks from `sharding.devices_indices_map(shape)`."""
    held: dict[tuple[Range, ...], list] = {}
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        block = tuple(_range(part, size) for part, size in zip(index, shape, strict=True))
        held.setdefault(block, []).append(device)
    ranges = tuple(tuple(sorted(set(along))) for along in zip(*held, strict=True))
    places = [{part: i for i, part in enumerate(along)} for along in ranges]
    holders = {
        tuple(place[part] for place, part in zip(places, block, strict=True)): tuple(
            sorted(devices, key=lambda device: device.id)
        )
        for block, devices in held.items()
    }
    return Blocks(ranges, holders)


def _range(part: slice, size: int) -> Range:
    start, stop, _ = part.indices(size)
    return start, stop


def _range_text(part: Range) -> str:
    return f"{part[0]}:{part[1]}"


# ---- boxes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """One cell of a grid: its text and the colour behind it."""

    text: str
    color: str = ""


@dataclass(frozen=True)
class Grid:
    """Boxes in rows and columns with labels above and to the left."""

    rows: list[list[Box]]
    row_labels: list[str]
    column_labels: list[str]

    def natural_width(self) -> int:
        widest = max(len(box.text) for row in self.rows for box in row)
        return max(widest, *(len(label) for label in self.column_labels)) + 2

    def box_width(self, least: int, most: int) -> int | None:
        """The width inside a box, or None where even narrow boxes do not fit into `most`."""
        columns = len(self.column_labels)
        room = (most - self.margin() - 1) // columns - 1
        narrowest = max(6, *(len(label) for label in self.column_labels))
        return None if room < narrowest else min(room, max(self.natural_width(), least))

    def margin(self) -> int:
        return max(len(label) for label in self.row_labels) + 1

    def render(self, width: int) -> Text:
        """Draws the grid with `width` characters inside each box."""
        blank = " " * self.margin()
        out = Text(no_wrap=True)
        if any(self.column_labels):
            labels = "".join(" " + label.ljust(width) for label in self.column_labels)
            out.append((blank + labels).rstrip() + "\n")
        line = "─" * width
        last = len(self.rows) - 1
        out.append(blank + "┌" + "┬".join([line] * len(self.column_labels)) + "┐\n")
        for i, (label, row) in enumerate(zip(self.row_labels, self.rows, strict=True)):
            self._append_row(out, label, row, width)
            left, middle, right = "└┴┘" if i == last else "├┼┤"
            out.append(blank + left + middle.join([line] * len(row)) + right)
            out.append("" if i == last else "\n")
        return out

    def _append_row(self, out: Text, label: str, row: list[Box], width: int) -> None:
        texts = [_wrap(box.text, width - 2) for box in row]
        height = max(map(len, texts))
        for line in range(height):
            out.append((label if line == (height - 1) // 2 else "").rjust(self.margin() - 1) + " │")
            for box, lines in zip(row, texts, strict=True):
                skipped = (height - len(lines)) // 2
                here = lines[line - skipped] if 0 <= line - skipped < len(lines) else ""
                out.append(here.center(width), style=f"white on {box.color}" if box.color else "")
                out.append("│")
            out.append("\n")


def _wrap(text: str, width: int) -> list[str]:
    """Breaks a device list at spaces and after commas."""
    lines = [""]
    for piece in text.replace(" ", " \0").replace(",", ",\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip()[:width] for line in lines]


def _devices_text(devices: Sequence[Any], most: int = 16) -> str:
    """`CPU 0,1,2`; long lists show their ends and their length."""
    ids = [str(device.id) for device in devices]
    listed = ",".join(ids)
    if len(ids) > most:
        listed = f"{ids[0]},{ids[1]},…,{ids[-1]} ({len(ids)})"
    return f"{devices[0].platform.upper()} {listed}"


# ---- shardings -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardingPicture:
    """A rich renderable: an array's blocks as boxes with the devices that hold them.

    Args:
        shape: the shape of the whole array.
        sharding: anything with `devices_indices_map(shape)`.
        use_color: one background colour per block.
        min_width: the least width of a box.
        max_width: the most columns to use; the console's width if None.
    """

    shape: tuple[int, ...]
    sharding: Any
    use_color: bool = True
    min_width: int = 9
    max_width: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        most = min(options.max_width, self.max_width or options.max_width)
        cut = blocks(self.shape, self.sharding)
        split = [axis for axis, count in enumerate(cut.counts) if count > 1]
        yield from self._pictures(cut, split, most) or [self._table(cut)]

    def _pictures(self, cut: Blocks, split: list[int], most: int) -> list[RenderableType]:
        """A picture for each slice, or nothing where that would not fit."""
        whole = [axis for axis in range(len(self.shape)) if axis not in split]
        drawn = sorted((whole + split)[-2:])
        sliced = [axis for axis in split if axis not in drawn]
        places = list(itertools.product(*(range(cut.counts[axis]) for axis in sliced)))
        if len(places) > MAX_SLICES:
            return []
        out: list[RenderableType] = []
        for place in places:
            fixed = dict(zip(sliced, place, strict=True))
            grid = self._grid(cut, drawn, fixed)
            width = grid.box_width(self.min_width - 2, most)
            if width is None or len(grid.rows) > MAX_ROWS:
                return []
            if len(self.shape) > 2:
                out.append(Text(self._heading(cut, drawn, fixed)))
            out.append(grid.render(width))
        return out

    def _heading(self, cut: Blocks, drawn: list[int], fixed: dict[int, int]) -> str:
        """`[0:4, rows, :, columns]`: where the two drawn dimensions are, what the others hold."""
        names = {drawn[0]: "rows", drawn[1]: "columns"}
        parts = [
            names.get(axis)
            or (_range_text(cut.ranges[axis][fixed[axis]]) if axis in fixed else ":")
            for axis in range(len(self.shape))
        ]
        return f"[{', '.join(parts)}]"

    def _grid(self, cut: Blocks, drawn: list[int], fixed: dict[int, int]) -> Grid:
        """The boxes of one slice; one-dimensional arrays are a row, scalars a single box."""
        columns = drawn[-1] if drawn else None
        rows = drawn[-2] if len(drawn) == 2 else None
        down = cut.counts[rows] if rows is not None else 1
        along = cut.counts[columns] if columns is not None else 1

        def box(i: int, j: int) -> Box:
            at = {**fixed, rows: i, columns: j}
            place = tuple(at.get(axis, 0) for axis in range(len(self.shape)))
            devices = cut.holders.get(place)
            if devices is None:
                return Box("-")
            return Box(_devices_text(devices), self._color(cut, place))

        return Grid(
            rows=[[box(i, j) for j in range(along)] for i in range(down)],
            row_labels=_labels(cut, rows, down),
            column_labels=_labels(cut, columns, along),
        )

    def _color(self, cut: Blocks, place: tuple[int, ...]) -> str:
        if not self.use_color:
            return ""
        number = 0
        for at, count in zip(place, cut.counts, strict=True):
            number = number * count + at
        return COLORS[number % len(COLORS)]

    def _table(self, cut: Blocks) -> Table:
        """A row per block, for arrays with too many blocks or split dimensions to draw."""
        table = Table("block", "devices")
        for place in sorted(cut.holders)[:MAX_LISTED]:
            parts = (_range_text(cut.ranges[axis][at]) for axis, at in enumerate(place))
            style = self._color(cut, place)
            devices = Text(_devices_text(cut.holders[place]), f"white on {style}" if style else "")
            table.add_row(f"[{', '.join(parts)}]".replace("[", "\\["), devices)
        if len(cut.holders) > MAX_LISTED:
            table.add_row(f"… {len(cut.holders) - MAX_LISTED:,} more blocks", "")
        return table


def _labels(cut: Blocks, axis: int | None, count: int) -> list[str]:
    return [""] * count if axis is None else [_range_text(part) for part in cut.ranges[axis]]


def visualize_sharding(
    shape: Sequence[int],
    sharding: Any,
    *,
    use_color: bool = True,
    min_width: int = 9,
    max_width: int | None = None,
    console: Console | None = None,
) -> None:
    """Prints which devices hold which block of an array of this shape.

    Args:
        shape: the shape of the whole array; any rank.
        sharding: anything with `devices_indices_map(shape)`.
        use_color: one background colour per block.
        min_width: the least width of a box.
        max_width: the most columns to use; the terminal's width if None.
        console: where to print; a new console on standard output if None.
    """
    picture = ShardingPicture(tuple(shape), sharding, use_color, min_width, max_width)
    (console or Console()).print(picture)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Prints which devices hold which block of `arr`; options as for `visualize_sharding`."""
    visualize_sharding(arr.shape, arr.sharding, **options)


# ---- meshes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeshPicture:
    """A rich renderable: a mesh's devices as boxes, rows and columns named by axis.

    Meshes of more than two axes are drawn as one picture for each position along the others.
    """

    mesh: Any
    max_width: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        most = min(options.max_width, self.max_width or options.max_width)
        devices, names = self.mesh.devices, tuple(self.mesh.axis_names)
        sizes = ", ".join(
            f"{name}: {size}" for name, size in zip(names, devices.shape, strict=True)
        )
        yield Text(f"mesh of {devices.size} devices ({sizes})")
        outer = devices.shape[:-2]
        pictures: list[RenderableType] = []
        for place in itertools.product(*map(range, outer)):
            grid = self._grid(devices[place], names[-2:])
            width = grid.box_width(7, most)
            if width is None or len(grid.rows) > MAX_ROWS or math.prod(outer) > MAX_SLICES:
                pictures = [Text(_id_lines(devices, names))]
                break
            if place:
                pictures.append(Text(_position(names, place)))
            pictures.append(grid.render(width))
        yield Group(*pictures)

    def _grid(self, devices: Any, names: Sequence[str]) -> Grid:
        rows = devices.reshape(-1, devices.shape[-1]) if devices.ndim else devices.reshape(1, 1)
        down, along = rows.shape
        return Grid(
            rows=[[Box(_devices_text([device])) for device in row] for row in rows],
            row_labels=[f"{names[-2]}={i}" for i in range(down)] if len(names) == 2 else [""],
            column_labels=[f"{names[-1]}={j}" for j in range(along)] if names else [""],
        )


def _position(names: Sequence[str], place: Sequence[int]) -> str:
    """`data=0, model=1`, for as many leading axes as `place` has."""
    return ", ".join(f"{names[axis]}={at}" for axis, at in enumerate(place))


def _id_lines(devices: Any, names: Sequence[str]) -> str:
    """Device ids only, a line for each row of the mesh, for meshes too large for boxes."""
    lines = []
    for place in itertools.product(*map(range, devices.shape[:-1])):
        label = _position(names, place)
        ids = " ".join(str(device.id) for device in devices[place])
        lines.append(f"{label}: {ids}" if label else ids)
    if len(lines) > MAX_LISTED:
        lines = [*lines[:MAX_LISTED], f"… {len(lines) - MAX_LISTED:,} more rows"]
    return "\n".join(lines)


def visualize_mesh(mesh: Any, *, console: Console | None = None) -> None:
    """Prints a mesh's devices at their places."""
    (console or Console()).print(MeshPicture(mesh))
