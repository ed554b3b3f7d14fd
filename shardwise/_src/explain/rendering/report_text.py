"""A report as text for terminals: the output of `print(report)`, and colored with rich.

    collective     over  count     bytes    time  line         source
    all-reduce f32 x         5  20.0 KiB  630 µs  train.py:10  z = jnp.tanh(h @ w)
      dot_general(f32[16@x,32], f32[16@x,64@y]) → f32[32,64@y]
      sums over dimension 0 of operand 0, which is sharded over 'x'

Lines are laid out once, for a given width; each part of a line has a style, for rich consoles.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shardwise._src.explain.rendering.report_phrases import (
    BufferRow,
    Row,
    Section,
    head,
    sections,
    tail,
    where,
)
from shardwise._src.explain.report_data import Communication, ReportData

WIDTH, NARROWEST = 100, 40  # columns
ROWS, BUFFERS = 12, 8
BAR, LINE, LEAST = 24, 34, 8  # columns: of bars, of locations, minimum of a truncated column
SHORTEST_SOURCE = 16  # columns for source next to a row; if narrower, it goes below
GAP = "  "

Part = tuple[str, str]  # text, and its style


class _Line(NamedTuple):
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join([text for text, _ in self.parts]).rstrip()


def text_of(report: ReportData, width: int | None = None) -> str:
    """A report as lines of at most `width` columns, by default the terminal's, at most 100."""
    return "\n".join([line.text for line in _lines(report, width or _width())])


def styled(report: ReportData, width: int) -> Iterator[Any]:
    """The lines for a rich console."""
    from rich.text import Text

    for line in _lines(report, width):
        yield Text.assemble(*line.parts, no_wrap=True)


def _width() -> int:
    return min(WIDTH, max(NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns))


def _lines(report: ReportData, width: int) -> Iterator[_Line]:
    yield from _folded(head(report), width, style="bold")
    for section in sections(report, ROWS, BUFFERS):
        yield _Line(())
        yield from _section(section, report.lines, width)


def section_text(section: Section) -> str:
    """A section alone, as wide as a report."""
    return "\n".join([line.text for line in _section(section, {}, _width())])


def _section(section: Section, sources: Mapping[str, str], width: int) -> Iterator[_Line]:
    yield from _folded(section.title, width, style="bold")
    bars = [(b.name, b.value, _bar(b.start, b.length, width)) for b in section.bars]
    yield from _grid(bars, "<><", width, styles=("", "", "cyan"))
    if section.name == "communication":
        yield from _communication(section, sources, width)
    elif section.name == "buffers":
        cells = [(*row.texts, *_value(row)) for row in section.lines]
        yield from _grid(cells, section.sides, width, styles=("bold", "", "cyan", ""))
    else:
        heads = [section.heads] if section.heads else []
        yield from _grid([*heads, *[row.texts for row in section.rows]], section.sides, width)
    for note in section.notes:
        yield from _folded(note, width, GAP, "dim")


# ---- tables --------------------------------------------------------------------------------------


def _value(row: Row) -> tuple[str, str]:
    """The line and the value of a row of buffers."""
    if not isinstance(row.item, BufferRow):
        return "", ""
    return tail(where(row.item.line), LINE) or "-", row.item.what


def _communication(section: Section, sources: Mapping[str, str], width: int) -> Iterator[_Line]:
    if not section.rows:
        return
    cells = [(*section.heads[:-1], "line")]
    cells += [(*row.texts, tail(where(row.item.line), LINE) if row.item else "")
              for row in section.lines]  # fmt: skip
    beside = _width_of(cells) <= width
    if not beside:
        cells = [row[:-1] for row in cells]
    if _width_of(cells) <= width:
        lines = list(_grid(cells, section.sides, width, styles=("", "", "", "bold", "", "cyan")))
        heads, *lines = [[line] for line in lines]
        yield _Line(((heads[0].text, "dim"),))
    else:
        lines = [list(_folded(_in_words(row), width, GAP)) for row in cells[1:]]
    room = width - max([len(line.text) for line, *_ in lines]) - len(GAP) if beside else 0
    for row, (*above, line) in zip(section.lines, lines, strict=True):
        yield from above
        if isinstance(row.item, Communication):
            yield from _explained(row.item, line, sources.get(row.item.line, ""), room, width)
        else:
            yield line


def _in_words(cells: Sequence[str]) -> str:
    """A row for a terminal that is too narrow for columns."""
    kind, over, count, size, seconds = cells
    return f"{kind}{f' over {over}' if over else ''}: {count} ×, {size}, {seconds}"


def _explained(
    row: Communication, line: _Line, source: str, room: int, width: int
) -> Iterator[_Line]:
    """A row, followed by the operation that communicates and the reason.

    room: columns for the source line next to the row; 0 if even its location does not fit there.
    """
    beside = source if room >= min(SHORTEST_SOURCE, len(source)) else ""
    pad = " " * (width - room - len(line.text)) if beside else ""
    yield _Line((*line.parts, (pad, ""), (_cut(beside, room), "italic")))
    indent = GAP * 2
    if not room and row.line:
        yield from _folded(tail(where(row.line), width - 4), width, indent, "cyan")
    if not beside:
        yield from _folded(source, width, indent, "italic")
    yield from _folded(row.call, width, indent)
    yield from _folded(f"in {row.scope}" if row.scope else "", width, indent, "dim")
    yield from _folded(row.why, width, indent, "yellow")


# ---- layout --------------------------------------------------------------------------------------


def _width_of(rows: Sequence[Sequence[str]]) -> int:
    return sum([max(map(len, column)) + len(GAP) for column in zip(*rows, strict=True)])


def _grid(
    rows: Sequence[Sequence[str]], align: str, width: int, styles: Sequence[str] = ()
) -> Iterator[_Line]:
    """Columns sized to their content; the last is truncated to the width if there is room."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - len(GAP) - sum([n + len(GAP) for n in widths[:-1]])
    if room < min(widths[-1], LEAST):
        for row in rows:
            yield from _folded(GAP.join(filter(None, row)), width, GAP)
        return
    widths[-1] = min(widths[-1], room)
    given = [*styles, *[""] * len(widths)]
    for row in rows:
        parts: list[Part] = []
        for text, side, size, style in zip(row, align, widths, given, strict=False):
            cut = _cut(text, size)
            parts += [(GAP, ""), (f"{cut:{side}{size}}", style)]
        yield _Line(tuple(parts))


def _folded(text: str, width: int, indent: str = "", style: str = "") -> Iterator[_Line]:
    below = indent + (GAP if text else "")
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=below):
        yield _Line(((line, style),))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…" if most > 1 else text[:most]


def _bar(start: float, length: float, width: int) -> str:
    """A horizontal bar in eighths of a column, with its offset; both are fractions."""
    if not length:
        return ""
    most = min(BAR, width // 3)
    before = round(most * start)
    eighths = max(round(8 * most * length), 1)
    full, rest = divmod(eighths, 8)
    return " " * before + "█" * full + ("", *"▏▎▍▌▋▊▉")[rest]
