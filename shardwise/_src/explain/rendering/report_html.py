"""A report as HTML: the sections of notebook figures and of pages.

A figure is one self-contained `<figure>` of bounded size, whose colors are inherited from the
surrounding text, or work on both light and dark pages. It has no scripts, style sheets or ids: its
elements have the declarations that `figure.css` has for their classes. `report_page` makes pages
with the full report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files

from shardwise._src.explain.rendering.report_phrases import (
    Bar,
    BufferRow,
    Row,
    Section,
    head,
    sections,
    where,
)
from shardwise._src.explain.report_data import Communication, ReportData
from shardwise._src.visualize.html import STYLE
from shardwise._src.visualize.svg import escape

ROWS, BUFFERS, LETTERS = 20, 10, 300
COLORS = {
    "compute": "#5f87d7", "memory": "#4f9f7f", "communication": "#d7875f",
    "arguments": "#5f87d7", "results": "#4f9f7f", "temporaries": "#d7875f", "donated": "#8787af",
    "argument": "#5f87d7", "result": "#4f9f7f", "temporary": "#d7875f", "constant": "#878787",
}  # fmt: skip


def data_file(name: str) -> str:
    """A style sheet or script next to this module."""
    return files("shardwise._src.explain.rendering").joinpath(name).read_text(encoding="utf-8")


_STYLES = dict(re.findall(r"^\.(\w+) \{ (.*) \}$", data_file("figure.css"), re.MULTILINE))


def figure(report: ReportData) -> str:
    """The notebook representation of a report."""
    look = Look(report.lines)
    parts = [look.section(s) for s in sections(report, ROWS, BUFFERS)]
    caption = f"<figcaption{look.of('caption')}><b>{look.text(head(report))}</b></figcaption>"
    return f'<figure style="{STYLE};overflow-x:auto">{caption}{"".join(parts)}</figure>'


class Look:
    """Renders sections as parts of a figure; `report_page` overrides what differs in a page.

    heading: the element of titles. letters: the maximum length of a text.
    """

    heading = "div"
    letters = LETTERS

    def __init__(self, lines: Mapping[str, str]):
        self.lines = lines

    def of(self, classes: str) -> str:
        """The attribute by which an element looks like its classes."""
        styles = "".join([_STYLES.get(name, "") for name in classes.split()])
        return f' style="{styles}"' if styles else ""

    def place(self, line: str) -> str:
        """The location of a source line."""
        return f"<span{self.of('soft')}>{self.text(where(line))}</span>" if line else ""

    def marks(self, line: str, op: str = "") -> str:
        """The attributes of an element that belongs to a source line."""
        return ""

    def text(self, text: str) -> str:
        """Escaped text of bounded length."""
        return escape(text if len(text) <= self.letters else f"{text[: self.letters - 1]}…")

    def section(self, s: Section, *notes: str) -> str:
        title = f"<{self.heading}{self.of('title')}>{self.text(s.title)}</{self.heading}>"
        parts = [title, self._bars(s), self._table(s), *map(self.note, (*s.notes, *notes))]
        return f"<section>{''.join(parts)}</section>"

    def note(self, text: str) -> str:
        return f"<p{self.of('note soft')}>{self.text(text)}</p>"

    def _bars(self, s: Section) -> str:
        cells = "".join([
            f"<span{self.of('most' * (bar.name == s.dominant))}>{escape(bar.name)}</span>"
            f"<span{self.of('value')}>{escape(bar.value)}</span>{self._track(bar)}"
            for bar in s.bars
        ])  # fmt: skip
        return f"<div{self.of('bars')}>{cells}</div>" if cells else ""

    def _track(self, bar: Bar) -> str:
        """A bar whose color depends on its name, scaled to the available width."""
        width = f"max({100 * bar.length:.2f}%,{2 if bar.length else 0}px)"
        style = (
            f"display:block;height:100%;margin-left:{min(100 * bar.start, 99.5):.2f}%;"
            f"width:{width};background:{COLORS[bar.name]}"
        )
        fill = f'<i data-bar="{escape(bar.name)}" style="{style}"></i>'
        return f"<div{self.of('track')}>{fill}</div>"

    # ---- tables ----------------------------------------------------------------------------------

    def _table(self, s: Section) -> str:
        if not s.rows:
            return ""
        sides = s.sides.ljust(len(s.heads), "<")
        heads = [
            f'<th{self.of(classes)} data-kind="{kind}">{name}</th>'
            for name, side in zip(s.heads, sides, strict=False)
            for classes, kind in [("head n", "number") if side == ">" else ("head", "text")]
        ]
        most = max([row.values[0] for row in s.rows if row.values], default=0) or 1
        begin = f"<tr{self.of('row')}"
        body = [f"{begin}{self._marked(row)}>{self._cells(s, row, most)}" for row in s.rows]
        body += [f"{begin} data-rest=1>{self._cells(s, s.rest, most)}"] if s.rest else []
        foot = f"<tfoot>{begin}>{self._cells(s, s.total, most)}</tfoot>" if s.total else ""
        top = f"<thead>{begin}>{''.join(heads)}</tr></thead>" if heads else ""
        kind = f"table {s.name}" + " sorted fold" * bool(heads)
        return f"<table{self.of(kind)}>{top}<tbody>{''.join(body)}</tbody>{foot}</table>"

    def _marked(self, row: Row) -> str:
        return self.marks(row.item.line, getattr(row.item, "op", "")) if row.item else ""

    def _cells(self, s: Section, row: Row, most: float) -> str:
        """The cells of a row, and its end. most: the largest first number of the table."""
        values = iter(row.values)
        cells = [
            f'<td{self.of("cell n")} data-v="{next(values, 0)}">{escape(text)}</td>'
            if side == ">" else f"<td{self.of('cell')}>{self.text(text)}</td>"
            for text, side in zip(row.texts, s.sides, strict=False)
        ]  # fmt: skip
        cells += self._description(row.item, most)
        cells += [f"<td{self.of('cell')}></td>"] * (len(s.heads) - len(cells))
        return f"{''.join(cells)}</tr>"

    def _description(self, item: Communication | BufferRow | None, most: float) -> Iterator[str]:
        """The cells that describe the item of a row."""
        if item is None:
            return
        place = self.place(item.line)
        if isinstance(item, BufferRow):
            bar = self._track(Bar(item.kind, "", 0, item.bytes / most))
            yield f"<td{self.of('cell')}>{bar}</td>"
            lines = [self._code(f"{place} {self.text(item.what)}")]
            key = item.line or item.what
        else:
            lines, key = self._cause(item, place), item.line
        yield f'<td{self.of("cell all")} data-v="{escape(key)}">{"".join(lines)}</td>'

    def _cause(self, item: Communication, place: str) -> list[str]:
        source = self.text(self.lines.get(item.line, ""))
        scope = f"<span{self.of('soft')}>in {self.text(item.scope)}</span>" if item.scope else ""
        first = " ".join(filter(None, (place, source and f"<code>{source}</code>", scope)))
        call = self._code(self.text(item.call)) if item.call else ""
        return [self._code(first), call, f"<div{self.of('why')}>{self.text(item.why)}</div>"]

    def _code(self, content: str) -> str:
        return f"<div{self.of('code')}>{content}</div>"
