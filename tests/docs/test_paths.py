"""Paths and modules that the documents name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "shardwise" / "_src"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.py")]
PATH = re.compile(r"`((?:[\w.]+/)+[\w.]*)`|\(((?:\w+/)+\w+\.py)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_paths_exist(document: Path):
    found = [a or b for a, b in PATH.findall(document.read_text())]
    homes = (MACHINE, ROOT, ROOT / "shardwise", document.parent)
    missing = [p for p in found if not any((home / p).exists() for home in homes)]
    assert not missing


def test_every_room_is_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {p.name for p in MACHINE.iterdir() if (p / "__init__.py").exists()}
    assert {room for room in rooms if f"{room}/" not in text} == set()
