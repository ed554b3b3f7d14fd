"""Command line: `python -m benchmarks [--rows PATTERN] [--quick] [--compare OLD.json]`.

`python -m benchmarks drift [--by FRACTION]` compares the newest run with the earlier ones;
`python -m benchmarks commits OLD [NEW]` compares two commits; `python -m benchmarks readme` puts the
newest run into the README.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import commits, readme, report, series
from benchmarks.libs import Lib, compile_sources, prepare_environment
from benchmarks.rows import ROWS
from benchmarks.runner import QUICK, Effort, run_row, select

FIRST_FRESH_SIZE = 1000
WIDTH_OF_FILES = 140  # columns, if there is no terminal
PAIR = ("jax", "shardwise")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rows",
        default="*",
        metavar="PATTERN",
        help="globs of row names, comma-separated: 'eager.*,jit.1_array'",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results here")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="show its ratios too")
    parser.add_argument(
        "--pair", default=",".join(PAIR), metavar="A,B", help="divide B's values by A's"
    )
    parser.add_argument("--list", action="store_true", help="print the rows and their goals")
    options = parser.parse_args(arguments)
    options.pair = tuple(options.pair.split(","))
    if len(options.pair) != 2:
        parser.error(f"--pair takes two names such as jax,shardwise; got {options.pair}")
    options.rows = select(options.rows, ROWS)
    if not options.rows:
        parser.error("no row matches --rows; see --list")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["drift"]:
        return series.drift(words[1:])
    if words[:1] == ["commits"]:
        return commits.main(words[1:])
    if words == ["readme"]:
        return readme.update()
    options = parse(words)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_FILES)
    if options.list:
        for row in options.rows:
            console.print(f"{row.name:<26} {row.goal:g}", highlight=False)
        return
    prepare_environment()
    compile_sources()
    sizes = itertools.count(FIRST_FRESH_SIZE)
    pair = (Lib(options.pair[0], sizes), Lib(options.pair[1], sizes))
    before = report.read_ratios(options.compare) if options.compare else None
    facts = report.machine_facts()
    results = []
    for row in options.rows:
        with console.status(row.name):
            results.append(run_row(row, pair, QUICK if options.quick else Effort()))
    console.print(report.table(results, options.pair, before))
    # A partial or quick run is only stored on request.
    partial = options.quick or len(options.rows) < len(ROWS)
    path = options.json or (None if partial else report.default_path(facts))
    if path:
        stored = report.to_json(results, options.pair, facts)
        report.write_json(path, stored)
        if not partial and options.pair == PAIR:
            series.append(stored)
        console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    main()
