"""`shardwise check FILE.py[:FUNCTION]`: runs a program, and checks each launch of a kernel in it.

It ends at the first fault. A function returns what to run: see `step_file`.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardwise._src.base.config import num_cpu_devices
from shardwise._src.base.errors import KernelError
from shardwise._src.cli.arguments import command_parser, count
from shardwise._src.cli.compile_jobs import error_text
from shardwise._src.cli.main_programs import run_main
from shardwise._src.cli.step_file import BadStep, function_of, module_of, program_of, split
from shardwise._src.kernels.checking.checked_functions import LEVELS, checked
from shardwise._src.messages.formatting import columns
from shardwise._src.placement.device_put import devices


def parser() -> argparse.ArgumentParser:
    parser = command_parser("check", allow_abbrev=False)
    add = parser.add_argument
    add(
        "step", metavar="FILE.py:FUNCTION", help="a program; or a function that returns what to run"
    )
    add(
        "--level",
        choices=LEVELS,
        default="memory",
        help="memory: all faults (default); blocks: what check=True finds, which is faster",
    )
    add("--devices", type=count, metavar="N", help="how many virtual CPU devices it runs on")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Runs the program, and prints a line for each kernel; returns 1 if one is faulty."""
    own = parser()
    asked = own.parse_args(list(arguments))
    if asked.devices is not None:
        num_cpu_devices.set(asked.devices)
    try:
        path, name = split(asked.step)
        found = _Found()
        status = found.run(_program(path, name), path, asked.level)
    except BadStep as error:
        own.error(str(error))
    found.tell()
    return status


def _program(path: Path, name: str) -> Callable[[], Any]:
    """What to run: the file, or what its function returns."""

    def call() -> None:
        step = function_of(module_of(path), path, name)
        f, args, kwargs = program_of(step, name, devices())
        f(*args, **kwargs)

    return call if name else lambda: runpy.run_path(str(path), run_name="__main__")


class _Found:
    """What is found in launches, by the names of kernels."""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.error: KernelError | None = None
        self.faulty = ""

    def note(self, launch: Any, error: Exception | None) -> None:
        self.launches[launch.name] += 1
        if isinstance(error, KernelError):
            self.error, self.faulty = error, launch.name

    def run(self, program: Callable[[], Any], path: Path, level: str) -> int:
        """Runs a program; returns the exit status."""
        try:
            return run_main(
                [str(path)], str(path.resolve().parent), checked(program, level, self.note)
            )
        except BadStep:
            raise
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if error is not self.error:
                print(error_text(error), file=sys.stderr)
            return 1

    def tell(self) -> None:
        if not self.launches:
            print("shardwise check: the program launches no kernel.", file=sys.stderr)
            return
        rows = [("kernel", "launches", "verdict")]
        for name, number in self.launches.items():
            rows.append((name, str(number), "fault" if name == self.faulty else "no fault"))
        print("\n".join(columns(rows, "<>")))
        if self.error is not None:
            print(f"\n{self.error}")
