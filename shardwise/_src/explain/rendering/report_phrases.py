"""A report as sections of bars, tables and notes: what it says, without layout.

`report_text` and `report_html` render the sections.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardwise._src.explain.device_axes import SubAxis, over_text
from shardwise._src.explain.launches.launch_data import LaunchData
from shardwise._src.explain.report_data import Communication, Computation, ReportData
from shardwise._src.messages.formatting import in_bytes, join, joined, pluralize

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
JOINED = "* runs as part of a collective that another row counts"
DONATED = "donated: arguments whose memory results reuse; counted once"
AT_LEAST = "+ at least: in a loop whose length is unknown until it runs"


class BufferRow(NamedTuple):
    """Buffers that differ only in their address: `times` of them, `bytes` in total."""

    bytes: int
    times: int
    kind: str
    what: str
    line: str


class Bar(NamedTuple):
    """A quantity. start, length: as fractions of the largest one of its section."""

    name: str
    value: str
    start: float
    length: float


class Row(NamedTuple):
    """A row of a table. values: those of the columns of numbers, for sorting.

    item: what the row is about, which renderers describe in further columns; None in sums.
    """

    texts: tuple[str, ...]
    values: tuple[float, ...] = ()
    item: Communication | BufferRow | None = None


class Section(NamedTuple):
    """A part of a report.

    heads: of the columns, and of those that describe the item of a row. sides: `>` for each column
    of numbers, else `<`. rest, total: the sums of omitted rows, and of all rows.
    dominant: the name of the bar that is emphasized, if any.
    """

    name: str
    title: str
    bars: Sequence[Bar] = ()
    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()
    heads: tuple[str, ...] = ()
    sides: str = ""
    rest: Row | None = None
    total: Row | None = None
    dominant: str = ""

    @property
    def lines(self) -> list[Row]:
        """All rows of its table, sums included."""
        return [*self.rows, *filter(None, (self.rest, self.total))]


class Total(NamedTuple):
    """Totals of rows of communication."""

    runs: str
    bytes: int
    seconds: float

    def row(self, name: str) -> Row:
        return Row((name, "", self.runs, in_bytes(self.bytes), seconds_text(self.seconds)))


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
    """`step: 8 devices, mesh (data=4, model=2), estimated for machine 'cpu'`, or how it is compiled
    for a target."""
    meshes = [
        f"({', '.join([f'{name}={size}' for name, size in mesh.items()])})"
        for mesh in (report.mesh, *report.others)
    ]
    mesh = f", mesh{'es' * bool(report.others)} {joined(meshes)}" if report.mesh else ""
    devices = pluralize(report.devices, "device")
    how = f"estimated for machine {report.machine.name!r}"
    if report.compiler:
        how = f"compiled for {report.target!r} by {report.compiler}"
        if report.machine.name != report.target:
            how += f", estimated with the rates of {report.machine.name!r}"
        if report.missing:
            how += f", whose own compiler is not used: {report.missing.rstrip('.')}"
    elif report.missing:
        how += f" from the program for CPUs: {report.missing.rstrip('.')}"
    return f"{report.name}: {devices}{mesh}, {how}"


def over(row: Communication) -> str:
    """The axes of a row."""
    which = f" of mesh {row.mesh + 1}" if row.mesh and row.axes else ""
    return over_text(row.axes, row.groups, row.kind) + which


def _count_text(row: Communication) -> str:
    return f"{row.count:,}{'' if row.known else '+'}{'*' if row.shared else ''}"


def total(rows: Sequence[Communication]) -> Total:
    """Totals of some rows; a shared collective counts once."""
    count = sum([row.count - row.shared for row in rows])
    mark = "" if all([row.known for row in rows]) else "+"
    seconds = sum([row.seconds for row in rows])
    return Total(f"{count:,}{mark}", sum([row.bytes for row in rows]), seconds)


def sections(report: ReportData, most: int, most_buffers: int) -> Iterator[Section]:
    """The parts of a report, with at most so many rows of communication and of buffers."""
    yield _time(report)
    yield _communication(report.communication, most)
    yield _memory(report)
    if report.buffers:
        yield _buffers(report, most_buffers)
    yield _computation(report.computation)
    yield from map(launch_section, report.launches)


def _time(report: ReportData) -> Section:
    """Computation overlaps with memory access; communication follows."""
    s = report.seconds
    mostly = f", mostly {s.dominant}" if s.total else ""
    parts = [("compute", 0.0, s.compute), ("memory", 0.0, s.memory),
             ("communication", max(s.compute, s.memory), s.communication)]  # fmt: skip
    whole = s.total or 1.0
    bars = [Bar(name, seconds_text(n), start / whole, n / whole) for name, start, n in parts]
    title = f"estimated time: at least {seconds_text(s.total)}{mostly}"
    return Section("time", title, bars, dominant=s.dominant)


def _communication(rows: Sequence[Communication], most: int) -> Section:
    if not rows:
        return Section("communication", "communication: none")
    sums, others = total(rows), rows[most:]
    noun = "collective" if sums.runs == "1" else "collectives"
    parts = dict.fromkeys([a for r in rows for a in r.axes or () if isinstance(a, SubAxis)])
    notes = [f"{part}: {part.description}" for part in parts]
    notes += [JOINED] * any([row.shared for row in rows])
    notes += [AT_LEAST] * (not all([row.known for row in rows]))
    return Section(
        "communication",
        f"communication: {sums.runs} {noun}, {in_bytes(sums.bytes)} per device",
        rows=[
            Row(
                (f"{r.kind} {','.join(r.dtypes)}", over(r), _count_text(r), in_bytes(r.bytes),
                 seconds_text(r.seconds)),
                (r.count, r.bytes, r.seconds), r,
            )
            for r in rows[:most]
        ],
        notes=notes,
        heads=("collective", "over", "count", "bytes", "time", "where and why"),
        sides="<<>>><",
        rest=total(others).row(f"{len(others)} more") if others else None,
        total=sums.row("total") if len(rows) > 1 else None,
    )  # fmt: skip


def _memory(report: ReportData) -> Section:
    m, whole = report.memory, report.machine.memory_bytes
    share = f"{share_text(m.peak, whole)} of {in_bytes(whole)}"
    excess = f": EXCEEDS DEVICE MEMORY by {in_bytes(m.peak - whole)}" if m.peak > whole else ""
    title = f"memory per device: {in_bytes(m.peak)} at its peak, {share}{excess}"
    sizes = {"arguments": m.arguments, "results": m.results, "temporaries": m.temporaries}
    sizes |= {"donated": m.donated} if m.donated else {}
    bars = [Bar(name, in_bytes(n), 0.0, n / (m.peak or 1)) for name, n in sizes.items()]
    return Section("memory", title, bars, notes=[DONATED] if m.donated else [])


def _buffers(report: ReportData, most: int) -> Section:
    """The largest buffers first; similar ones are merged into one row."""
    alike: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for b in report.buffers:
        alike[b.kind, b.what, b.line].append(b.bytes)
    found = [BufferRow(sum(sizes), len(sizes), *key) for key, sizes in alike.items()]
    found.sort(key=lambda row: -row.bytes)
    rows = [
        Row((in_bytes(r.bytes), r.kind + (f" ×{r.times}" if r.times > 1 else "")), (r.bytes,), r)
        for r in found[:most]
    ]
    rest = None
    if others := found[most:]:
        count = sum([r.times for r in others])
        rest = Row((in_bytes(sum([r.bytes for r in others])), f"{count} more"))
    heads = ("bytes", "kind", "", "line and value")
    title = "largest values per device" if report.compiler else "largest buffers per device"
    return Section("buffers", title, rows=rows, heads=heads, sides="><<<", rest=rest)


def _computation(c: Computation) -> Section:
    """The counted quantities, and their amounts."""
    flops = sorted(c.flops.items(), key=lambda item: -item[1])
    amounts = {f"products of {dtype}": amount_text(n, "flop") for dtype, n in flops}
    amounts["other arithmetic"] = amount_text(c.elementwise, "flop")
    amounts["memory read and written"] = in_bytes(c.bytes)
    notes = [] if c.known else ["at least: a loop of unknown length counts as one iteration"]
    if c.uncounted:
        notes.append(f"not counted: the FFI calls {join(sorted(c.uncounted))}")
    rows = [*map(Row, amounts.items())]
    return Section("computation", "computation per device", rows=rows, notes=notes, sides="<>")


def launch_section(launch: LaunchData) -> Section:
    """A launch of a kernel: its blocks, and what bounds it."""
    sizes = [f"{n}" if axis.isdigit() else f"{axis}={n}" for axis, n in launch.grid.items()]
    is_plain = sizes == [str(launch.programs)] or not sizes
    grid = pluralize(launch.programs, "program") + ("" if is_plain else f" ({', '.join(sizes)})")
    often = f", {launch.count:,} times" if launch.count > 1 else ""
    bound = {"programs": "the number of programs", "compute": "computation"}.get(launch.bound)
    title = (
        f"kernel {launch.name}: {grid}{often}, at least {seconds_text(launch.seconds)} on "
        f"{launch.machine.name!r}, bound by {bound or launch.bound}"
    )
    rows = []
    for o in launch.operands:
        block, counts = ", ".join(map(str, o.block)) or "()", (o.moved, o.reused, o.bytes)
        moved = (f"{o.moved:,}", f"{o.reused:,}") if o.is_moved else ("-", "-")
        rows.append(Row((o.what, o.type, block, o.space, *moved, in_bytes(o.bytes)), counts))
    flops = launch.flops.items()
    amounts = [f"{amount_text(n, 'flop')} in products of {dtype}" for dtype, n in flops]
    amounts.append(f"{amount_text(launch.elementwise, 'flop')} in other arithmetic")
    amounts.append(f"{amount_text(launch.transcendentals, '').strip()} transcendental functions")
    limit = f" of {in_bytes(launch.limit)}" if launch.limit else ""
    notes = [
        joined(amounts),
        f"{in_bytes(launch.bytes)} moved, {launch.intensity:.2g} flop per byte",
        f"fast memory of a program: {in_bytes(launch.on_chip)}{limit}",
        *launch.notes,
        *[f"advice: {launch.advice}"] * bool(launch.advice),
    ]
    heads = ("", "array", "block", "space", "moved", "reused", "bytes")
    return Section("kernel", title, rows=rows, notes=notes, heads=heads, sides="<<<<>>>")
