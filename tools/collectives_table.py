"""Writes docs/collectives.md: which collectives work where.

    python tools/collectives_table.py

The rows are the collectives that tests define in NumPy, the columns are the contexts in which they
are tested; a test of each cell checks the table. Unsupported cells must have a reason, otherwise
nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "collectives.md"

TEXT = """\
# Where collectives work

Written by `python tools/collectives_table.py`; `tests/docs/test_collectives_table.py` has a test of
each cell. Each cell is tested with each of these kinds of axis, against a NumPy definition of
the collective:

{kinds}

Derivatives are those of the sum of all losses, and are compared with those of the definition.

| column | what is tried |
|---|---|
{columns}

"""


def table() -> Iterator[str]:
    from tests.helpers.collectives import FORMS
    from tests.helpers.contexts import CONTEXTS, REFUSED

    names = list(dict.fromkeys(form.name for form in FORMS))
    yield "| collective | " + " | ".join(CONTEXTS) + " |"
    yield "|---" * (len(CONTEXTS) + 1) + "|"
    notes: dict[str, int] = {}
    for name in names:
        cells = []
        for where in CONTEXTS:
            reason = REFUSED.get((name, where))
            if reason == "":
                raise SystemExit(f"{name} is refused in {where}: say why in REFUSED.")
            cells.append(f"— [{notes.setdefault(reason, len(notes) + 1)}]" if reason else "yes")
        yield f"| `{name}` | " + " | ".join(cells) + " |"
    yield ""
    for reason, number in notes.items():
        yield f"{number}. {reason}"


def page() -> str:
    from tests.helpers.contexts import CONTEXTS, KINDS

    kinds = "\n".join(f"- {what}" for what in KINDS.values())
    rows = [
        f"| {name} | {' '.join((make.__doc__ or '').split())} |" for name, make in CONTEXTS.items()
    ]
    text = TEXT.format(kinds=kinds, columns="\n".join(rows))
    return text + "\n".join(table()).rstrip() + "\n"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from shardwise._src.base.config import config

    config.update("num_cpu_devices", 8)  # the contexts have meshes
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
