"""Benchmark runs as a series: `results/series.jsonl`, one JSON line for each complete run.

    python -m benchmarks drift             # rows whose ratio moved by over 15%
    python -m benchmarks drift --by 0.3    # by over 30%
    python -m benchmarks.series FILE...    # appends stored runs

A line has the date, the commit (of runs since 2026-11-24), the versions, the number of cores, and
the ratio of each row. Of a run of `benchmarks.functions`, a row is the median ratio of all
functions in one cell. The newest run is compared with the median of the earlier runs of the same
benchmark on as many cores. The samples of each run are in the files next to the series.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SERIES = Path(__file__).parent / "results" / "series.jsonl"
FACTS = ("date", "commit", "python", "jax", "jaxlib", "cores")
BY = 0.15  # a smaller move is noise, between two runs on a quiet machine


class Move(NamedTuple):
    """A row whose ratio moved."""

    row: str
    before: float  # the median of earlier runs
    now: float
    runs: int  # earlier runs with this row

    @property
    def change(self) -> float:
        return self.now / self.before - 1

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' * (self.runs != 1)}"
        return f"{self.row:<32} {self.before:7.3f} → {self.now:.3f}  {self.change:+.0%}  ({runs})"


def line_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The series' line for a stored run, of rows or of functions."""
    facts = {name: stored["facts"].get(name) for name in FACTS}
    if "functions" in stored:
        return {**facts, "benchmark": "functions", "rows": _medians(stored["functions"])}
    rows = {row["name"]: _rounded(row["ratio"]) for row in stored["rows"] if row["ratio"]}
    return {**facts, "benchmark": "rows", "rows": rows}


def _medians(functions: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    cells: dict[str, list[float]] = defaultdict(list)
    for function in functions:
        for cell, measured in function.get("cells", {}).items():
            first, second = measured["values"]
            if first and second is not None:
                cells[cell].append(second / first)
    return {f"functions.{cell}": _rounded(statistics.median(of)) for cell, of in cells.items()}


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.4g}")


def append(stored: Mapping[str, Any], path: Path = SERIES) -> None:
    """Adds a run to the series."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line_of(stored)) + "\n")


def read(path: Path = SERIES) -> list[dict[str, Any]]:
    """All runs, in the order of the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def newest(runs: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Any]]]:
    """The newest run of each benchmark, with the earlier ones that it is compared with."""
    last = {run["benchmark"]: run for run in sorted(runs, key=lambda run: run["date"])}
    return [
        (run, [
            old for old in runs
            if old["date"] < run["date"]
            and (old["benchmark"], old["cores"]) == (run["benchmark"], run["cores"])
        ])
        for run in last.values()
    ]  # fmt: skip


def moves(run: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]], by: float) -> list[Move]:
    """Rows whose ratio is over `by` away from the median of the earlier runs, worst first."""
    found: list[Move] = []
    for row, now in run["rows"].items():
        old = [before["rows"][row] for before in earlier if row in before["rows"]]
        if old:
            found.append(Move(row, statistics.median(old), now, len(old)))
    return sorted((m for m in found if abs(m.change) > by), key=lambda m: -m.change)


def drift(arguments: Sequence[str], path: Path = SERIES) -> None:
    """Prints the rows that moved, the ones that became slower first."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks drift",
        description="Prints the rows whose ratio moved between earlier runs and the newest one.",
    )
    parser.add_argument(
        "--by", type=float, default=BY, metavar="FRACTION", help=f"the least move ({BY:g})"
    )
    by = parser.parse_args(arguments).by
    for run, earlier in newest(read(path)):
        title = f"{run['benchmark']}: {run['date']}, jaxlib {run['jaxlib']}, {run['cores']} cores"
        print(f"{title}; {len(earlier)} earlier run{'s' * (len(earlier) != 1)}")
        found = moves(run, earlier, by)
        lines = [f"  {move}" for move in found]
        print("\n".join(lines) or f"  no row moved by over {by:.0%}")


if __name__ == "__main__":
    for file in sys.argv[1:]:
        append(json.loads(Path(file).read_text()))
