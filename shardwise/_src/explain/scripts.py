"""Reports on the jitted functions of a script: runs it, and reports each compiled program.

with observed() as found:
    runpy.run_path("train.py", run_name="__main__")
made, failed = reports(found)
print(overview(made), *made, sep="\n\n")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from shardwise._src.explain.program_report import report_of
from shardwise._src.explain.rendering.report_phrases import seconds_text, total
from shardwise._src.explain.report import Report
from shardwise._src.jit.compilations import compilations
from shardwise._src.jit.stages import Lowered
from shardwise._src.messages.formatting import columns, in_bytes


class Found(NamedTuple):
    """A program. name: of its function; a function's second program is `step-2`, and so on."""

    name: str
    function: str
    lowered: Lowered


class Failure(NamedTuple):
    """A program without a report, and the reason."""

    name: str
    error: Exception


@contextmanager
def observed() -> Iterator[list[Found]]:
    """Collects jitted functions compiled in the block; equal programs only once."""
    found: list[Found] = []
    texts: set[str] = set()
    counts: dict[str, int] = {}

    def note(lowered: Lowered) -> None:
        if lowered.plan.text in texts:
            return
        texts.add(lowered.plan.text)
        name = lowered.traced.program.name
        counts[name] = counts.get(name, 0) + 1
        number = f"-{counts[name]}" if counts[name] > 1 else ""
        found.append(Found(f"{name}{number}", name, lowered))

    with compilations.notifying(note):
        yield found


def reports(found: Sequence[Found], machine: Any = None) -> tuple[list[Report], list[Failure]]:
    """A report for each program, most communication first; and those that fail to compile again."""
    made: list[Report] = []
    failed: list[Failure] = []
    for one in found:
        try:
            made.append(replace(report_of(one.lowered, machine), name=one.name))
        except (RuntimeError, OSError, ValueError) as error:
            failed.append(Failure(one.name, error))
    return sorted(made, key=lambda report: -report.bytes()), failed


def overview(made: Sequence[Report]) -> str:
    """A line for each report, below a header."""
    rows = [("function", "devices", "collectives", "bytes", "memory", "time", "mostly")]
    for report in made:
        sums = total(report.communication)
        rows.append((
            report.name, f"{report.devices:,}", sums.runs, in_bytes(sums.bytes),
            in_bytes(report.memory.peak), seconds_text(report.seconds.total),
            report.seconds.dominant if report.seconds.total else "-",
        ))  # fmt: skip
    return "\n".join(columns(rows, "<>>>>><"))
