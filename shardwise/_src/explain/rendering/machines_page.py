"""A folder with a program's reports for several machines, and a page that compares them.

    save_all("train.py:step", made, "build/compiled")

`index.html` has the table, and bars of memory and time; it links to `MACHINE.html`, the report, and
`MACHINE.hlo.txt`, the optimized program. All pages are self-contained and need no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from shardwise._src.explain.outcomes import HEADS, SIDES, Outcome, cells
from shardwise._src.explain.rendering.report_html import data_file
from shardwise._src.explain.rendering.report_page import PageLook, write_page
from shardwise._src.explain.rendering.report_phrases import (
    Bar,
    Row,
    Section,
    seconds_text,
    share_text,
)
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.visualize.svg import escape
from shardwise._version import __version__

ESTIMATE = (
    "Times are estimates from the peak rates of data sheets: at least, not how long a step takes."
)


def save_all(name: str, made: Sequence[Outcome], folder: str | os.PathLike[str]) -> Path:
    """Writes the files of all machines, and the page that compares them; returns its path.

    Raises:
      OSError: if a file cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for one in made:
        if one.report is not None:
            plain = file_of(one.machine)
            one.report.save(folder / f"{plain}.html")
            folder.joinpath(f"{plain}.hlo.txt").write_text(one.report.hlo, encoding="utf-8")
    return write_page(comparison(name, made), folder / "index.html")


def file_of(machine: str) -> str:
    """The name of a machine's files, without their ending: `h100-2x8`."""
    return re.sub(r"[^\w.-]", "-", machine)


def comparison(name: str, made: Sequence[Outcome]) -> str:
    """The page that compares the machines."""
    reported = {one.machine for one in made if one.report is not None}
    look = _Look({machine: f"{file_of(machine)}.html" for machine in reported})
    parts = [look.section(_table(made)), *map(look.section, _bars(made))]
    parts += [_reason(one, look) for one in made if one.reason]
    parts.append(_programs(made))
    return Template(data_file("machines.html")).substitute(
        name=escape(name),
        facts=f"compiled for {len(made)} machines. Nothing was run. {ESTIMATE}",
        version=__version__,
        body="\n".join(filter(None, parts)),
        style=data_file("report.css"),
        script=data_file("report.js"),
    )


class _Look(PageLook):
    """Names of machines with a report are links to it."""

    def __init__(self, pages: Mapping[str, str]):
        super().__init__({})
        self.pages = pages

    def text(self, text: str) -> str:
        shown = super().text(text)
        page = self.pages.get(text)
        return shown if page is None else f'<a href="{escape(page)}">{shown}</a>'


def _table(made: Sequence[Outcome]) -> Section:
    rows = [Row(cells(one), _values(one)) for one in made]
    return Section("machines", "machines", rows=rows, heads=HEADS, sides=SIDES)


def _values(one: Outcome) -> tuple[float, ...]:
    """The numbers of a row, by which the page sorts it."""
    if (report := one.report) is None:
        return (0, one.memory[0], 0, 0, 0, one.seconds)
    runs = sum([c.count - c.shared for c in report.communication])
    size = sum([c.bytes for c in report.communication])
    return (report.devices, report.memory.peak, runs, size, report.seconds.total, one.seconds)


def _bars(made: Sequence[Outcome]) -> list[Section]:
    """The estimated time and the memory of each machine, on common scales."""
    reports = [(one, one.report) for one in made if one.report is not None]
    longest = max([r.seconds.total for _, r in reports], default=0) or 1
    found: list[Section] = []
    for one, r in reports:
        s, first = r.seconds, max(r.seconds.compute, r.seconds.memory)
        parts = (("compute", 0, s.compute), ("memory", 0, s.memory),
                 ("communication", first, s.communication))  # fmt: skip
        bars = [Bar(n, seconds_text(t), at / longest, t / longest) for n, at, t in parts]
        share = share_text(*one.memory)
        title = f"{one.machine}: at least {seconds_text(s.total)}"
        notes = [f"{in_bytes(one.memory[0])} of {in_bytes(one.memory[1])} of memory: {share}"]
        found.append(Section("time", title, bars, notes=notes, dominant=s.dominant))
    return found


def _reason(one: Outcome, look: PageLook) -> str:
    text = escape(one.reason)
    return f"<section><h2>{escape(one.machine)}: {one.state}</h2><pre>{text}</pre></section>"


def _programs(made: Sequence[Outcome]) -> str:
    links = [
        f'<li><a href="{escape(file_of(one.machine))}.hlo.txt">{escape(one.machine)}</a>, by '
        f"{escape(one.report.compiler)}: {len(one.report.hlo):,} characters</li>"
        for one in made
        if one.report is not None
    ]
    title = "<h2>optimized programs, in HLO</h2>"
    return f"<section>{title}<ul>{''.join(links)}</ul></section>" if links else ""
