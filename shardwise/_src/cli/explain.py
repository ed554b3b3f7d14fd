"""`shardwise explain script.py`: runs a program and reports what its jitted functions do.

The program runs normally. After it has ended or failed, each function that it compiled is compiled
again, from a module whose instructions refer to the user's source lines.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardwise._src.base.errors import did_you_mean
from shardwise._src.cli import main_programs
from shardwise._src.cli.arguments import PROGRAM_USAGE, add_program, command_parser, program_of
from shardwise._src.cli.main_programs import run_main
from shardwise._src.explain.machines import named_machine
from shardwise._src.explain.report import Report
from shardwise._src.explain.scripts import Found, observed, overview, reports
from shardwise._src.messages.formatting import join


def parser() -> argparse.ArgumentParser:
    parser = command_parser("explain", usage=PROGRAM_USAGE, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--function",
        action="append",
        default=[],
        metavar="NAME",
        help="only functions with this name; can be repeated",
    )
    add(
        "--machine",
        metavar="NAME",
        help="the hardware for time estimates; by default that of the devices",
    )
    add("--html", type=Path, metavar="DIR", help="also save each report as DIR/FUNCTION.html")
    add("--json", type=Path, metavar="FILE", help="also write all reports as JSON")
    add_program(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program and prints the reports; returns its exit status, or 1 if a report fails."""
    own = parser()
    asked, unknown = own.parse_known_args(list(arguments))
    if unknown:
        name = unknown[0].partition("=")[0]
        own.error(f"unknown option {name!r}.{did_you_mean(name, own.format_help().split())}")
    words, is_module = program_of(own, asked)
    try:
        machine = None if asked.machine is None else named_machine(asked.machine)
    except ValueError as error:
        own.error(str(error))
    with observed() as found:
        status = _run(words, is_module)
    sys.stdout.flush()
    wrong = _tell(found, asked, machine)
    return status or wrong


def _run(words: Sequence[str], is_module: bool) -> int:
    """Runs a program as Python does; returns its exit status."""
    folder = os.getcwd() if is_module else str(Path(words[0]).resolve().parent)

    def run() -> None:
        if is_module:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")

    try:
        return run_main(words, folder, run)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        _print_own(error)
        return 1


def _print_own(error: Exception) -> None:
    """Prints the traceback of a program, without the frames that ran it."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in RUNNERS:
        at = at.tb_next
    traceback.print_exception(type(error), error, at or error.__traceback__)


RUNNERS = (__file__, main_programs.__file__, runpy.__file__, "<frozen runpy>")


# ---- reports -------------------------------------------------------------------------------------


def _tell(found: list[Found], asked: Any, machine: Any) -> int:
    """Prints and writes the reports; returns 1 if none, or if one cannot be written."""
    names = [one.function for one in found]
    missing = [name for name in asked.function if name not in names]
    if not found or missing:
        compiled = f"it jits {join(dict.fromkeys(names))}" if names else "it does not jit any"
        what = (
            "compiles no jitted function: it runs operation by operation. Decorate a function, "
            "such as the training step, with `shardwise.jit` to compile it"
        )
        if missing:
            what = f"does not compile a function {missing[0]!r}; {compiled}"
        print(f"shardwise explain: the program {what}.", file=sys.stderr)
        return 1
    wanted = [one for one in found if not asked.function or one.function in asked.function]
    made, failed = reports(wanted, machine)
    for name, error in failed:
        print(f"shardwise explain: no report of {name}: {error}", file=sys.stderr)
    if len(made) > 1:
        print(f"\n{overview(made)}")
    for report in made:
        print()
        _print(report)
    try:
        _write(made, asked)
    except OSError as error:
        print(f"shardwise explain: {error}", file=sys.stderr)
        return 1
    return int(bool(failed))


def _print(report: Report) -> None:
    if not sys.stdout.isatty():
        print(report)
        return
    from rich.console import Console

    Console().print(report)


def _write(made: Sequence[Report], asked: Any) -> None:
    if asked.html is not None:
        asked.html.mkdir(parents=True, exist_ok=True)
        print()
        for report in made:
            plain = "".join([c if c.isalnum() or c in "-_." else "_" for c in report.name])
            print(f"saved {report.save(asked.html / f'{plain}.html')}")
    if asked.json is not None:
        rows = [report.to_dict() for report in made]
        asked.json.write_text(json.dumps(rows, indent=2, allow_nan=False) + "\n")
