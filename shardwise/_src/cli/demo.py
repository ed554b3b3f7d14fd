"""`shardwise demo`: runs `gpt.py`, from the checkout's `examples/` or from the wheel.

The examples are standalone programs for users to read and run; the wheel contains the same files as
`shardwise/examples/`.
"""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from shardwise._src.cli.main_programs import PACKAGE, run_main, shipped

PROGRAM = "gpt"


def examples() -> Path:
    """The folder of the examples."""
    return shipped(PACKAGE, "examples", "gpt.py", "examples")


def parser() -> argparse.ArgumentParser:
    """The demo's own flags."""
    before = sys.path[:]
    sys.path.insert(0, str(examples()))
    try:
        return import_module(PROGRAM).flags()
    finally:
        sys.path[:] = before


def run(arguments: Sequence[str]) -> int:
    """Runs the demo as a main program; returns its exit status."""
    argv = [f"{_command()} demo", *arguments]  # the command shown in the demo's messages
    return run_main(argv, str(examples()), lambda: runpy.run_module(PROGRAM, run_name="__main__"))


def _command() -> str:
    """The command as typed; its bare name if the shell finds it by that name."""
    typed = sys.argv[0]
    found = shutil.which(Path(typed).name)
    return Path(typed).name if found and Path(found).samefile(typed) else typed
