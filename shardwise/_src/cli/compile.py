"""`shardwise compile FILE.py:FUNCTION --for MACHINE`: compiles for machines that are not attached.

Each machine is compiled for in a separate process (`compile_jobs`); `step_file` describes the
function.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from shardwise._src.cli import compile_jobs
from shardwise._src.cli.arguments import command_parser, count, seconds
from shardwise._src.cli.compile_jobs import Job, error_text
from shardwise._src.cli.main_programs import exit_status
from shardwise._src.cli.step_file import BadStep, function_of, module_of, split
from shardwise._src.explain.outcomes import (
    Outcome,
    as_data,
    compilers_of,
    hints_of,
    reasons_of,
    table_of,
)
from shardwise._src.explain.rendering.machines_page import save_all
from shardwise._src.targets.machine_names import named, names

JOBS = 2  # the most processes: each compiler takes gigabytes


def parser() -> argparse.ArgumentParser:
    parser = command_parser("compile", allow_abbrev=False)
    add = parser.add_argument
    add("step", metavar="FILE.py:FUNCTION", help="a function that returns what to compile")
    add(
        "--for",
        dest="machines",
        action="append",
        default=[],
        metavar="MACHINE",
        help="a kind of GPU or TPU and how many, such as h100:2x8; can be repeated",
    )
    add(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="SECONDS",
        help="time to compile for one machine (600)",
    )
    add("--jobs", type=_jobs, default=1, metavar="N", help="machines at the same time: 1 or 2 (1)")
    add("--out", type=Path, metavar="DIR", help="also save programs, reports and a comparison")
    add("--json", action="store_true", help="print JSON")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Compiles, and prints a table; returns 1 if a machine fails or has too little memory."""
    own = parser()
    asked = own.parse_args(list(arguments))
    try:
        path, function = split(asked.step)
    except BadStep as error:
        own.error(str(error))
    if not asked.machines:
        own.error(
            f"for which machines? Pass --for MACHINE, such as --for h100:8. Known are "
            f"{', '.join(names())}."
        )
    module = _module(path)
    if isinstance(module, int):
        return module
    try:
        function_of(module, path, function)
        machines = [*dict.fromkeys([named(name).name for name in asked.machines])]
        if asked.out is not None:
            asked.out.mkdir(parents=True, exist_ok=True)
    except (BadStep, ValueError) as error:
        own.error(str(error).removeprefix("targets: "))
    except OSError as error:
        own.error(f"--out {asked.out}: {error.strerror}.")
    try:
        made = compile_jobs.compiled(Job(str(path), function), machines, asked.timeout, asked.jobs)
    except KeyboardInterrupt:
        return 130
    return _tell(asked.step, made, asked)


def _module(path: Path) -> ModuleType | int:
    """Runs the file, to check it once; the exit status if it fails. What it prints is no output."""
    before = sys.path[:]
    try:
        with redirect_stdout(sys.stderr):
            return module_of(path)
    except SystemExit as end:
        return exit_status(end) or 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(error_text(error), file=sys.stderr)
        return 1
    finally:
        sys.path[:] = before


def _tell(name: str, made: Sequence[Outcome], asked: Any) -> int:
    """Prints and saves the outcomes; returns the exit status."""
    if asked.json:
        print(json.dumps(as_data(name, made), indent=2, allow_nan=False))
    else:
        print(table_of(made))
        for line in (*compilers_of(made), *hints_of(made)):
            print(line)
        for text in reasons_of(made):
            print(f"\n{text}")
    if asked.out is not None:
        try:
            index = save_all(name, made, asked.out)
        except OSError as error:
            print(f"shardwise compile: {error}", file=sys.stderr)
            return 1
        print(f"\nsaved {index}", file=sys.stderr if asked.json else sys.stdout)
    return int(any([one.state != "fits" for one in made]))


def _jobs(text: str) -> int:
    found = count(text)
    if found > JOBS:
        raise argparse.ArgumentTypeError(
            f"it must be 1 or 2, since each compiler takes gigabytes of memory; got {text}."
        )
    return found
