"""`shardwise explain-error NAME`: prints the page of an error class, or a list of all pages.

The pages are in `docs/errors/` of a checkout; the wheel contains the same files as
`shardwise/docs/errors/`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from shardwise._src.base.errors import did_you_mean
from shardwise._src.cli.arguments import command_parser
from shardwise._src.cli.main_programs import PACKAGE, shipped
from shardwise._src.messages.formatting import columns

# Classes without an example that fails everywhere, by the page of their base that describes them.
_DESCRIBED = {"ProgramTooLarge": "JaxRuntimeError"}
_ROW = re.compile(r"^\| \[(\w+)\]\(\w+\.md\) \| (.+) \|$", re.MULTILINE)


def pages() -> Path:
    """The folder of the pages."""
    return shipped(PACKAGE, "docs/errors", "README.md", "pages")


def about() -> dict[str, str]:
    """The summary line of each error class, by name."""
    return dict(_ROW.findall((pages() / "README.md").read_text(encoding="utf-8")))


def parser() -> argparse.ArgumentParser:
    parser = command_parser("explain-error")
    parser.add_argument("name", nargs="?", help="the error class; without it, all are listed")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Prints a page, or the list if no name is given; returns the exit status."""
    name, lines = parser().parse_args(list(arguments)).name, about()
    if name is None:
        print("\n".join(columns(list(lines.items()))))
        return 0
    bare = name.rpartition(".")[2]
    named = {known: known for known in lines} | _DESCRIBED
    found = {known.lower(): page for known, page in named.items()}.get(bare.lower())
    if found is None:
        print(
            f"there is no page for {bare!r}.{did_you_mean(bare, named)} `shardwise explain-error` "
            "lists all.",
            file=sys.stderr,
        )
        return 1
    print((pages() / f"{found}.md").read_text(encoding="utf-8"), end="")
    return 0
