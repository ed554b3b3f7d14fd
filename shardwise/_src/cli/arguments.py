"""Command-line parsers with the texts in `help/`, argument types, and programs to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

PROGRAM_USAGE = "%(prog)s [options] (script.py | -m module) [its arguments]"


def data_file(*path: str) -> str:
    """The text of a file in this package."""
    return files("shardwise._src.cli").joinpath(*path).read_text(encoding="utf-8")


def command_parser(command: str, **options: Any) -> argparse.ArgumentParser:
    """A parser whose description and examples are the paragraphs of `help/COMMAND.txt`."""
    about, _, examples = data_file("help", f"{command}.txt").partition("\n\n")
    return argparse.ArgumentParser(
        prog=f"shardwise {command}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for a program to run: a file or a module, and its arguments."""
    add = parser.add_argument_group("program").add_argument
    add(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="module",
        help="a module to run, as with `python -m`",
    )
    add("script", nargs=argparse.REMAINDER, metavar="script.py", help="a file to run")


def program_of(
    parser: argparse.ArgumentParser, asked: Any, hint: Callable[[str], str] = lambda word: ""
) -> tuple[list[str], bool]:
    """The program's command line, and whether its first word is a module.

    hint: the end of the message if a file does not exist.
    """
    words, module = asked.script[1:] if asked.script[:1] == ["--"] else asked.script, asked.module
    if module is None and words[:1] == ["-m"]:
        module = words[1:]
    if module is not None:
        if not module:
            parser.error("-m requires a module name.")
        return module, True
    if not words:
        parser.error("no program: pass a script.py, or a module with -m.")
    if not Path(words[0]).exists():
        parser.error(f"there is no file {words[0]!r}.{hint(words[0])}")
    return words, False


# ---- types ---------------------------------------------------------------------------------------


def count(text: str) -> int:
    found = number(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"it must be 1 or more; got {text}.")
    return found


def number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be an integer; got {text!r}.")
    return int(text)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"it must be a positive number of seconds; got {text!r}.")
    return found
