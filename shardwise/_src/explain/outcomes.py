"""What compiling one program for several machines gave, as a table.

made = [Outcome("h100:8", report, seconds=8.8), Outcome("tpu-v5e:4", error="libtpu is …")]
print(table_of(made), *compilers_of(made), *reasons_of(made), sep="\n")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.explain.fits import excess_message
from shardwise._src.explain.rendering.report_phrases import seconds_text, total
from shardwise._src.explain.report import Report
from shardwise._src.messages.formatting import columns, in_bytes, joined

HEADS = ("machine", "devices", "fits", "memory", "collectives", "bytes", "time", "mostly",
         "compiled")  # fmt: skip
SIDES = "<><>>>><>"
FORMAT = 1  # version of the format of `as_data`


@dataclass(frozen=True)
class Outcome:
    """One machine's.

    report:  of the program; None if the compiler did not make one.
    error:   why it did not, or why the program does not fit.
    needed, available: bytes of a device, of a program that the compiler rejects as too large.
    seconds: that tracing, compiling and reading the program took.
    size:    devices of the machine; 0 if unknown.
    """

    machine: str
    report: Report | None = None
    error: str = ""
    needed: int = 0
    available: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    size: int = 0

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes of a device that are needed, at least, and available; zeros if unknown."""
        if self.report is None:
            return self.needed, self.available
        return self.report.memory.peak, self.report.machine.memory_bytes

    @property
    def excess(self) -> int:
        """Bytes of a device that are needed and not available."""
        needed, available = self.memory
        return max(needed - available, 0)

    @property
    def reason(self) -> str:
        """Why it failed or does not fit; "" if it fits."""
        if self.report is None or self.error or not self.excess:
            return self.error
        return excess_message(self.report, self.memory[1])

    @property
    def state(self) -> str:
        """ "fits", "too large" or "failed"."""
        if self.exhausted or self.excess:
            return "too large"
        return "failed" if self.report is None else "fits"

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        needed, available = self.memory
        return {
            "machine": self.machine,
            "state": self.state,
            "error": self.reason or None,
            "memory_bytes": needed or None,
            "available_bytes": available or None,
            "excess_bytes": self.excess,
            "compile_seconds": self.seconds,
            "report": None if self.report is None else self.report.to_dict(),
        }


def as_data(name: str, made: Sequence[Outcome]) -> dict[str, Any]:
    """All outcomes of a program as plain data for JSON."""
    return {"format": FORMAT, "program": name, "machines": [one.to_dict() for one in made]}


def fits_text(one: Outcome) -> str:
    """`yes`, `no: 1.5 GiB too much`, `failed`."""
    excess = f": {in_bytes(one.excess)} too much" if one.excess else ""
    return {"fits": "yes", "failed": "failed"}.get(one.state, f"no{excess}")


def memory_text(one: Outcome) -> str:
    """`10.5 MiB of 79.1 GiB`; `-` if unknown."""
    needed, available = one.memory
    least = "over " if one.report is None else ""
    return f"{least}{in_bytes(needed)} of {in_bytes(available)}" if available else "-"


def cells(one: Outcome) -> tuple[str, ...]:
    """A row of the table, under HEADS."""
    took = seconds_text(one.seconds) if one.seconds else "-"
    if (report := one.report) is None:
        memory = memory_text(one)
        return (one.machine, "-", fits_text(one), memory, "-", "-", "-", "-", took)
    sums, seconds = total(report.communication), report.seconds
    return (
        one.machine, f"{report.devices:,}", fits_text(one), memory_text(one), sums.runs,
        in_bytes(sums.bytes), seconds_text(seconds.total),
        seconds.dominant if seconds.total else "-", took,
    )  # fmt: skip


def table_of(made: Sequence[Outcome]) -> str:
    """A line for each machine, below a header."""
    return "\n".join(columns([HEADS, *map(cells, made)], SIDES))


def compilers_of(made: Sequence[Outcome]) -> list[str]:
    """For each compiler, a line with the machines that it compiled for."""
    by: dict[str, list[str]] = defaultdict(list)
    for one in made:
        if one.report is not None:
            by[one.report.compiler].append(one.machine)
    return [f"compiled by {name}: {joined(machines)}" for name, machines in by.items()]


def hints_of(made: Sequence[Outcome]) -> list[str]:
    """A line about programs that use one device of several, for lack of shardings."""
    by: dict[int, list[str]] = defaultdict(list)
    for one in made:
        if one.report is not None and one.report.devices == 1 < one.size:
            by[one.size].append(one.machine)
    return [
        f"{joined(machines)}: the program uses 1 of {size:,} devices, as no argument is sharded "
        "over them. Give arguments shardings over a mesh of the `devices` that the function takes, "
        "or over an AbstractMesh."
        for size, machines in by.items()
    ]


def reasons_of(made: Sequence[Outcome]) -> list[str]:
    """Why machines failed or are too small, each with their names; equal reasons once."""
    by: dict[str, list[str]] = defaultdict(list)
    for one in made:
        if one.reason:
            by[one.reason].append(one.machine)
    found: list[str] = []
    for text, names in by.items():
        gap = "\n" if "\n" in text else " "
        is_named = len(names) == 1 and repr(names[0]) in text.partition("\n")[0]
        found.append(text if is_named else f"{joined(names)}:{gap}{text}")
    return found
