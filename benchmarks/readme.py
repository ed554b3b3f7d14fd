"""The README's table of speed, made from the newest complete run of the series.

python -m benchmarks readme
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import report, series

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
ROWS = {
    "jit.1_array": "cached `jit` call, one array",
    "jit.numpy": "the same with a NumPy array, which JAX does not copy",
    "jit.donated_200": "the same with a donated pytree of 200 arrays",
    "jit.compiled": "call of a compiled program (`lower().compile()`)",
    "eager.add": "eager `x + y`",
    "index.int": "eager `x[0]`",
    "index.at_set": "eager `x.at[0].set(v)`",
    "transform.grad": "eager `grad` of three operations",
    "trace.gpt": "tracing a GPT's training step",
    "lower.gpt": "lowering it",
    "compile.first_call": "first call of a new one-op function",
    "step.dp4_tp2": "a training step over 4×2 devices",
    "loop.steps": "a training loop over 8 devices, per step",
    "loop.front_end": "the loop's Python thread, per step",
    "process.first_op": "`import` and a first operation, in a new process",
}


def table(stored: Mapping[str, Any]) -> str:
    """The table in Markdown. stored: a run as `report.to_json` returns it."""
    facts, rows = stored["facts"], {row["name"]: row for row in stored["rows"]}
    lines = [
        f"Measured on {facts['date'][:10]} with Python {facts['python']} and jaxlib "
        f"{facts['jaxlib']} on {facts['cores']} CPU cores:",
        "",
        "| | JAX | shardwise | ratio |",
        "|---|---:|---:|---:|",
    ]
    for name, title in ROWS.items():
        row = rows[name]
        values = [report.show_value(value, row["unit"]) for value in row["values"]]
        lines.append(f"| {title} | {' | '.join(values)} | {report.show_ratio(row['ratio'])} |")
    return "\n".join(lines) + "\n"


def newest(path: Path = series.SERIES) -> dict[str, Any]:
    """The newest complete run of the rows."""
    runs = [run for run in series.read(path) if run["benchmark"] == "rows"]
    last = max(runs, key=lambda run: run["date"])
    return json.loads((path.parent / report.default_path(last).name).read_text())


def update(readme: Path = README, path: Path = series.SERIES) -> None:
    """Replaces the table between the two markers."""
    before, _, rest = readme.read_text().partition(START)
    _, _, after = rest.partition(END)
    readme.write_text(before + START + table(newest(path)) + END + after)
