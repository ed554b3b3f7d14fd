"""Arrays, shardings and meshes as HTML, for notebooks: the results of `_repr_html_`.

Each function returns one self-contained `<figure>`: a caption, a drawing for each panel, and notes.
Its size is bounded, regardless of the number of devices and elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

from shardwise._src.messages.formatting import pluralize
from shardwise._src.visualize.panels import (
    Blocks,
    Limits,
    Picture,
    blocks,
    drawn_dims,
    mesh_picture,
    plain,
    range_text,
    sharding_picture,
    shown,
)
from shardwise._src.visualize.svg import WIDEST, escape, panel_svg, shortened, text_width

CELLS = 288  # maximum cells drawn in one figure
PANELS = 8
LETTERS = 20_000  # maximum characters of an array's values
RANKS = 16  # ranks tried to find one that a sharding accepts

STYLE = "margin:.5em 0;font:13px/1.5 system-ui,sans-serif;color:inherit;max-width:100%"
FONT = "font-family:ui-monospace,Menlo,Consolas,monospace"
CODE = f"{FONT};overflow-wrap:anywhere"
CELL = "padding:.1em .8em .1em 0;white-space:nowrap"


def array_html(x: Any) -> str:
    """An array's values, as in its `repr`, and a plot of its shards."""
    text = repr(x)
    if len(text) > LETTERS:
        text = f"{text[:LETTERS]}\n… {len(text) - LETTERS:,} more letters"
    values = f'<pre style="margin:0;max-height:24em;overflow:auto">{escape(text)}</pre>'
    cut = blocks(x.shape, x.sharding)
    title = f"{x.aval.str_short(True)}: {_layout_text(cut)}"
    picture = _blocks_picture(cut) if len(x.sharding.device_set) > 1 else Picture([], [])
    return _figure(f"array {title}", values + _caption(title, repr(x.sharding)), picture)


@overload
def sharding_html(sharding: Any, shape: Sequence[int]) -> str: ...
@overload
def sharding_html(sharding: Any, shape: None = None) -> str | None: ...
def sharding_html(sharding: Any, shape: Sequence[int] | None = None) -> str | None:
    """A plot of a sharding: for an array of this shape, or of the smallest rank it accepts.

    Without a shape a block counts as one element. None if there are no devices to draw.
    """
    if not _has_devices(sharding):
        return None
    if shape is None:
        shape = _least_shape(sharding)
        if shape is None:
            return None
        name = f"sharding of {pluralize(len(shape), 'dimension')}, in blocks"
    else:
        name = f"sharding of shape {tuple(shape)}"
    cut = blocks(shape, sharding)
    caption = _caption(f"{name}: {_layout_text(cut)}", repr(sharding))
    return _figure(name, caption, _blocks_picture(cut))


def mesh_html(mesh: Any) -> str | None:
    """A plot of a mesh's devices at their positions; None for a mesh without devices."""
    if not _has_devices(mesh):
        return None
    *outer, down, along = (1, 1, *mesh.devices.shape)
    label = f"{plain(mesh.axis_names[-1])}={along}" if mesh.axis_names else ""
    picture = mesh_picture(mesh, _limits(down, along, math.prod(outer), label))
    name = f"mesh of {pluralize(mesh.size, 'device')}"
    return _figure(name, _caption(name, repr(mesh)), picture)


def _has_devices(x: Any) -> bool:
    try:
        return bool(len(x.devices))
    except ValueError:  # an abstract mesh
        return False
    except TypeError:  # a mesh without axes
        return True


def _least_shape(sharding: Any) -> tuple[int, ...] | None:
    """A shape of the smallest rank that the sharding accepts, with one element for each tile."""
    for ndim in range(RANKS):
        try:
            return sharding.tiling(ndim).dims
        except ValueError:
            continue
    return None


def _layout_text(cut: Blocks) -> str:
    """`4 blocks of (2, 16), each on 2 devices`"""
    shapes = {place: cut.shape(place) for place in cut.holders}
    full = {place: shape for place, shape in shapes.items() if 0 not in shape} or shapes
    largest = max(full.values())
    copies = pluralize(len(cut.holders[next(iter(full))]), "device")
    if len(full) == 1:
        text = f"{'whole' if len(shapes) == 1 else f'one block of {largest}'} on {copies}"
    else:
        upto = "" if len(set(full.values())) == 1 else "up to "
        text = f"{len(full):,} blocks of {upto}{largest}, each on {copies}"
    idle = sum(len(cut.holders[place]) for place in shapes.keys() - full.keys())
    return f"{text}; nothing on {pluralize(idle, 'device')}" if idle else text


def _blocks_picture(cut: Blocks) -> Picture:
    rows, columns, sliced = drawn_dims(cut)
    panels = math.prod(cut.counts[dim] for dim in sliced)
    down, along = (1 if dim is None else cut.counts[dim] for dim in (rows, columns))
    label = "" if columns is None else range_text(cut.ranges[columns][-1])
    return sharding_picture(cut, _limits(down, along, panels, label))


def _limits(down: int, along: int, panels: int, label: str) -> Limits:
    """The limits for drawing, so that there are at most `CELLS` in all, below their labels."""
    most = CELLS // len(shown(panels, PANELS))
    even = max(math.isqrt(most), 3)
    rows, columns = (max(even, most // min(n, even)) for n in (along, down))
    fitting = max(int(WIDEST / (text_width(shortened(label)) + 10)), 8)
    return Limits(min(rows, 32), max(min(columns, fitting, 16), 3), PANELS)


def table_html(
    rows: Sequence[Sequence[str]],
    texts: int,
    *,
    has_foot: bool = False,
    bars: tuple[int, Sequence[float]] = (-1, ()),
) -> str:
    """A table that begins with its head; the columns after the first `texts` are numbers.

    bars: a column, and the length of a bar below it for each row of the body, as a fraction.
    """
    lines: list[str] = []
    for i, row in enumerate(rows):
        tag = "th" if i == 0 or (has_foot and i == len(rows) - 1) else "td"
        cells = ""
        for column, text in enumerate(row):
            style = f"{CELL};text-align:{'left' if column < texts else 'right'}"
            style += f";{FONT}" if tag == "td" and column < texts else ""
            bar = _bar(bars[1][i - 1]) if tag == "td" and column == bars[0] else ""
            cells += f'<{tag} style="{style}">{escape(text)}{bar}</{tag}>'
        lines.append(f"<tr>{cells}</tr>")
    table = f'<table style="border-collapse:collapse;font:inherit;color:inherit">{"".join(lines)}'
    return f'<div style="overflow-x:auto">{table}</table></div>'


def _bar(length: float) -> str:
    style = "height:2px;margin-left:auto;background:currentColor;opacity:.35"
    return f'<div style="{style};width:{min(100, round(100 * length))}%"></div>' if length else ""


# ---- the frame -----------------------------------------------------------------------------------


def _caption(title: str, detail: str) -> str:
    return (
        f'<figcaption style="margin:.2em 0 .5em"><b>{escape(title)}</b><br>'
        f'<span style="{CODE};opacity:.8">{escape(detail[:1000])}</span></figcaption>'
    )


def _figure(name: str, head: str, picture: Picture) -> str:
    drawings = [
        f'<div style="min-width:0;max-width:100%">{_heading(panel.heading)}'
        f"{panel_svg(panel, f'{name} {panel.heading}'.strip())}</div>"
        for panel in picture.panels
    ]
    notes = [f'<div style="opacity:.8">{escape(note)}</div>' for note in picture.notes]
    body = "".join(drawings)
    if drawings:
        body = f'<div style="display:flex;flex-wrap:wrap;gap:12px 24px">{body}</div>'
    return f'<figure style="{STYLE}">{head}{body}{"".join(notes)}</figure>'


def _heading(text: str) -> str:
    return f'<div style="{CODE}">{escape(text)}</div>' if text else ""
