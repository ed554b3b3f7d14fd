"""`shardwise doctor`: reports on this machine and environment, and on broken or slow components.

It prints one section each on: versions, devices, processors and memory, the cache of compiled
programs, the detected cluster and the source of each fact, the network; then it runs collectives
over eight virtual devices and over two processes, checks their values and measures them. The exit
status is 1 if something is broken.

Checks that could start devices or join other processes run in separate processes, and everything
has a time limit: a minute, or ten seconds with --quick.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shardwise._src.cli import checks, selftest
from shardwise._src.cli.arguments import command_parser
from shardwise._src.cli.findings import Clock, Line, within
from shardwise._src.messages.formatting import pluralize
from shardwise._src.runtime import cuda
from shardwise._version import __version__

SECONDS, QUICK = 53.0, 7.5  # total time for programs
_TEXTS_AT = 26  # the column of texts, after the names
SPARE = 6.0  # additional seconds to end programs that hang

Section = Callable[[], Iterator[Line]]


def parser() -> argparse.ArgumentParser:
    parser = command_parser("doctor")
    parser.add_argument(
        "--quick", action="store_true", help="only checks that take less than ten seconds in all"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON record")
    return parser


class Found(NamedTuple):
    """A section with its lines."""

    name: str
    lines: list[Line]


def sections(clock: Clock, quick: bool) -> dict[str, Section]:
    """The sections, by name, in order."""

    def collectives() -> Iterator[Line]:
        yield from selftest.one_process(clock, quick)
        if cuda.available():
            yield from selftest.accelerators(clock, quick)
        if not quick:
            yield from selftest.two_processes(clock)

    return {
        "versions": checks.versions,
        "devices": lambda: checks.devices(clock),
        "machine": checks.machine,
        "caches": checks.caches,
        "cluster": checks.clusters,
        "network": lambda: (line for part in (checks.network, checks.ports) for line in part()),
        "collectives": collectives,
    }


def run(arguments: Sequence[str]) -> int:
    """Prints all sections; returns the exit status."""
    asked = parser().parse_args(list(arguments))
    clock, begin = Clock(QUICK if asked.quick else SECONDS), time.monotonic()
    found = []
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for name, section in sections(clock, asked.quick).items():
        found.append(Found(name, within(clock.left() + SPARE, section, name)))
        if not asked.json:
            print(shown(found[-1], width), flush=True)
    seconds = time.monotonic() - begin
    problems = [line for part in found for line in part.lines if line.ok is False]
    if asked.json:
        print(json.dumps(record(found, seconds), indent=2))
    else:
        print(verdict(found))
    sys.stdout.flush()
    return 1 if problems else 0


def shown(part: Found, width: int | None = None) -> str:
    """The text of a section. width: of the terminal, if there is one."""
    lines = [part.name]
    for line in part.lines:
        mark = {True: "ok", False: "!!", None: "  "}[line.ok]
        texts = [row for text in line.text.splitlines() for row in _rows(text, width)] or [""]
        advice = _rows(f"-> {line.advice}", width, "   ") if line.advice else []
        names = [f"  {mark} {line.name:<20} ", *[" " * _TEXTS_AT] * (len(texts) + len(advice))]
        lines += map(str.__add__, names, [*texts, *advice])
    return "\n".join(lines) + "\n"


def _rows(text: str, width: int | None, indent: str = "") -> list[str]:
    """Wraps a text to rows after the names, only at spaces: paths and addresses stay intact."""
    if width is None or _TEXTS_AT + len(text) <= width:
        return [text]
    return textwrap.wrap(
        text,
        max(20, width - _TEXTS_AT),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict(found: Sequence[Found]) -> str:
    """The summary: the number of problems, and of possible improvements."""
    lines = [line for part in found for line in part.lines]
    problems = sum(line.ok is False for line in lines)
    advice = sum(bool(line.advice) and line.ok is not False for line in lines)
    parts = [f"{pluralize(problems, 'problem')} found (!!)" if problems else "everything works"]
    parts += [f"{pluralize(advice, 'thing')} can be improved (->)"] * bool(advice)
    return (", and " if problems else "; ").join(parts)


def record(found: Sequence[Found], seconds: float) -> dict[str, object]:
    """All sections as JSON data."""
    rows = {
        part.name: [{**line._asdict(), "name": line.name.strip()} for line in part.lines]
        for part in found
    }
    problems = sum(line.ok is False for part in found for line in part.lines)
    return {
        "shardwise": __version__,
        "pid": os.getpid(),
        "seconds": round(seconds, 3),
        "problems": problems,
        "sections": rows,
    }
