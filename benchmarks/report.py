"""The results of the runner, as a human-readable table and as JSON for later comparison.

The JSON contains `facts` about the machine, the `pair` of libraries and one record per row. A
record includes its samples, so that a later comparison can consider the spread.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.runner import Result

RESULTS = Path(__file__).parent / "results"
STORED = 15  # samples of each row in a file
STYLES = {"ok": "green", "over": "yellow", "differs": "red", "error": "red"}


def machine_facts() -> dict[str, Any]:
    """The facts needed to assess the numbers; nothing that identifies the machine."""
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "jax": _version("jax"),
        "jaxlib": _version("jaxlib"),
        "numpy": _version("numpy"),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _commit() -> str | None:
    """The commit of this checkout, with a + if it has changes; None outside of a checkout."""
    line = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    done = subprocess.run(line, cwd=RESULTS.parent, capture_output=True, text=True)
    return done.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def to_json(
    results: Sequence[Result], pair: Sequence[str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    return {"facts": dict(facts), "pair": list(pair), "rows": [_record(r) for r in results]}


def _record(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "unit": result.unit,
        "values": list(result.values),
        "ratio": result.ratio,
        "goal": result.goal,
        "status": result.status,
        "errors": list(result.errors),
        "note": result.note,
        "samples": [[float(f"{s:.4g}") for s in thinned(samples)] for samples in result.samples],
    }


def thinned(samples: Sequence[float]) -> Sequence[float]:
    """At most `STORED` of the samples, of all rounds; of rounds of both orders, by an odd step."""
    return samples[:: -(-len(samples) // STORED) | 1]


def default_path(facts: Mapping[str, Any]) -> Path:
    """`results/20260131-174500.json`, from the run's date and time."""
    stamp = datetime.datetime.fromisoformat(facts["date"]).strftime("%Y%m%d-%H%M%S")
    return RESULTS / f"{stamp}.json"


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def read_ratios(path: Path) -> dict[str, float | None]:
    """The ratio of each row in an earlier run, for `--compare`."""
    return {row["name"]: row["ratio"] for row in json.loads(path.read_text())["rows"]}


def table(
    results: Sequence[Result], pair: Sequence[str], before: Mapping[str, float | None] | None = None
) -> Table:
    """One line per row; with `before`, also each row's ratio in the earlier run and its change."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column("row", no_wrap=True)
    headers = [*pair, "ratio", "goal"] + (["before", "change"] if before is not None else [])
    for header in headers:
        out.add_column(header, justify="right", no_wrap=True)
    out.add_column("", no_wrap=True)
    out.add_column("", overflow="fold")
    for result in results:
        cells = [show_value(value, result.unit) for value in result.values]
        cells += [show_ratio(result.ratio), show_ratio(result.goal)]
        if before is not None:
            old = before.get(result.name)
            cells += [show_ratio(old), show_change(old, result.ratio)]
        status = result.status
        style = STYLES[status]
        out.add_row(result.name, *cells, f"[{style}]{status}[/{style}]", remark(result, pair))
    return out


def remark(result: Result, pair: Sequence[str]) -> str:
    """Errors by library, otherwise how the facts differ."""
    failed = (f"{n}: {e}" for n, e in zip(pair, result.errors, strict=True) if e)
    return ("; ".join(failed) or result.note).replace("[", r"\[")


def show_value(value: float | None, unit: str) -> str:
    """Three digits with a suitable unit: 3.02 µs, 180 ms, 1.41 KiB."""
    if value is None:
        return "-"
    if unit == "B":
        scales = ((1024**2, "MiB"), (1024, "KiB"), (1, "B"))
    else:
        scales = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    factor, name = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    scaled = value / factor
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:.{digits}f} {name}"


def show_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def show_change(old: float | None, new: float | None) -> str:
    """The relative change of the ratio: -12% is faster, relative to the first library."""
    return "-" if not old or new is None else f"{(new / old - 1) * 100:+.0f}%"
