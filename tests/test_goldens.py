"""Program texts and StableHLO texts against the files in tests/golden.

Regenerate texts that changed on purpose with

    SHARDWISE_UPDATE_GOLDENS=1 pytest tests/test_goldens.py

and review the diff of the files. Nothing is compiled, and the texts depend neither on
the version of jaxlib nor on the machine. New functions go to tests/golden/cases.py.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

import shardwise as sw
from tests.golden.cases import CASES, Case, mesh

FOLDER = Path(__file__).parent / "golden"
UPDATE = os.environ.get("SHARDWISE_UPDATE_GOLDENS", "") not in ("", "0")


def text_of(case: Case) -> str:
    def golden(*args: object) -> object:  # so that all programs have one name
        return case.fun(*args)

    traced = sw.jit(golden, **case.options(mesh())).trace(*case.args)
    return f"{traced.as_text()}\n\n{traced.lower().as_text().rstrip()}\n"


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def difference(name: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"golden/{name}.txt", "now", lineterm="", n=2
    )
    return "\n".join(
        [
            f"the text of '{name}' has changed:",
            "",
            *lines,
            "",
            "If that is right, run SHARDWISE_UPDATE_GOLDENS=1 pytest tests/test_goldens.py",
        ]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case: Case):
    new, path = text_of(case), path_of(case.name)
    if UPDATE:
        path.write_text(new)
        return
    if not path.exists():
        pytest.fail(f"there is no {path}; run SHARDWISE_UPDATE_GOLDENS=1 pytest {__file__}")
    old = path.read_text()
    if new != old:
        pytest.fail(difference(case.name, old, new), pytrace=False)


def test_each_file_has_a_case():
    assert len({c.name for c in CASES}) == len(CASES)
    assert {p.stem for p in FOLDER.glob("*.txt")} == {c.name for c in CASES}


def test_texts_do_not_depend_on_what_ran_before():
    """Twice in one process: names and symbols start again."""
    for case in CASES[::7]:
        assert text_of(case) == text_of(case)


def test_texts_name_nothing_of_this_machine():
    for path in FOLDER.glob("*.txt"):
        text = path.read_text()
        assert str(FOLDER.parent.parent) not in text
        assert "0x7f" not in text and ".py" not in text, path


def test_the_difference_is_readable():
    assert difference("f", "a\nb\nc", "a\nd\nc") == (
        "the text of 'f' has changed:\n\n"
        "--- golden/f.txt\n+++ now\n@@ -1,3 +1,3 @@\n a\n-b\n+d\n c\n\n"
        "If that is right, run SHARDWISE_UPDATE_GOLDENS=1 pytest tests/test_goldens.py"
    )
