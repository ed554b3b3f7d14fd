"""The `shardwise` command and its sub-commands (`COMMANDS`).

    shardwise                      the commands, in groups, with examples
    shardwise help launch          the options of a command; same as `shardwise launch --help`
    shardwise launch -n 4 train.py

Each command is a module of this package with `parser()`, used for help and completion, and
`run(arguments)`, which returns the exit status. It is imported when it is called, so that listing
the commands does not import the runtime.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.interrupts import import_module
from shardwise._src.cli.arguments import data_file
from shardwise._src.cli.main_programs import exit_status
from shardwise._version import __version__


class Command(NamedTuple):
    """about: one line of help; group: its section in the help; others: synonyms for suggestions."""

    name: str
    group: str
    about: str
    others: tuple[str, ...] = ()

    @property
    def module(self) -> Any:
        """The module that runs it."""
        return import_module(f"{__name__}.{self.name.replace('-', '_')}")


RUN, LOOK, HELP = "run programs", "inspect", "get help"
COMMANDS = {
    command.name: command
    for command in (
        Command(
            "launch",
            RUN,
            "start a program in several processes, on one or more machines",
            ("run", "start", "exec", "spawn", "mpirun", "mpiexec", "srun", "torchrun"),
        ),
        Command(
            "top",
            RUN,
            "watch running launches: steps, tokens/s, memory, waits",
            ("monitor", "watch", "status", "ps", "htop"),
        ),
        Command(
            "demo",
            RUN,
            "train a small transformer on eight virtual devices",
            ("example", "examples", "tutorial"),
        ),
        Command(
            "explain",
            LOOK,
            "what a program's functions communicate, store and compute",
            ("analyze", "profile", "plan"),
        ),
        Command(
            "compile",
            LOOK,
            "compile a program for machines that are not attached; compare",
            ("aot", "compare", "targets", "machines", "build"),
        ),
        Command(
            "check",
            LOOK,
            "find races, unwaited copies and other faults of kernels",
            ("sanitize", "sanitizer", "memcheck", "racecheck", "lint"),
        ),
        Command("describe", LOOK, "what a checkpoint contains", ("show", "inspect", "ls")),
        Command(
            "doctor",
            LOOK,
            "check versions, devices, clusters and speed of this machine",
            ("diagnose", "info", "env", "devices"),
        ),
        Command("explain-error", HELP, "what an error means, and how to fix it", ("error", "why")),
        Command("completion", HELP, "print a completion script for bash, zsh or fish"),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except BrokenPipeError:  # as with `| head`: the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141


def _run(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("-h", "--help", "help"):
        if len(words) < 2 or first != "help":
            print(overview(), end="")
            return 0
        first, words = words[1], [words[1], "--help"]
    if first in ("-V", "--version"):
        print(f"shardwise {__version__}")
        return 0
    if first not in COMMANDS:
        kind = "option" if first.startswith("-") else "command"
        near = _nearest(first)
        print(
            f"shardwise: unknown {kind} {first!r}.{near} `shardwise --help` lists all.",
            file=sys.stderr,
        )
        return 2
    try:
        return COMMANDS[first].module.run(words[1:])
    except SystemExit as end:  # raised by argparse after --help or an error
        return exit_status(end)


def _nearest(word: str) -> str:
    """A suggestion of a similar command, as a sentence after a space; "" if absent."""
    for command in COMMANDS.values():
        if word.lower() in command.others:
            return f" Did you mean {command.name!r}?"
    return did_you_mean(word, COMMANDS)


def overview() -> str:
    """The commands, in their groups, and examples."""
    lines = [
        "usage: shardwise COMMAND [options]",
        "",
        "NumPy-style programs over global, sharded arrays.",
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {c.name:<15} {c.about}" for c in COMMANDS.values() if c.group == group]
    return "\n".join(lines) + "\n\n" + data_file("help", "examples.txt")
