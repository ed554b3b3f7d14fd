"""One panel of a picture as an SVG drawing.

Lengths along a dimension are proportional to sizes. A block is an outlined box; each device that
holds it is a chip inside, in the device's color; blocks without elements are dashed and have a
fixed size. Hovering over a chip shows device, index, shape, replica and process.

Lines and labels use the color of the surrounding text, so that they suit light and dark pages.
There are no scripts, style sheets or ids. Text is measured as monospaced, with some margin: text
that does not fit is shortened or left to the hover text.
"""

from __future__ import annotations

import html
import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwise._src.types.devices import Device, is_addressable, process_of
from shardwise._src.visualize.panels import (
    Cell,
    Line,
    Panel,
    device_color,
    devices_text,
    owner_text,
)

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
LETTER, HEIGHT = 6.9, 11  # of a character, in pixels
WIDEST, HIGHEST = 800.0, 320.0  # of the blocks of a panel, unless labels need more
SLOT, MOST_EMPTY = 26.0, 90.0  # lengths of gaps, and of blocks without elements
THINNEST = 4.0
CHIPS = 16  # devices drawn in one block
CHIP_WIDTH, CHIP_HEIGHT = 18.0, 14.0  # minimum of a chip, if a block has several


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float

    def inset(self, by: float) -> Rect:
        width, height = max(self.width - 2 * by, 1.0), max(self.height - 2 * by, 1.0)
        return Rect(self.x + by, self.y + by, width, height)

    @property
    def attributes(self) -> str:
        return " ".join(f'{name}="{number:.2f}"' for name, number in vars(self).items())


def escape(text: str) -> str:
    """Escapes text for HTML, inside elements and attributes."""
    text = "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return html.escape(text)


def text_width(text: str) -> float:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return LETTER * (len(text) + wide)


def shortened(text: str, most: int = 20) -> str:
    return text if len(text) <= most else f"{text[: most - 5]}…{text[-4:]}"


# ---- lengths -------------------------------------------------------------------------------------


def lengths(
    lines: Sequence[Line], needs: Sequence[float], least: float, most: float
) -> list[float]:
    """The drawn length of each line: proportional to its size, and sufficient for its needs.

    The total is at least `least`, and more than `most` only if lines would be too thin to see.
    """
    sizes = [line.size or 0 for line in lines]
    total = sum(sizes)
    fixed = [0.0 if line.size else SLOT if line.size is None else min(max(SLOT, need), MOST_EMPTY)
             for line, need in zip(lines, needs, strict=True)]  # fmt: skip
    if not total:
        return fixed
    wanted = max(need * total / size for need, size in zip(needs, sizes, strict=True) if size)
    room = max(min(max(wanted, least), most - sum(fixed)), 0.0)
    return [max(f, THINNEST, room * size / total) for f, size in zip(fixed, sizes, strict=True)]


def _column_lengths(panel: Panel) -> list[float]:
    needs = [text_width(shortened(line.label)) + 10 for line in panel.columns]
    for row in panel.cells:
        needs = [max(n, _chips_width(c)) for n, c in zip(needs, row, strict=True)]
    return lengths(panel.columns, needs, 120.0, WIDEST)


def _chips_width(cell: Cell | None) -> float:
    count = len(cell.devices) if cell else 0
    if count > CHIPS:
        return 140.0
    return math.ceil(math.sqrt(count)) * 30.0 + 12.0


def _row_lengths(panel: Panel, width: float) -> list[float]:
    needs = [max(_chips_height(cell) for cell in row) for row in panel.cells]
    across = sum(line.size or 0 for line in panel.columns)
    down = sum(line.size or 0 for line in panel.rows)
    square = width * down / across if across else 0.0
    if not any(line.label for line in panel.rows):  # a single dimension: a ribbon
        square = 0.0
    return lengths(panel.rows, needs, min(square, HIGHEST), 2 * HIGHEST)


def _chips_height(cell: Cell | None) -> float:
    count = len(cell.devices) if cell else 0
    down = 1 if count > CHIPS else max(math.floor(math.sqrt(count)), 1)
    return down * 18.0 + 12.0


# ---- drawing -------------------------------------------------------------------------------------


def panel_svg(panel: Panel, name: str) -> str:
    """The panel as an `<svg>`; `name` describes its content, for screen readers."""
    columns = _column_lengths(panel)
    rows = _row_lengths(panel, sum(columns))
    left = max(text_width(shortened(line.label)) for line in panel.rows) + 8
    top = 20.0 if any(line.label for line in panel.columns) else 2.0
    width, height = left + sum(columns) + 2, top + sum(rows) + 2
    lefts = list(itertools.accumulate(columns, initial=left))
    tops = list(itertools.accumulate(rows, initial=top))
    parts = [
        f'<svg role="img" aria-label="{escape(name)}" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="display:block;max-width:100%;height:auto" font-family="{escape(FONT)}" '
        f'font-size="{HEIGHT}" fill="currentColor" text-anchor="middle">'
    ]
    for line, x, length in zip(panel.columns, lefts, columns, strict=False):
        label = shortened(line.label)
        if label and text_width(label) <= length:
            parts.append(_text(x + length / 2, top - 10, label, "label", line.label))
    for line, y, length in zip(panel.rows, tops, rows, strict=False):
        if line.label and length >= HEIGHT:
            label = shortened(line.label)
            x = left - 5 - text_width(label) / 2
            parts.append(_text(x, y + length / 2, label, "label", line.label))
    for cells, y, down in zip(panel.cells, tops, rows, strict=False):
        for cell, x, across in zip(cells, lefts, columns, strict=False):
            parts += _cell(cell, Rect(x, y, across, down))
    return "\n".join([*parts, "</svg>"])


def _cell(cell: Cell | None, box: Rect) -> Iterator[str]:
    if cell is None:
        yield _text(box.x + box.width / 2, box.y + box.height / 2, "…", "gap", "left out")
        return
    dashes = ' stroke-dasharray="3 3"' if cell.is_empty or not cell.devices else ""
    yield (
        f'<rect data-block="{escape(cell.index)}" {box.attributes} fill="none" '
        f'stroke="currentColor" stroke-opacity=".7"{dashes}/>'
    )
    inner = box.inset(min(3.0, box.width / 8, box.height / 8))
    if len(cell.devices) > CHIPS:
        yield from _crowd(cell, inner)
    elif cell.devices:
        for i, chip in enumerate(_grid(inner, len(cell.devices))):
            yield from _chip(cell, i, chip)


def _grid(box: Rect, count: int) -> list[Rect]:
    """The box split into `count` chips, at least as wide as they are high, if possible."""
    options = range(1, count + 1)
    along = max(options, key=lambda n: _roominess(box, count, n))
    down = math.ceil(count / along)
    width, height = box.width / along, box.height / down
    gap = min(1.0, width / 8, height / 8) if count > 1 else 0.0
    cells = [Rect(box.x + i % along * width, box.y + i // along * height, width, height)
             for i in range(count)]  # fmt: skip
    return [cell.inset(gap) for cell in cells]


def _roominess(box: Rect, count: int, along: int) -> float:
    width, height = box.width / along, box.height / math.ceil(count / along)
    spare = along * math.ceil(count / along) - count
    return min(width / CHIP_WIDTH, height / CHIP_HEIGHT, 1.5) - spare / 16 - along / 1000


def _chip(cell: Cell, replica: int, box: Rect) -> Iterator[str]:
    device = cell.devices[replica]
    number, ours = str(device.id), is_addressable(device)
    filled = ours and not cell.is_empty
    color = device_color(device)
    look = f'fill="{color}"' if filled else f'fill="none" stroke="{color}" stroke-width="2"'
    if not ours:
        look += ' stroke-dasharray="4 2"'
    yield f"<g><title>{escape(_hover(cell, device, replica))}</title>"
    yield f'<rect data-device="{device.id}" {box.attributes} rx="2" pointer-events="all" {look}/>'
    ink = "#fff" if filled else "currentColor"
    yield from _fitting([owner_text(device) + number, number], box, ink)
    yield "</g>"


def _hover(cell: Cell, device: Device, replica: int) -> str:
    parts = [f"{device.platform.upper()} {device.id}: {cell.index}"]
    if cell.shape is not None:
        parts.append(f"shape {cell.shape}")
    if len(cell.devices) > 1:
        parts.append(f"replica {replica} of {len(cell.devices)}")
    parts.append(f"process {process_of(device)}" + ("" if is_addressable(device) else " (another)"))
    return ", ".join(parts)


def _crowd(cell: Cell, box: Rect) -> Iterator[str]:
    """One chip for more devices than can be drawn."""
    count = len(cell.devices)
    listed = devices_text(cell.devices, CHIPS)
    shape = "" if cell.shape is None else f", shape {cell.shape}"
    yield f"<g><title>{escape(f'{listed}: {cell.index}{shape}, {count:,} replicas')}</title>"
    yield f'<rect data-device="" {box.attributes} rx="2" fill="#444"/>'
    yield from _fitting([listed, f"{count:,} devices", f"×{count:,}"], box, "#fff")
    yield "</g>"


def _fitting(texts: Sequence[str], box: Rect, color: str) -> Iterator[str]:
    """The first of the strings that fits in the box."""
    for text in texts if box.height >= HEIGHT else ():
        if text_width(text) <= box.width - 1:
            yield _text(box.x + box.width / 2, box.y + box.height / 2, text, "device", "", color)
            return


def _text(
    x: float, y: float, text: str, kind: str, hover: str = "", color: str = "currentColor"
) -> str:
    title = f"<title>{escape(hover)}</title>" if hover and hover != text else ""
    return (
        f'<text data-text="{kind}" x="{x:.2f}" y="{y:.2f}" dy=".35em" fill="{color}">'
        f"{title}{escape(text)}</text>"
    )
