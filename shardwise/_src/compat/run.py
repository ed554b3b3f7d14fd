"""Runs a program under `as_jax`."""

from __future__ import annotations

import os
import runpy
import sys
from typing import NoReturn

from shardwise._src.compat.as_jax import as_jax

USAGE = "usage: python -m shardwise.compat [-m MODULE | SCRIPT] [ARGUMENT ...]"


def main() -> None:
    """Runs a script, or a module with `-m`, with `import jax` returning this library."""
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    if as_module:
        del arguments[0]
    if not arguments or arguments[0].startswith("-"):
        _stop(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    what = arguments[0]
    if not as_module and not os.path.exists(what):
        print(f"shardwise.compat: there is no file {what!r}", file=sys.stderr)
        _stop(2)
    sys.argv[:] = arguments
    with as_jax():
        if as_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(what)))
            runpy.run_path(what, run_name="__main__")


def _stop(status: int) -> NoReturn:
    print(USAGE, file=sys.stderr if status else sys.stdout)
    sys.exit(status)
