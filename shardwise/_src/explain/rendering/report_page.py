"""A report as one self-contained HTML file: the output of `report.save(path)`.

It has tables, the user source lines that they reference next to the program, and the compiled
program. A script in the page sorts tables and highlights related items; everything is readable
without it.

Source lines are read when the page is made, only from files that the report names; if a file has
changed since, the page shows the lines stored in the report.
"""

from __future__ import annotations

import linecache
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shardwise._src.explain.rendering import report_phrases as words
from shardwise._src.explain.rendering.report_html import COLORS, Bar, memory_bars, time_bars
from shardwise._src.explain.rendering.report_phrases import seconds_text, where
from shardwise._src.explain.rendering.report_style import SCRIPT, STYLE
from shardwise._src.explain.report_data import ReportData
from shardwise._src.messages.formatting import in_bytes, pluralize
from shardwise._src.visualize.svg import escape
from shardwise._version import __version__

ROWS, LINES, CONTEXT, LETTERS = 500, 10_000, 4, 2_000
HLO = 1_000_000  # characters
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_COMMENT = re.compile(r"(.*:\d+)(?: \((.*)\))?")
_OP = re.compile(r" = ([\w-]+)")


class _Step(NamedTuple):
    """A line of the program: its code, its op, and the user source line that it comes from."""

    code: str
    op: str
    line: str


class _Marks(dict[str, int]):
    """Numbers the user source lines: page elements that belong to a line carry its number."""

    def __missing__(self, line: str) -> int:
        self[line] = len(self) + 1
        return self[line]

    def of(self, line: str, op: str = "") -> str:
        """HTML attributes of an element."""
        if not line:
            return ""
        return f' data-at="{self[line]}"' + (f' data-op="{escape(op)}"' if op else "")


def save(report: ReportData, path: Any) -> Path:
    """Writes a page atomically.

    Raises:
      OSError: no file can be written; the message explains why. IsADirectoryError for a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"save: {path} is a folder; pass the name of a file, such as "
            f"{path / f'{report.name}.html'}."
        )
    content = page(report).encode()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        if part.parent.is_dir():
            part.unlink(missing_ok=True)
        raise type(error)(
            f"save: the report cannot be written to {path}: {error.strerror}. "
            + ("" if path.parent.is_dir() else f"There is no folder {path.parent}. ")
            + "Nothing was written."
        ) from None
    return path


def page(report: ReportData) -> str:
    """The page as a string."""
    marks = _Marks()
    steps = list(_steps(report.program))
    parts = [
        _header(report), _time(report), _communication(report, marks), _panes(report, steps, marks),
        _memory(report), _buffers(report, marks), _computation(report), _hlo(report.hlo),
    ]  # fmt: skip
    title = escape(f"{report.name}: what it will do")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + f"\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


# ---- sections ------------------------------------------------------------------------------------


def _header(report: ReportData) -> str:
    source = f", {report.machine.source}" if report.machine.source else ""
    facts = words.head(report).removeprefix(f"{report.name}: ")
    return (
        f'<header><h1>{escape(report.name)}</h1><p class="soft">{escape(facts + source)}. '
        f"Nothing was run: this is what the compiled program will do. shardwise {__version__}</p>"
        "</header>"
    )


def _time(report: ReportData) -> str:
    note = "Computation overlaps with memory access; communication overlaps with neither."
    return _section(words.time_head(report), _bars(time_bars(report), report.seconds.dominant),
                    _note(note))  # fmt: skip


def _communication(report: ReportData, marks: _Marks) -> str:
    rows = report.communication
    if not rows:
        return _section(words.communication_head(report))
    body = []
    for row in rows[:ROWS]:
        cells = [
            _cell(f"{row.kind} {','.join(row.dtypes)}"), _cell(words.over(row)),
            _number(words.count_text(row), row.count), _number(in_bytes(row.bytes), row.bytes),
            _number(seconds_text(row.seconds), row.seconds),
            f'<td class="all" data-v="{escape(row.line)}">{_cause(row, report.lines, marks)}</td>',
        ]  # fmt: skip
        body.append(f"<tr{marks.of(row.line, row.op)}>{''.join(cells)}</tr>")
    if others := rows[ROWS:]:
        body.append(f"<tr data-rest=1>{_sums(f'{len(others):,} more', words.total(others))}</tr>")
    heads = (("collective", ""), ("over", ""), ("count", "n"), ("bytes", "n"), ("time", "n"),
             ("where and why", "all"))  # fmt: skip
    foot = f"<tfoot><tr>{_sums('total', words.total(rows))}</tr></tfoot>" if len(rows) > 1 else ""
    table = _table("sorted fold", heads, body, foot)
    return _section(words.communication_head(report), table, *map(_note, words.footnotes(rows)))


def _sums(name: str, sums: words.Total) -> str:
    return (_cell(name) + _cell("") + _number(sums.runs, 0) + _number(in_bytes(sums.bytes), 0)
            + _number(seconds_text(sums.seconds), 0) + '<td class="all"></td>')  # fmt: skip


def _cause(row: Any, sources: Mapping[str, str], marks: _Marks) -> str:
    source = sources.get(row.line, "")
    parts = [f"<code>{_text(source)}</code>" if source else "",
             f'<span class="soft">in {_text(row.scope)}</span>' if row.scope else ""]  # fmt: skip
    first = " ".join([_place(row.line, marks), *parts]).strip()
    call = f'<div class="code">{_text(row.call)}</div>' if row.call else ""
    return f'<div class="code">{first}</div>{call}<div class="why">{_text(row.why)}</div>'


def _place(line: str, marks: _Marks) -> str:
    return f'<a href="#line-{marks[line]}">{_text(where(line))}</a>' if line else ""


def _memory(report: ReportData) -> str:
    notes = [_note(words.DONATED)] if report.memory.donated else []
    return _section(words.memory_head(report), _bars(memory_bars(report), ""), *notes)


def _buffers(report: ReportData, marks: _Marks) -> str:
    rows = words.buffer_rows(report)
    if not rows:
        return ""
    body, most = [], rows[0].bytes or 1
    for r in rows[:ROWS]:
        kind = r.kind + (f" ×{r.times:,}" if r.times > 1 else "")
        what = f'<div class="code">{_place(r.line, marks)} {_text(r.what)}</div>'
        body.append(
            f"<tr{marks.of(r.line)}>{_number(in_bytes(r.bytes), r.bytes)}{_cell(kind)}"
            f"<td>{_track(r.kind, 0, r.bytes / most)}</td>"
            f'<td class="all" data-v="{escape(r.line or r.what)}">{what}</td></tr>'
        )
    if others := rows[ROWS:]:
        size = in_bytes(sum([r.bytes for r in others]))
        name = f"{sum([r.times for r in others]):,} more"
        body.append(f"<tr data-rest=1>{_number(size, 0)}{_cell(name)}<td></td><td></td></tr>")
    heads = (("bytes", "n"), ("kind", ""), ("", ""), ("line and value", "all"))
    table = _table("sorted fold buffers", heads, body, "")
    return _section("largest buffers per device", table)


def _computation(report: ReportData) -> str:
    rows = [f"<tr>{_cell(name)}{_number(n, 0)}</tr>" for name, n in words.computation_rows(report)]
    table = f'<table style="width:auto"><tbody>{"".join(rows)}</tbody></table>'
    notes = map(_note, words.computation_notes(report))
    return _section("computation per device", table, *notes)


def _hlo(text: str) -> str:
    if not text:
        return ""
    name = f"The compiled program of each device, in HLO: {len(text):,} characters"
    if len(text) > HLO:
        name += f", the first {HLO:,} of which follow"
    content = escape(text[:HLO].expandtabs())
    return f"<details><summary>{name}</summary><pre>{content}</pre></details>"


# ---- source next to the program ------------------------------------------------------------------


def _panes(report: ReportData, steps: Sequence[_Step], marks: _Marks) -> str:
    named = dict.fromkeys([*report.lines, *[s.line for s in steps[:LINES] if s.line]])
    source = "".join(_files(named, report.lines, marks))
    program = "".join(_program(steps, marks))
    return _section(
        "your source lines, and the traced program",
        '<div class="panes"><div class="pane" tabindex="0"><header>source lines</header>'
        f'{source}</div><div class="pane" tabindex="0"><header>the program</header>'
        f"<ol>{program}</ol></div></div>",
        _note("Point at a row, a line or an equation to highlight what belongs to it; click to "
              "pin it."),
    )  # fmt: skip


def _steps(program: str) -> Iterator[_Step]:
    for text in program.splitlines():
        code, mark, comment = text.rpartition("# ")
        found = _COMMENT.fullmatch(comment) if mark else None
        if found is None:
            code = text
        op = _OP.search(code)
        yield _Step(code.rstrip(), op[1] if op else "", found[1] if found else "")


def _program(steps: Sequence[_Step], marks: _Marks) -> Iterator[str]:
    for step in steps[:LINES]:
        at = ""
        if step.line:
            name = f"{os.path.basename(step.line)}"
            at = f'<span class="at" title="{escape(step.line)}">{escape(name)}</span>'
        yield f"<li{marks.of(step.line, step.op)}>{_text(step.code)}{at}</li>"
    if len(steps) > LINES:
        yield f"<li>… {pluralize(len(steps) - LINES, 'more line')}</li>"


def _files(named: Iterable[str], known: Mapping[str, str], marks: _Marks) -> Iterator[str]:
    """For each file, the referenced lines with some context."""
    files: dict[str, list[int]] = defaultdict(list)
    for line in named:
        file, _, number = line.rpartition(":")
        files[file].append(int(number))
    for file, numbers in files.items():
        linecache.checkcache(file)
        texts = [text.rstrip("\n").expandtabs() for text in linecache.getlines(file)]
        lines, note = dict(enumerate(texts, 1)), ""
        held = {n: known[f"{file}:{n}"] for n in numbers if f"{file}:{n}" in known}
        if any([lines.get(n, "").strip() != text for n, text in held.items()]):
            lines = {n: text for n, text in held.items() if text}
            note = _note("the file has changed: these are the lines recorded in the report")
        name = words.where(f"{file}:0")[:-2]
        body = "".join(_lines(file, lines, sorted(numbers), marks))
        yield f'<h3 class="code">{escape(name)}</h3>{note}<ol>{body}</ol>'


def _lines(
    file: str, texts: Mapping[int, str], numbers: Sequence[int], marks: _Marks
) -> Iterator[str]:
    named = set(numbers)
    shown = {n for m in numbers for n in range(m - CONTEXT, m + CONTEXT + 1) if n in texts} | named
    before = 0
    for n in sorted(shown)[:LINES]:
        if before and n > before + 1:
            yield '<li class="near"><span class="no">⋯</span></li>'
        before, line = n, f"{file}:{n}"
        text = f'<span class="no">{n}</span>{_text(texts.get(n, ""))}'
        if n in named:
            yield f'<li id="line-{marks[line]}"{marks.of(line)}>{text}</li>'
        else:
            yield f'<li class="near">{text}</li>'


# ---- parts ---------------------------------------------------------------------------------------


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{''.join(parts)}</section>"


def _table(kind: str, heads: Sequence[tuple[str, str]], body: Sequence[str], foot: str) -> str:
    cells = "".join([
        f'<th class="{side}" data-kind="{"number" if side == "n" else "text"}">{name}</th>'
        for name, side in heads
    ])  # fmt: skip
    return (f'<table class="{kind}"><thead><tr>{cells}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody>{foot}</table>")  # fmt: skip


def _cell(text: str) -> str:
    return f"<td>{_text(text)}</td>"


def _number(text: str, value: float) -> str:
    return f'<td class="n" data-v="{value}">{escape(text)}</td>'


def _bars(rows: Sequence[Bar], most: str) -> str:
    cells = [
        f'<span class="{"most" if name == most else ""}">{escape(name)}</span>'
        f'<span class="n">{escape(value)}</span>{_track(name, start, length)}'
        for name, value, start, length in rows
    ]
    return f'<div class="bars">{"".join(cells)}</div>'


def _track(name: str, start: float, length: float) -> str:
    width = f"max({100 * length:.2f}%,{2 if length else 0}px)"
    style = f"margin-left:{min(100 * start, 99.5):.2f}%;width:{width};background:{COLORS[name]}"
    return f'<div class="track"><i data-bar="{escape(name)}" style="{style}"></i></div>'


def _note(text: str) -> str:
    return f'<p class="soft">{_text(text)}</p>'


def _text(text: str) -> str:
    """Escaped text of bounded length."""
    return escape(text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…")
