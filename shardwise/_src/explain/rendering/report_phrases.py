"""Texts and numbers of a report, shared by terminal and HTML output: no layout."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardwise._src.explain.device_axes import SubAxis, over_text
from shardwise._src.explain.report_data import Communication, ReportData
from shardwise._src.messages.formatting import in_bytes, join, joined, pluralize

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
JOINED = "* runs as part of a collective that another row counts"
AT_LEAST = "+ at least: in a loop whose length is unknown until it runs"


class BufferRow(NamedTuple):
    """Buffers that differ only in their address: `times` of them, `bytes` in total."""

    bytes: int
    times: int
    kind: str
    what: str
    line: str


class Part(NamedTuple):
    """A component of the estimated time, in seconds; start: when it begins."""

    name: str
    start: float
    seconds: float


class Total(NamedTuple):
    """Totals of rows of communication."""

    rows: int
    runs: str
    bytes: int
    seconds: float


# ---- numbers -------------------------------------------------------------------------------------


def seconds_text(seconds: float) -> str:
    """`630 µs`, `1.9 ms`, `12 s`: two digits, down to thousandths of a microsecond."""
    if not seconds:
        return "0 s"
    rounded = float(f"{seconds:.1e}")
    scale, unit = (1, "s") if rounded >= 1 else (1e3, "ms") if rounded >= 1e-3 else (1e6, "µs")
    number = float(f"{rounded * scale:.2g}")
    digits = 0 if number >= 10 else 1 if number >= 1 else 2 if number >= 0.1 else 3
    return f"{number:,.{digits}f} {unit}"


def amount_text(number: float, unit: str) -> str:
    """`246 kflop`: three digits."""
    for size, prefix in _UNITS:
        if number >= size:
            return f"{float(f'{number / size:.3g}'):,g} {prefix}{unit}"
    return f"{number:,g} {unit}"


def share_text(part: float, whole: float) -> str:
    """`12 %`; for tiny shares, `under 0.1 %`."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:,.0f} %"


# ---- locations -----------------------------------------------------------------------------------


def where(line: str) -> str:
    """`file:line`, relative to the current folder if the file is below it."""
    file, _, number = line.rpartition(":")
    if not os.path.isabs(file):
        return line
    here = os.getcwd()
    inside = file.startswith(os.path.join(here, ""))
    return f"{os.path.relpath(file, here)}:{number}" if inside else line


def tail(path: str, most: int) -> str:
    """The end of a path, truncated at a nearby separator if possible: `…/models/gpt.py:12`."""
    if len(path) <= most:
        return path
    end = path[-(most - 1) :]
    cut = end.find(os.sep)
    return "…" + (end[cut:] if 0 <= cut < len(end) // 2 else end)


# ---- parts of a report ---------------------------------------------------------------------------


def head(report: ReportData) -> str:
    """`step: 8 devices, mesh (data=4, model=2), estimated for machine 'cpu'`"""
    meshes = [
        f"({', '.join([f'{name}={size}' for name, size in mesh.items()])})"
        for mesh in (report.mesh, *report.others)
    ]
    mesh = f", mesh{'es' * bool(report.others)} {joined(meshes)}" if report.mesh else ""
    devices = pluralize(report.devices, "device")
    return f"{report.name}: {devices}{mesh}, estimated for machine {report.machine.name!r}"


def over(row: Communication) -> str:
    """The axes of a row."""
    which = f" of mesh {row.mesh + 1}" if row.mesh and row.axes else ""
    return over_text(row.axes, row.groups, row.kind) + which


def parts(rows: Iterable[Communication]) -> list[str]:
    """Explanations of the sub-axes in rows."""
    met = dict.fromkeys([a for r in rows for a in r.axes or () if isinstance(a, SubAxis)])
    return [f"{part}: {part.description}" for part in met]


def count_text(row: Communication) -> str:
    return f"{row.count:,}{'' if row.known else '+'}{'*' if row.shared else ''}"


def total(rows: Sequence[Communication]) -> Total:
    """Totals of some rows; a shared collective counts once."""
    count = sum([row.count - row.shared for row in rows])
    mark = "" if all([row.known for row in rows]) else "+"
    return Total(len(rows), f"{count:,}{mark}", sum([row.bytes for row in rows]),
                 sum([row.seconds for row in rows]))  # fmt: skip


def footnotes(rows: Iterable[Communication]) -> list[str]:
    rows = list(rows)
    notes = parts(rows) + ([JOINED] if any([row.shared for row in rows]) else [])
    return notes + ([] if all([row.known for row in rows]) else [AT_LEAST])


def communication_head(report: ReportData) -> str:
    """`communication: 20 collectives, 45.0 KiB per device`"""
    rows = report.communication
    if not rows:
        return "communication: none"
    sums = total(rows)
    noun = "collective" if sums.runs == "1" else "collectives"
    return f"communication: {sums.runs} {noun}, {in_bytes(sums.bytes)} per device"


def memory_rows(report: ReportData) -> list[tuple[str, int]]:
    m = report.memory
    rows = [("arguments", m.arguments), ("results", m.results), ("temporaries", m.temporaries)]
    return rows if not m.donated else [*rows, ("donated", m.donated)]


def memory_head(report: ReportData) -> str:
    """`memory per device: 40.8 KiB at its peak, under 0.1 % of 2.0 GiB`"""
    peak, whole = report.memory.peak, report.machine.memory_bytes
    share = f"{share_text(peak, whole)} of {in_bytes(whole)}"
    excess = ": EXCEEDS DEVICE MEMORY" if peak > whole else ""
    return f"memory per device: {in_bytes(peak)} at its peak, {share}{excess}"


DONATED = "donated: arguments whose memory results reuse; counted once"


def buffer_rows(report: ReportData) -> list[BufferRow]:
    """The largest buffers first; similar ones are merged into one row."""
    alike: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for b in report.buffers:
        alike[b.kind, b.what, b.line].append(b.bytes)
    rows = [BufferRow(sum(sizes), len(sizes), *key) for key, sizes in alike.items()]
    return sorted(rows, key=lambda row: -row.bytes)


def computation_rows(report: ReportData) -> list[tuple[str, str]]:
    """The counted quantities, and their amounts."""
    c = report.computation
    flops = sorted(c.flops.items(), key=lambda item: -item[1])
    rows = [(f"products of {dtype}", amount_text(n, "flop")) for dtype, n in flops]
    rows.append(("other arithmetic", amount_text(c.elementwise, "flop")))
    return [*rows, ("memory read and written", in_bytes(c.bytes))]


def computation_notes(report: ReportData) -> list[str]:
    c, notes = report.computation, []
    if not c.known:
        notes.append("at least: a loop of unknown length counts as one iteration")
    if c.uncounted:
        notes.append(f"not counted: the FFI calls {join(sorted(c.uncounted))}")
    return notes


def time_head(report: ReportData) -> str:
    """`estimated time: at least 2.0 ms, mostly communication`"""
    s = report.seconds
    mostly = f", mostly {s.dominant}" if s.total else ""
    return f"estimated time: at least {seconds_text(s.total)}{mostly}"


def time_parts(report: ReportData) -> list[Part]:
    """Computation overlaps with memory access; communication follows."""
    s = report.seconds
    return [Part("compute", 0, s.compute), Part("memory", 0, s.memory),
            Part("communication", max(s.compute, s.memory), s.communication)]  # fmt: skip
