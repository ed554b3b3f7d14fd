"""`shardwise explain-error NAME`: prints the page of an error class, or a list of them all.

The pages are those of the checkout's `docs/errors/`; the wheel carries the same files as
`shardwise/docs/errors/`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shardwise._src.base.errors import did_you_mean

PACKAGE = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| \[(\w+)\]\(\w+\.md\) \| (.+) \|$", re.MULTILINE)


def pages() -> Path:
    """The folder of the pages."""
    for folder in (PACKAGE / "docs" / "errors", PACKAGE.parent / "docs" / "errors"):
        if (folder / "README.md").is_file():
            return folder
    raise SystemExit(
        f"the pages are missing: there is no README.md in {PACKAGE / 'docs' / 'errors'} (a wheel "
        f"has it there) or {PACKAGE.parent / 'docs' / 'errors'} (a checkout). Install shardwise "
        "again."
    )


def run(name: str | None) -> int:
    """Prints a page, or the list where no name is given; returns the exit status."""
    folder = pages()
    about = dict(_ROW.findall((folder / "README.md").read_text(encoding="utf-8")))
    if name is None:
        width = max(map(len, about))
        print("\n".join(f"{known:{width}}  {text}" for known, text in about.items()))
        return 0
    bare = name.rpartition(".")[2]
    found = {known.lower(): known for known in about}.get(bare.lower())
    if found is None:
        print(
            f"there is no page for {bare!r}.{did_you_mean(bare, about)} `shardwise explain-error` "
            "lists all.", file=sys.stderr,
        )
        return 1
    print((folder / f"{found}.md").read_text(encoding="utf-8"), end="")
    return 0
