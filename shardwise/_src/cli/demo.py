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

PACKAGE = Path(__file__).resolve().parents[2]
PROGRAM = "gpt"


def examples() -> Path:
    """The folder of the examples."""
    for folder in (PACKAGE / "examples", PACKAGE.parent / "examples"):
        if (folder / "gpt.py").is_file():
            return folder
    raise SystemExit(
        f"the examples are missing: there is no gpt.py in {PACKAGE / 'examples'} (in a wheel) "
        f"or {PACKAGE.parent / 'examples'} (in a checkout). Reinstall shardwise."
    )


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
    folder = examples()
    before = sys.argv, sys.path[:]
    sys.argv = [f"{_command()} demo", *arguments]  # the command shown in the demo's messages
    sys.path.insert(0, str(folder))
    try:
        runpy.run_module(PROGRAM, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _command() -> str:
    """The command as typed; its bare name if the shell finds it by that name."""
    typed = sys.argv[0]
    found = shutil.which(Path(typed).name)
    return Path(typed).name if found and Path(found).samefile(typed) else typed
