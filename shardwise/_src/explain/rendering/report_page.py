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
from string import Template
from typing import Any, NamedTuple

from shardwise._src.explain.rendering import report_phrases as words
from shardwise._src.explain.rendering.report_html import Look, data_file
from shardwise._src.explain.rendering.report_phrases import sections
from shardwise._src.explain.report_data import ReportData
from shardwise._src.messages.formatting import pluralize
from shardwise._src.visualize.svg import escape
from shardwise._version import __version__

ROWS, LINES, CONTEXT, LETTERS = 500, 10_000, 4, 2_000
HLO = 1_000_000  # characters
OVERLAP = "Computation overlaps with memory access; communication overlaps with neither."
_CSS = data_file("report.css")
_CLASSES = {*re.findall(r"\.([a-z]+)", _CSS), "sorted"}  # the script looks for `sorted`
_COMMENT = re.compile(r"(.*:\d+)(?: \((.*)\))?")
_OP = re.compile(r" = ([\w-]+)")


class _Step(NamedTuple):
    """A line of the program: its code, its op, and the user source line that it comes from."""

    code: str
    op: str
    line: str


class PageLook(Look):
    """Elements have classes, and those that belong to a source line carry its number."""

    heading = "h2"
    letters = LETTERS

    def __init__(self, lines: Mapping[str, str]):
        super().__init__(lines)
        self.numbers: dict[str, int] = {}

    def of(self, classes: str) -> str:
        names = " ".join([name for name in classes.split() if name in _CLASSES])
        return f' class="{names}"' if names else ""

    def number(self, line: str) -> int:
        return self.numbers.setdefault(line, len(self.numbers) + 1)

    def place(self, line: str) -> str:
        at = self.text(words.where(line))
        return f'<a href="#line-{self.number(line)}">{at}</a>' if line else ""

    def marks(self, line: str, op: str = "") -> str:
        if not line:
            return ""
        return f' data-at="{self.number(line)}"' + (f' data-op="{escape(op)}"' if op else "")


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
    return write_page(page(report), path)


def write_page(text: str, path: Path) -> Path:
    """Writes a file atomically.

    Raises:
      OSError: as in `save`.
    """
    content = text.encode()
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
    look = PageLook(report.lines)
    time, communication, *others = sections(report, ROWS, ROWS)
    before = [look.section(time, OVERLAP), look.section(communication)]
    steps = list(_steps(report.program))
    named = dict.fromkeys([*report.lines, *[s.line for s in steps[:LINES] if s.line]])
    source = f", {report.machine.source}" if report.machine.source else ""
    return Template(data_file("page.html")).substitute(
        name=escape(report.name),
        facts=escape(words.head(report).removeprefix(f"{report.name}: ") + source),
        version=__version__,
        before="\n".join(before),
        source="".join(_files(named, report.lines, look)),
        program="".join(_program(steps, look)),
        after="\n".join(map(look.section, others)),
        hlo=_hlo(report.hlo),
        style=_CSS,
        script=data_file("report.js"),
    )


def _hlo(text: str) -> str:
    if not text:
        return ""
    name = f"The compiled program of each device, in HLO: {len(text):,} characters"
    if len(text) > HLO:
        name += f", the first {HLO:,} of which follow"
    content = escape(text[:HLO].expandtabs())
    return f"<details><summary>{name}</summary><pre>{content}</pre></details>"


# ---- source next to the program ------------------------------------------------------------------


def _steps(program: str) -> Iterator[_Step]:
    for text in program.splitlines():
        code, mark, comment = text.rpartition("# ")
        found = _COMMENT.fullmatch(comment) if mark else None
        if found is None:
            code = text
        op = _OP.search(code)
        yield _Step(code.rstrip(), op[1] if op else "", found[1] if found else "")


def _program(steps: Sequence[_Step], look: PageLook) -> Iterator[str]:
    for step in steps[:LINES]:
        at = ""
        if step.line:
            name = escape(os.path.basename(step.line))
            at = f'<span class="at" title="{escape(step.line)}">{name}</span>'
        yield f"<li{look.marks(step.line, step.op)}>{look.text(step.code)}{at}</li>"
    if len(steps) > LINES:
        yield f"<li>… {pluralize(len(steps) - LINES, 'more line')}</li>"


def _files(named: Iterable[str], known: Mapping[str, str], look: PageLook) -> Iterator[str]:
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
            note = look.note("the file has changed: these are the lines recorded in the report")
        name = words.where(f"{file}:0")[:-2]
        body = "".join(_lines(file, lines, sorted(numbers), look))
        yield f'<h3 class="code">{escape(name)}</h3>{note}<ol>{body}</ol>'


def _lines(
    file: str, texts: Mapping[int, str], numbers: Sequence[int], look: PageLook
) -> Iterator[str]:
    named = set(numbers)
    shown = {n for m in numbers for n in range(m - CONTEXT, m + CONTEXT + 1) if n in texts} | named
    before = 0
    for n in sorted(shown)[:LINES]:
        if before and n > before + 1:
            yield '<li class="near"><span class="no">⋯</span></li>'
        before, line = n, f"{file}:{n}"
        text = f'<span class="no">{n}</span>{look.text(texts.get(n, ""))}'
        if n in named:
            yield f'<li id="line-{look.number(line)}"{look.marks(line)}>{text}</li>'
        else:
            yield f'<li class="near">{text}</li>'
