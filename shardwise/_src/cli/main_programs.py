"""Runs programs for commands as Python does; and the files that are part of the library's wheel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2]


def shipped(package: Path, folder: str, file: str, what: str) -> Path:
    """A folder with this file: of the wheel, where it is in the package, or of the checkout."""
    wheel, checkout = package / folder, package.parent / folder
    for place in (wheel, checkout):
        if (place / file).is_file():
            return place
    raise SystemExit(
        f"the {what} are missing: there is no {file} in {wheel} (in a wheel) or {checkout} (in a "
        "checkout). Reinstall shardwise."
    )


def run_main(argv: Sequence[str], folder: str, run: Callable[[], Any]) -> int:
    """Runs a program with these arguments and its folder on the path; returns its exit status."""
    before = sys.argv, sys.path[:]
    sys.argv = list(argv)
    sys.path.insert(0, folder)
    try:
        run()
    except SystemExit as end:
        return exit_status(end)
    finally:
        sys.argv, sys.path[:] = before
    return 0


def exit_status(end: SystemExit) -> int:
    """The status of a program that ends so; a message is printed, as Python does."""
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    print(end.code, file=sys.stderr)
    return 1
