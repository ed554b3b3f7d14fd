"""A report as HTML for notebooks: one self-contained `<figure>` of bounded size.

Colors are inherited from the surrounding text, or work on both light and dark pages. There are no
scripts, style sheets or ids. `report_page` makes pages with the full report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardwise._src.explain.rendering import report_phrases as words
from shardwise._src.explain.rendering.report_phrases import BufferRow, seconds_text, where
from shardwise._src.explain.report_data import Communication, ReportData
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.visualize.html import CODE, STYLE
from shardwise._src.visualize.svg import escape

ROWS, BUFFERS, LETTERS = 20, 10, 300
COLORS = {
    "compute": "#5f87d7", "memory": "#4f9f7f", "communication": "#d7875f",
    "arguments": "#5f87d7", "results": "#4f9f7f", "temporaries": "#d7875f", "donated": "#8787af",
    "argument": "#5f87d7", "result": "#4f9f7f", "temporary": "#d7875f", "constant": "#878787",
}  # fmt: skip
_TABLE = "border-collapse:collapse;margin:.2em 0 .8em;font-size:12px"
_CELL = "padding:2px 14px 2px 0;vertical-align:top;text-align:{};border-top:1px solid #8884"
_HEAD = "padding:2px 14px 2px 0;text-align:{};font-weight:600;opacity:.7"


def figure(report: ReportData) -> str:
    """The notebook representation of a report."""
    parts = [
        f'<figcaption style="margin:.2em 0 .5em"><b>{_text(words.head(report))}</b></figcaption>',
        _title(words.time_head(report)), bars(time_bars(report)),
        _title(words.communication_head(report)), _communication(report.communication, report),
        _title(words.memory_head(report)), bars(memory_bars(report)),
        _buffers(words.buffer_rows(report)),
        _title("computation per device"), _table((), words.computation_rows(report), "lr"),
        *map(_note, words.computation_notes(report)),
    ]  # fmt: skip
    return f'<figure style="{STYLE};overflow-x:auto">{"".join(parts)}</figure>'


# ---- bars: also used by pages --------------------------------------------------------------------

Bar = tuple[str, str, float, float]  # name, value text, start and length as fractions


def time_bars(report: ReportData) -> list[Bar]:
    whole = report.seconds.total or 1.0
    return [(p.name, seconds_text(p.seconds), p.start / whole, p.seconds / whole)
            for p in words.time_parts(report)]  # fmt: skip


def memory_bars(report: ReportData) -> list[Bar]:
    whole = report.memory.peak or 1
    return [(n, in_bytes(b), 0.0, b / whole) for n, b in words.memory_rows(report)]


def bars(rows: Sequence[Bar]) -> str:
    """A bar for each row, preceded by its name and value."""
    return "".join([
        '<div style="display:flex;gap:10px;align-items:center;font-size:12px;line-height:1.6">'
        f'<span style="flex:0 0 8.5em">{escape(name)}</span>'
        f'<span style="flex:0 0 6em;text-align:right">{escape(value)}</span>'
        f'<span style="flex:0 1 24em;min-width:4em">{bar(name, start, length)}</span></div>'
        for name, value, start, length in rows
    ])  # fmt: skip


def bar(name: str, start: float, length: float) -> str:
    """A bar whose color depends on its name, scaled to the available width."""
    width = f"max({100 * length:.2f}%,{'1px' if length else '0px'})"
    return (
        '<span style="display:block;height:9px;background:#8882">'
        f'<span data-bar="{escape(name)}" style="display:block;height:9px;width:{width};'
        f'margin-left:{min(100 * start, 99):.2f}%;background:{COLORS[name]}"></span></span>'
    )


# ---- tables --------------------------------------------------------------------------------------


def _communication(rows: Sequence[Communication], report: ReportData) -> str:
    if not rows:
        return ""
    cells = [[*_cells(row), _cause(row, report.lines.get(row.line, ""))] for row in rows[:ROWS]]
    others = rows[ROWS:]
    for name, some in ((f"{len(others)} more", others), ("total", rows)):
        if some and (some is others or len(rows) > 1):
            sums = words.total(some)
            size, seconds = in_bytes(sums.bytes), seconds_text(sums.seconds)
            cells.append([name, "", sums.runs, size, seconds, ""])
    heads = ("collective", "over", "count", "bytes", "time", "where and why")
    return _table(heads, cells, "llrrrl") + "".join(map(_note, words.footnotes(rows)))


def _cells(row: Communication) -> list[str]:
    kind = f"{row.kind} {','.join(row.dtypes)}"
    texts = (kind, words.over(row), words.count_text(row), in_bytes(row.bytes),
             seconds_text(row.seconds))  # fmt: skip
    return [f'<span style="white-space:nowrap">{_text(text)}</span>' for text in texts]


def _cause(row: Communication, source: str) -> str:
    place = f"{where(row.line)} " if row.line else ""
    scope = f"in {row.scope}" if row.scope else ""
    parts = [f'<span style="opacity:.7">{_text(place)}</span>' * bool(place) + _text(source),
             _text(row.call), _text(scope), _text(row.why)]  # fmt: skip
    *code, why = parts
    lines = [f'<div style="{CODE}">{part}</div>' for part in code if part]
    return f'<div style="min-width:20em">{"".join([*lines, f"<div>{why}</div>"])}</div>'


def _buffers(rows: Sequence[BufferRow]) -> str:
    most = rows[0].bytes if rows else 1
    cells = [
        [in_bytes(r.bytes), _text(r.kind) + (f" ×{r.times}" if r.times > 1 else ""),
         f'<div style="width:6em;padding-top:.4em">{bar(r.kind, 0, r.bytes / most)}</div>',
         f'<div style="{CODE}">{_text(where(r.line))}</div>',
         f'<div style="{CODE};min-width:16em">{_text(r.what)}</div>']
        for r in rows[:BUFFERS]
    ]  # fmt: skip
    if others := rows[BUFFERS:]:
        size = in_bytes(sum([r.bytes for r in others]))
        cells.append([size, f"{sum([r.times for r in others])} more", "", "", ""])
    heads = ("bytes", "kind", "", "line", "largest buffers")
    return _table(heads, cells, "rllll") if cells else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """rows: cells are HTML."""
    sides = [{"l": "left", "r": "right"}[a] for a in align]
    head = "".join([
        f'<th style="{_HEAD.format(s)}">{h}</th>' for h, s in zip(heads, sides, strict=False)
    ])  # fmt: skip
    lines = ""
    for row in rows:
        cells = [f'<td style="{_CELL.format(s)}">{x}</td>' for x, s in zip(row, sides, strict=True)]
        lines += f'<tr style="background:none">{"".join(cells)}</tr>'
    first = f'<tr style="background:none">{head}</tr>' if head else ""
    return f'<table style="{_TABLE}">{first}{lines}</table>'


def _title(text: str) -> str:
    return f'<div style="margin:.6em 0 .2em;font-weight:600">{_text(text)}</div>'


def _note(text: str) -> str:
    return f'<div style="opacity:.8;font-size:12px">{_text(text)}</div>'


def _text(text: str) -> str:
    return escape(text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…")
