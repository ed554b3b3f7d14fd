"""Visualizations of shardings and meshes for the terminal: which devices hold which block.

    visualize_array_sharding(x)
    console.print(ShardingPicture(x.shape, x.sharding))

An 8 x 16 array over `P("data", None)` of a 4 x 2 mesh begins:

         0:16
        ┌─────────┐
    0:2 │ CPU 0,1 │
        ├─────────┤
    2:4 │ CPU 2,3 │

Rows and columns of boxes are the blocks of the array; the labels are index ranges. Blocks of
different sizes are drawn to scale if there is room. An array that does not fit is shown as a table
of blocks or, if there are many blocks, as a drawing without the middle. A box has the color of its
first device.

`visualize.panels` decides what to draw; this module draws it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from shardwise._src.debug.inspect_array_sharding import inspect_array_sharding
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.visualize.panels import (
    Blocks,
    Cell,
    Limits,
    Line,
    Panel,
    Picture,
    block_text,
    blocks,
    device_color,
    devices_text,
    drawn_dims,
    mesh_picture,
    plain,
    position_text,
    sharding_picture,
)

MAX_ROWS = 32  # rows of boxes in one drawing
MAX_PANELS = 8  # drawings for one array
MAX_LISTED = 64  # rows of the table of blocks
MAX_LINES = 4  # maximum height of a box, in lines of text
NARROWEST = 6  # minimum inner width of a box
ColorMap = Callable[[float], Sequence[float]]


# ---- boxes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A panel as text: boxes with labels above and to the left.

    least: the minimum inner width of a box; most: the columns of the terminal;
    scale: factor by which boxes are wider and higher than necessary.
    colors: by a box's set of devices, instead of the color of its first device.
    """

    panel: Panel
    least: int
    most: int
    scale: float = 1.0
    use_color: bool = True
    colors: Mapping[Any, str] | None = None

    @property
    def margin(self) -> int:
        return max(len(line.label) for line in self.panel.rows) + 1

    def fits(self) -> bool:
        return self.margin + 1 + sum(width + 1 for width in self._narrowest()) <= self.most

    def _narrowest(self) -> list[int]:
        columns = zip(self.panel.columns, *self.panel.cells, strict=True)
        return [max(len(line.label), *map(_least_width, cells)) for line, *cells in columns]

    def widths(self) -> list[int]:
        """The inner width of each box: at least that of its text; more if drawn to scale."""
        texts = [_box_text(cell) for row in self.panel.cells for cell in row]
        texts += [line.label for line in self.panel.columns]
        wanted = max(max(map(len, texts)) + 2, self.least) * self.scale
        narrowest = self._narrowest()
        widths = [
            max(round(wanted * times), least)
            for times, least in zip(_ratios(self.panel.columns), narrowest, strict=True)
        ]
        room = self.most - self.margin - 1 - len(widths)
        if sum(widths) > room:  # share the space beyond the minimum widths
            spare = (room - sum(narrowest)) / (sum(widths) - sum(narrowest))
            widths = [n + int((w - n) * spare) for w, n in zip(widths, narrowest, strict=True)]
        return widths

    def heights(self) -> list[int]:
        """The minimum number of lines in each row of boxes."""
        ratios = _ratios(self.panel.rows)
        return [max(round(min(times, MAX_LINES) * self.scale), 1) for times in ratios]

    def render(self) -> Text:
        widths, blank = self.widths(), " " * self.margin
        out = Text(no_wrap=True)
        if any(line.label for line in self.panel.columns):
            pairs = zip(self.panel.columns, widths, strict=True)
            labels = " ".join([line.label.ljust(width) for line, width in pairs])
            out.append(f"{blank} {labels}".rstrip() + "\n")
        bars = ["─" * width for width in widths]
        last = len(self.panel.rows) - 1
        out.append(blank + "┌" + "┬".join(bars) + "┐\n")
        rows = zip(self.panel.rows, self.panel.cells, self.heights(), strict=True)
        for i, (line, cells, height) in enumerate(rows):
            self._append_row(out, line, cells, widths, height)
            left, middle, right = "└┴┘" if i == last else "├┼┤"
            out.append(blank + left + middle.join(bars) + right)
            out.append("" if i == last else "\n")
        return out

    def _append_row(
        self, out: Text, line: Line, cells: list[Cell | None], widths: list[int], least: int
    ) -> None:
        pairs = zip(cells, widths, strict=True)
        texts = [_wrap(_box_text(cell), width - 2) for cell, width in pairs]
        height = max(least, *map(len, texts))
        for row in range(height):
            label = line.label if row == (height - 1) // 2 else ""
            out.append(label.rjust(self.margin - 1) + " │")
            for cell, lines, width in zip(cells, texts, widths, strict=True):
                skipped = (height - len(lines)) // 2
                here = lines[row - skipped] if 0 <= row - skipped < len(lines) else ""
                out.append(here.center(width), style=self._style(cell))
                out.append("│")
            out.append("\n")

    def _style(self, cell: Cell | None) -> str:
        if not self.use_color or cell is None or cell.is_empty:
            return ""
        return _style(cell.devices, self.colors)


def _ratios(lines: Sequence[Line]) -> list[float]:
    """The size of each line relative to the smallest: 1 if empty, 0 if omitted."""
    smallest = min((line.size for line in lines if line.size), default=1)
    return [0 if line.size is None else (line.size or smallest) / smallest for line in lines]


def _style(devices: Sequence[Any], colors: Mapping[Any, str] | None = None) -> str:
    if not devices:
        return ""
    return colors[tuple(devices)] if colors else f"white on {device_color(devices[0])}"


def _styles(cut: Blocks, color_map: ColorMap | None) -> dict[Any, str] | None:
    """The style of each set of devices: colors of the map, with distinct ones for neighbors."""
    if color_map is None:
        return None
    groups = list(dict.fromkeys(cut.holders[place] for place in sorted(cut.holders)))
    count, styles = len(groups), {}
    step = next(s for s in range(count // 2 + 1, count + 2) if math.gcd(s, count) == 1)
    for i, group in enumerate(groups):
        r, g, b = (round(255 * c) for c in color_map(i * step % count / max(count - 1, 1))[:3])
        ink = "black" if 0.299 * r + 0.587 * g + 0.114 * b > 186 else "white"
        styles[group] = f"{ink} on #{r:02x}{g:02x}{b:02x}"
    return styles


def _box_text(cell: Cell | None) -> str:
    if cell is None:
        return "…"
    text = devices_text(cell.devices) if cell.devices else "-"
    return f"{text} (empty)" if cell.is_empty else text


def _least_width(cell: Cell | None) -> int:
    """The minimum width of a box whose text breaks only at allowed positions."""
    return 3 if cell is None else max(NARROWEST, *(len(p) + 2 for p in _pieces(_box_text(cell))))


def _pieces(text: str) -> list[str]:
    return text.replace(" ", " \0").replace(",", ",\0").split("\0")


def _wrap(text: str, width: int) -> list[str]:
    """Breaks a device list at spaces and after commas."""
    lines = [""]
    for piece in _pieces(text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _laid_out(picture: Picture, grids: list[Grid]) -> Iterator[RenderableType]:
    """The panels of a picture, side by side if they fit, followed by its notes."""
    drawn: list[RenderableType] = [
        Group(Text(grid.panel.heading), grid.render()) if grid.panel.heading else grid.render()
        for grid in grids
    ]
    yield from drawn if len(drawn) == 1 else [Columns(drawn, padding=(0, 2))]
    yield from map(Text, picture.notes)


# ---- shardings -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardingPicture:
    """A rich renderable: the blocks of an array as boxes that list the devices holding them.

    Args:
        shape: the shape of the full array.
        sharding: anything with `devices_indices_map(shape)`.
        use_color: whether to fill each block with the color of its first device.
        scale: factor by which boxes are wider and higher than necessary.
        min_width: the minimum width of a box.
        max_width: the maximum number of columns; the console's width if None.
        color_map: the colors, see `visualize_sharding`.
    """

    shape: tuple[int, ...]
    sharding: Any
    use_color: bool = True
    min_width: int = 9
    max_width: int | None = None
    scale: float = 1.0
    color_map: ColorMap | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        most = min(options.max_width, self.max_width or options.max_width)
        cut = blocks(self.shape, self.sharding)
        rows, columns, sliced = drawn_dims(cut)
        down, along = (1 if dim is None else cut.counts[dim] for dim in (rows, columns))
        fits_all = down <= MAX_ROWS and math.prod(cut.counts[dim] for dim in sliced) <= MAX_PANELS
        if fits_all and along * (NARROWEST + 1) <= most:
            drawn = self._drawn(cut, Limits(MAX_ROWS, along, MAX_PANELS), most)
        elif len(cut.holders) > MAX_LISTED:
            drawn = self._elided(cut, most)
        else:
            drawn = []
        yield from drawn or [self._table(cut)]

    def _drawn(self, cut: Blocks, limits: Limits, most: int) -> list[RenderableType]:
        """The drawing; empty if it does not fit."""
        picture, colors = sharding_picture(cut, limits), _styles(cut, self.color_map)
        grids = [
            Grid(panel, self.min_width - 2, most, self.scale, self.use_color, colors)
            for panel in picture.panels
        ]
        return list(_laid_out(picture, grids)) if all(grid.fits() for grid in grids) else []

    def _elided(self, cut: Blocks, most: int) -> list[RenderableType]:
        """The drawing with as many columns as fit, and the middle omitted."""
        for columns in range(most // (NARROWEST + 1), 2, -1):
            drawn = self._drawn(cut, Limits(MAX_ROWS // 4, columns, MAX_PANELS // 2), most)
            if drawn:
                return drawn
        return []

    def _table(self, cut: Blocks) -> Table:
        """A row per block, for arrays with too many blocks or split dimensions to draw."""
        table, colors = Table("block", "devices"), _styles(cut, self.color_map)
        for place in sorted(cut.holders)[:MAX_LISTED]:
            devices = cut.holders[place]
            style = _style(devices, colors) if self.use_color else ""
            table.add_row(Text(block_text(cut.block(place))), Text(devices_text(devices), style))
        if len(cut.holders) > MAX_LISTED:
            table.add_row(f"… {len(cut.holders) - MAX_LISTED:,} more blocks", "")
        return table


def visualize_sharding(
    shape: Sequence[int],
    sharding: Any,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int | None = None,
    color_map: ColorMap | None = None,
    console: Console | None = None,
) -> None:
    """Prints which devices hold which block of an array of this shape.

    Args:
        shape: the shape of the full array; any rank.
        sharding: anything with `devices_indices_map(shape)`.
        use_color: whether to fill each block with the color of its first device.
        scale: factor by which boxes are wider and higher than necessary.
        min_width: the minimum width of a box.
        max_width: the maximum number of columns; the terminal's width if None.
        color_map: maps a number from 0 to 1 to red, green and blue (from 0 to 1), like matplotlib's
            colormaps (`matplotlib.colormaps["tab20b"]`); the library's own if None.
        console: where to print; a new console on standard output if None.
    """
    picture = ShardingPicture(
        tuple(shape), sharding, use_color, min_width, max_width, scale, color_map
    )
    (console or Console()).print(picture)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Prints which devices hold which block of `arr`; options as for `visualize_sharding`.

    Inside a jitted function, this happens at compile time, as for `inspect_array_sharding`.
    """
    if isinstance(arr, Tracer):
        shape = arr.shape
        inspect_array_sharding(arr, callback=lambda s: visualize_sharding(shape, s, **options))
        return
    if not hasattr(arr, "sharding"):
        raise TypeError(
            f"visualize_array_sharding takes an array with a sharding; got one of type "
            f"{type(arr).__name__}. Use `device_put` first, or `visualize_sharding`."
        )
    visualize_sharding(arr.shape, arr.sharding, **options)


# ---- meshes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeshPicture:
    """A rich renderable: a mesh's devices as boxes, with rows and columns labeled by axis.

    For more than two axes, there is one drawing for each position along the remaining axes.
    """

    mesh: Any
    max_width: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        most = min(options.max_width, self.max_width or options.max_width)
        devices, names = self.mesh.devices, [plain(name) for name in self.mesh.axis_names]
        sizes = ", ".join(f"{name}: {n}" for name, n in zip(names, devices.shape, strict=True))
        yield Text(f"mesh of {devices.size} devices ({sizes})")
        *outer, down, along = (1, 1, *devices.shape)
        if math.prod(outer) <= MAX_PANELS and down <= MAX_ROWS and along <= most // NARROWEST:
            picture = mesh_picture(self.mesh, Limits(down, along, MAX_PANELS))
            grids = [Grid(panel, 7, most) for panel in picture.panels]
            if all(grid.fits() for grid in grids):
                yield from _laid_out(picture, grids)
                return
        yield Text(_id_lines(devices, names))


def _id_lines(devices: Any, names: Sequence[str]) -> str:
    """Device ids only, one line for each row of the mesh, for meshes too large for boxes."""
    lines: list[str] = []
    places = itertools.product(*map(range, devices.shape[:-1]))
    for place in itertools.islice(places, MAX_LISTED):
        label = position_text(names, place)
        ids = [str(device.id) for device in devices[place]]
        if len(ids) > 16:
            ids = [*ids[:8], "…", ids[-1], f"({len(ids)})"]
        lines.append(f"{label}: {' '.join(ids)}" if label else " ".join(ids))
    count = math.prod(devices.shape[:-1])
    if count > MAX_LISTED:
        lines.append(f"… {count - MAX_LISTED:,} more rows")
    return "\n".join(lines)


def visualize_mesh(mesh: Any, *, console: Console | None = None) -> None:
    """Prints the devices of a mesh in its layout."""
    (console or Console()).print(MeshPicture(mesh))
