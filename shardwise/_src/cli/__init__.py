"""The `shardwise` command.

    shardwise demo [flags]           trains a small transformer over virtual devices
    shardwise launch -n 4 train.py   starts a program in several processes
    shardwise doctor                 what is here of versions, devices, clusters; whether it works
    shardwise explain-error [NAME]   what an error means and what helps; without a name: a list
    shardwise --version
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shardwise._src.cli import demo, doctor, explain_error, launch
from shardwise._version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["demo"]:  # its flags, --help included, are its own
        return demo.run(arguments[1:])
    if arguments[:1] == ["launch"]:
        return launch.run(arguments[1:])
    if arguments[:1] == ["doctor"]:
        return doctor.run(arguments[1:])
    return explain_error.run(_parser().parse_args(arguments or ["--help"]).name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shardwise", description="NumPy-style programs over global, sharded arrays."
    )
    parser.add_argument("--version", action="version", version=f"shardwise {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    about = "train a small transformer over eight virtual devices"
    commands.add_parser("demo", help=f"{about}; `shardwise demo --help` lists its flags")
    commands.add_parser(
        "launch", help="start a program in several processes; `shardwise launch --help`"
    )
    commands.add_parser("doctor", help="what is here of versions, devices, clusters; does it work")
    errors = commands.add_parser("explain-error", help="what an error means, and what helps")
    errors.add_argument("name", nargs="?", help="of the error class; without it, all are listed")
    return parser
