"""Programs for machines that are not attached: `python -m benchmarks.targets [--only GLOBS]`.

Compiles each program with jax and with shardwise, by the same compiler, and compares the optimized
programs: what they communicate, how many kernels they launch, how much memory they need. The goal is
equal or better in every cell. Nothing runs, so that the results are the same on every machine.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.targets.comparing import CELLS, Cell, cells, reason
from benchmarks.targets.machines import MACHINES
from benchmarks.targets.programs import PROGRAMS, applies

PAIR = ("jax", "shardwise")
PATIENCE = 3600  # seconds for a child
WIDTH = 200  # columns, if there is no terminal
STYLES = {"better": "green", "equal": "", "worse": "yellow"}


def compiled(library: str, machine: str, names: Sequence[str], save: str) -> dict[str, Any]:
    """The facts, or the error, of each program. A compiler that ends the process loses only one."""
    found: dict[str, Any] = {}
    left = [*names]
    while left:
        begun = left[0]
        for line in _lines(library, machine, left, save):
            begun = line.get("begun", begun)
            if "name" in line:
                found[line["name"]] = line
        if begun not in found:
            found[begun] = {"name": begun, "error": "the compiler ended the process"}
        left = [name for name in left if name not in found]
    return found


def _lines(library: str, machine: str, names: Sequence[str], save: str) -> Iterator[Any]:
    command = [sys.executable, "-m", "benchmarks.targets.child", f"--save={save}"]
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            [*command, library, machine, *names],
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=PATIENCE,
            text=True,
        )
    yield from (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A line for each program on each machine; each cell has shardwise's value, and jax's."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("program", "machine", *CELLS, "", ""):
        out.add_column(header, no_wrap=header != "")
    for row in rows:
        shown = [_shown(row["cells"].get(name)) for name in CELLS]
        note = row["note"].replace("[", r"\[")
        out.add_row(row["name"], row["machine"], *shown, row["status"], note)
    return out


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    style = STYLES[cell.status]
    return f"[{style}]{cell.text}[/{style}]" if style else cell.text


def compared(name: str, machine: str, both: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of a program on a machine. both: jax's child's line, then shardwise's."""
    errors = [f"{lib}: {r['error']}" for lib, r in zip(PAIR, both, strict=True) if "error" in r]
    row = {"name": name, "machine": machine, "cells": {}, "note": "; ".join(errors)}
    if errors:
        return {**row, "status": "error" if "error" in both[1] else "jax fails"}
    found = cells(*[r["facts"] for r in both])
    worse = [c for c in found.values() if c.status == "worse"]
    notes = [*[c.note for c in found.values() if c.note], reason(name, machine) if worse else ""]
    note = "; ".join([n for n in notes if n])
    return {**row, "cells": found, "status": "over" if worse else "ok", "note": note}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.targets", description=__doc__)
    parser.add_argument("--only", default="*", metavar="GLOBS", help="names: 'gpt.*,split.max'")
    parser.add_argument("--machines", default=",".join(MACHINES), metavar="A,B")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results here")
    parser.add_argument("--save", default="", metavar="FOLDER", help="write all programs here")
    options = parser.parse_args(arguments)
    globs = [glob for g in options.only.split(",") for glob in (g.strip(), f"{g.strip()}.*")]
    options.names = [n for n in PROGRAMS if any(fnmatch.fnmatchcase(n, g) for g in globs)]
    if not options.names:
        parser.error(f"no program matches --only; there are {', '.join(PROGRAMS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    if options.save:
        Path(options.save).mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for machine in options.machines.split(","):
        names = [name for name in options.names if applies(name, machine)]
        with console.status(machine):
            found = [compiled(library, machine, names, options.save) for library in PAIR]
        new = [compared(name, machine, [lib[name] for lib in found]) for name in names]
        console.print(table(new))
        rows += new
    worse = sum(row["status"] != "ok" for row in rows)
    console.print(f"{len(rows) - worse} of {len(rows)} equal or better in every cell")
    if options.json:
        kept = [{**r, "cells": {k: c.as_json() for k, c in r["cells"].items()}} for r in rows]
        report.write_json(options.json, {"facts": report.machine_facts(), "rows": kept})


if __name__ == "__main__":
    main()
