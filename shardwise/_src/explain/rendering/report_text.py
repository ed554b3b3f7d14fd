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
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shardwise._src.explain.rendering import report_phrases as words
from shardwise._src.explain.rendering.report_phrases import seconds_text, where
from shardwise._src.explain.report_data import Communication, ReportData
from shardwise._src.messages.formatting import in_bytes

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
    sections = (_time, _communication, _memory, _buffers, _computation)
    yield from _folded(words.head(report), width, style="bold")
    for section in sections:
        lines = list(section(report, width))
        if lines:
            yield _Line(())
            yield from lines


# ---- sections ------------------------------------------------------------------------------------


def _time(report: ReportData, width: int) -> Iterator[_Line]:
    yield from _folded(words.time_head(report), width, style="bold")
    whole = report.seconds.total
    rows = [
        (name, seconds_text(seconds), _bar(start, seconds, whole, width))
        for name, start, seconds in words.time_parts(report)
    ]
    yield from _grid(rows, "<><", width, styles=("", "", "cyan"))


def _communication(report: ReportData, width: int) -> Iterator[_Line]:
    rows = report.communication
    yield from _folded(words.communication_head(report), width, style="bold")
    if not rows:
        return
    shown, others = rows[:ROWS], rows[ROWS:]
    cells = [("collective", "over", "count", "bytes", "time", "line"), *map(_cells, shown)]
    for name, some in ((f"{len(others)} more", others), ("total", rows)):
        if some and (some is others or len(rows) > 1):
            sums = words.total(some)
            size, seconds = in_bytes(sums.bytes), seconds_text(sums.seconds)
            cells.append((name, "", sums.runs, size, seconds, ""))
    beside = _width_of(cells) <= width
    if not beside:
        cells = [row[:-1] for row in cells]
    if _width_of(cells) <= width:
        lines = list(_grid(cells, "<<>>><", width, styles=("", "", "", "bold", "", "cyan")))
        heads, *lines = [[line] for line in lines]
        yield _Line(((heads[0].text, "dim"),))
    else:
        lines = [list(_folded(_in_words(row), width, GAP)) for row in cells[1:]]
    room = width - max([len(line.text) for line, *_ in lines]) - len(GAP) if beside else 0
    for row, (*above, line) in zip(shown, lines, strict=False):
        yield from above
        yield from _explained(row, line, report.lines.get(row.line, ""), room, width)
    yield from [line for own in lines[len(shown) :] for line in own]
    for note in words.footnotes(rows):
        yield from _folded(note, width, GAP, "dim")


def _cells(row: Communication) -> tuple[str, ...]:
    kind = f"{row.kind} {','.join(row.dtypes)}"
    line = words.tail(where(row.line), LINE)
    return (kind, words.over(row), words.count_text(row), in_bytes(row.bytes),
            seconds_text(row.seconds), line)  # fmt: skip


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
        yield from _folded(words.tail(where(row.line), width - 4), width, indent, "cyan")
    if not beside:
        yield from _folded(source, width, indent, "italic")
    yield from _folded(row.call, width, indent)
    yield from _folded(f"in {row.scope}" if row.scope else "", width, indent, "dim")
    yield from _folded(row.why, width, indent, "yellow")


def _memory(report: ReportData, width: int) -> Iterator[_Line]:
    yield from _folded(words.memory_head(report), width, style="bold")
    peak = report.memory.peak
    rows = [(n, in_bytes(b), _bar(0, b, peak, width)) for n, b in words.memory_rows(report)]
    yield from _grid(rows, "<><", width, styles=("", "", "cyan"))
    if report.memory.donated:
        yield from _folded(words.DONATED, width, GAP, "dim")


def _buffers(report: ReportData, width: int) -> Iterator[_Line]:
    rows = words.buffer_rows(report)
    if not rows:
        return
    yield _Line((("largest buffers per device", "bold"),))
    shown, others = rows[:BUFFERS], rows[BUFFERS:]
    cells = [
        (in_bytes(r.bytes), r.kind + (f" ×{r.times}" if r.times > 1 else ""),
         words.tail(where(r.line), LINE) or "-", r.what)
        for r in shown
    ]  # fmt: skip
    if others:
        size = in_bytes(sum([r.bytes for r in others]))
        cells.append((size, f"{sum([r.times for r in others])} more", "", ""))
    yield from _grid(cells, "><<<", width, styles=("bold", "", "cyan", ""))


def _computation(report: ReportData, width: int) -> Iterator[_Line]:
    yield _Line((("computation per device", "bold"),))
    yield from _grid(words.computation_rows(report), "<>", width)
    for note in words.computation_notes(report):
        yield from _folded(note, width, GAP, "dim")


# ---- layout --------------------------------------------------------------------------------------


def _width_of(rows: Sequence[Sequence[str]]) -> int:
    return sum([max(map(len, column)) + len(GAP) for column in zip(*rows, strict=True)])


def _grid(
    rows: Sequence[Sequence[str]], align: str, width: int, styles: Sequence[str] = ()
) -> Iterator[_Line]:
    """Columns sized to their content; the last is truncated to the width if there is room."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    before = len(GAP) + sum([n + len(GAP) for n in widths[:-1]])
    room = width - before
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


def _bar(start: float, length: float, whole: float, width: int) -> str:
    """A horizontal bar in eighths of a column, with its offset."""
    if not whole or not length:
        return ""
    most = min(BAR, width // 3)
    before = round(most * start / whole)
    eighths = max(round(8 * most * length / whole), 1)
    full, rest = divmod(eighths, 8)
    return " " * before + "█" * full + ("", *"▏▎▍▌▋▊▉")[rest]
