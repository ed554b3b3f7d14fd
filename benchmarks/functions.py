"""Every function of both libraries: `python -m benchmarks.functions [--only GLOBS] [--quick]`.

Each is called with the arguments of `benchmarks.tables`, in several modes, which are its cells:

- eager.small, eager.64K, eager.16M: eagerly, on arrays of 8 elements, 64 KiB, 16 MiB;
- cached.small, …: the same under `jit`, compiled before;
- first: the first eager call for a new shape, including compilation.

A ratio is the second library's CPU time over the first's, each a median of alternating samples.
Ratios above `DOUBTED` are sampled again before they count. The functions run in child processes,
which write each result as a line: a child that crashes, or hangs, only loses its own cells.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import gc
import itertools
import json
import selectors
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report, series
from benchmarks.arguments import LEFT_OUT, ROWS, Call, Operands, bound, calls, find, shared
from benchmarks.libs import Lib, compile_sources, prepare_environment
from benchmarks.runner import CLOCKS, Contestant, Effort, Row, limited, take_turns

PAIR = ("jax", "shardwise")
SIZES = {"small": 8, "64K": 1 << 14, "16M": 1 << 22}  # float32 elements
CELLS = (*[f"{way}.{size}" for way in ("eager", "cached") for size in SIZES], "first")
QUICK_CELLS = ("eager.small", "eager.16M", "cached.small", "first")
EFFORT = Effort(rounds=9, batch=2e-3, budget=1.0, least=1)
QUICK = Effort(rounds=5, batch=1e-3, budget=0.3, least=1)
DOUBTED = 1.1
GOAL, LIMIT = 0.6, 1.5  # of the median, and of each ratio
PATIENCE = 300  # seconds per function
CHUNK = 24  # functions per child
FIRST_FRESH_SIZE = 1000 + ROWS

# -- one function --


def cell_row(name: str, call: Call, cell: str) -> Row | None:
    """How a cell is measured; None if it is not meaningful."""
    way, _, size = cell.partition(".")
    written = call.cached if way == "cached" else call.eager
    if written is None or (not call.grows and size != "small"):
        return None

    def repeated(lib: Lib) -> Callable[[], Any]:
        run, arrays = bound(written, find(lib, name), Operands(lib, SIZES[size]))
        if way == "cached":
            run = lib.root.jit(run)
        return lambda: run(*arrays)

    def fresh(lib: Lib) -> Callable[[], Callable[[], Any]]:
        block, function = lib.root.block_until_ready, find(lib, name)

        def make() -> Callable[[], Any]:
            run, arrays = bound(written, function, Operands(lib, next(lib.sizes)))
            block(arrays)
            return lambda: block(run(*arrays))

        return make

    if way == "first":
        return Row(cell, LIMIT, fresh, kind="fresh", rounds=3)
    return Row(cell, LIMIT, repeated)


def measured(row: Row, pair: Sequence[Lib], effort: Effort) -> dict[str, Any]:
    """The medians of both libraries, or their errors."""
    clock = CLOCKS["cpu"]
    both = [Contestant(row, lib, clock) for lib in pair]
    for contestant in both:
        contestant.attempt(contestant.prepare, effort.batch)
    effort = limited(effort, row)
    take_turns(both, effort, clock)
    first, second = (c.value for c in both)
    if first and second and second > DOUBTED * first:
        take_turns(both, replace(effort, rounds=2 * effort.rounds, least=2), clock)
    errors = {c.lib.name: c.error for c in both if c.error}
    return {"values": [rounded(c.value) for c in both], **({"errors": errors} if errors else {})}


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def measure(names: Sequence[str], cells: Sequence[str], effort: Effort) -> Iterator[dict[str, Any]]:
    """Measures each function."""
    table, sizes = calls(), itertools.count(FIRST_FRESH_SIZE, ROWS)
    pair = [Lib(name, sizes) for name in PAIR]
    for name in names:
        call = table[name]
        rows = [row for cell in cells if (row := cell_row(name, call, cell))]
        found = {row.name: measured(row, pair, effort) for row in rows}
        yield {"name": name, "kind": call.kind, "cells": found}
        gc.collect()


def child(options: argparse.Namespace) -> None:
    """Measures functions in this process, and prints a line for each."""
    warnings.simplefilter("ignore")  # such as disabled 64-bit types
    gc.disable()  # otherwise a collection for one library traverses the other's objects too
    for found in measure(options.child, options.cells, QUICK if options.quick else EFFORT):
        print(json.dumps(found), flush=True)


# -- all of them --


def collect(
    names: Sequence[str], start: Callable[[Sequence[str]], subprocess.Popen[str]], patience: float
) -> Iterator[dict[str, Any]]:
    """The results of child processes, with an error for each function that crashed its child."""
    left = collections.deque(names)
    while left:
        process = start([left[i] for i in range(min(CHUNK, len(left)))])
        with process, selectors.DefaultSelector() as ready:
            assert process.stdout is not None
            ready.register(process.stdout, selectors.EVENT_READ)
            why = ""
            for _ in range(min(CHUNK, len(left))):
                if not ready.select(patience):
                    why = f"no result within {patience:g} s"
                    break
                line = process.stdout.readline()
                if not line:
                    why = f"the process ended with {process.wait()}"
                    break
                left.popleft()
                yield json.loads(line)
            process.kill()
        if why:
            yield {"name": left.popleft(), "kind": "", "cells": {}, "error": why}


def starter(cells: Sequence[str], quick: bool) -> Callable[[Sequence[str]], subprocess.Popen[str]]:
    def start(names: Sequence[str]) -> subprocess.Popen[str]:
        options = ["--quick"] if quick else []
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.functions", *options,
             "--cells", ",".join(cells), "--child", *names],
            cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


# -- evaluation --

Ratios = Mapping[str, Mapping[str, float]]  # by function and cell


def ratios(found: Iterable[Mapping[str, Any]]) -> Ratios:
    return {
        f["name"]: {
            cell: m["values"][1] / m["values"][0]
            for cell, m in f["cells"].items()
            if None not in m["values"] and m["values"][0]
        }
        for f in found
    }


def summary(
    found: Sequence[Mapping[str, Any]], cells: Sequence[str], before: Ratios | None = None
) -> Any:
    """The median ratio of each kind of function in each cell, and overall."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column("kind")
    for header in ("functions", *cells):
        out.add_column(header, justify="right", no_wrap=True)
    now = ratios(found)
    kinds = collections.defaultdict(list)
    for f in found:
        kinds[f["kind"]].append(f["name"])
    for kind, names in [*kinds.items(), ("all", [f["name"] for f in found])]:
        shown = [middle(now, names, cell, before) for cell in cells]
        out.add_row(kind or "lost", str(len(names)), *shown)
    over = [sum(r.get(cell, 0) > LIMIT for r in now.values()) for cell in cells]
    out.add_row(f"above {LIMIT}", str(sum(over)), *map(str, over))
    return out


def middle(now: Ratios, names: Sequence[str], cell: str, before: Ratios | None) -> str:
    def median(of: Ratios) -> str:
        values = [of[n][cell] for n in names if cell in of.get(n, {})]
        return report.show_ratio(statistics.median(values) if values else None)

    return median(now) if before is None else f"{median(before)} → {median(now)}"


def worst(found: Iterable[Mapping[str, Any]], count: int) -> list[tuple[float, str, str]]:
    """The largest ratios, as (ratio, function, cell)."""
    rows = [(r, name, cell) for name, cells in ratios(found).items() for cell, r in cells.items()]
    return sorted(rows, reverse=True)[:count]


def write(path: Path, found: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
    """Writes a line per function, so that runs can be compared by a diff."""
    lines = ",\n".join(json.dumps(f) for f in found)
    head = json.dumps({"facts": facts, "pair": PAIR, "left_out": LEFT_OUT})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head[:-1]}, "functions": [\n{lines}\n]}}\n')


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["functions"]


def show(console: Any, found: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    before = ratios(read(options.compare)) if options.compare else None
    console.print(summary(found, options.cells, before))
    for ratio, name, cell in worst(found, options.worst):
        values = next(f for f in found if f["name"] == name)["cells"][cell]["values"]
        times = " against ".join(report.show_value(v, "s") for v in values[::-1])
        console.print(f"{ratio:6.2f}  {name}  {cell}: {times}", highlight=False)
    for f in found:
        for cell, m in f["cells"].items():
            for lib, error in m.get("errors", {}).items():
                console.print(f"{f['name']} {cell}: {lib}: {error}", markup=False)
        if "error" in f:
            console.print(f"{f['name']}: {f['error']}", markup=False)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.functions", description=__doc__)
    parser.add_argument("--only", default="*", metavar="GLOBS", help="'random.*,numpy.sort'")
    parser.add_argument("--cells", help="globs of cells: 'eager.*,first'")
    parser.add_argument("--quick", action="store_true", help="fewer cells, rounds, repetitions")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results here")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="show its medians too")
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="ratios to name")
    parser.add_argument("--show", type=Path, metavar="JSON", help="of an earlier run; none is run")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    wanted = options.cells.split(",") if options.cells else QUICK_CELLS if options.quick else "*"
    options.cells = [c for c in CELLS if any(fnmatch.fnmatchcase(c, g) for g in wanted)]
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    prepare_environment()
    if options.child:
        return child(options)
    compile_sources()
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.show:
        show(console, read(options.show), options)
        return
    globs, begin = options.only.split(","), time.time()
    names = [
        name
        for name in shared(*[Lib(name, iter(())) for name in PAIR])
        if name not in LEFT_OUT and any(fnmatch.fnmatchcase(name, g) for g in globs)
    ]
    path, facts, found = options.json, report.machine_facts(), []
    if path is None and not options.quick and options.only == "*":
        path = report.default_path(facts)
        path = path.with_stem(f"functions-{path.stem}")
    for one in collect(names, starter(options.cells, options.quick), PATIENCE):
        found.append(one)
        if path:
            write(path, found, facts)
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(names)} {one['name']:<40}", end="", file=sys.stderr)
    if path and path != options.json:
        series.append(json.loads(path.read_text()))
    show(console, found, options)
    console.print(f"{len(found)} functions in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
