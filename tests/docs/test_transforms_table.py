"""docs/transforms.md agrees with the ops' records, and gives a reason for each missing rule."""

import pytest

from shardwise._src.core.op import Op
from tools import transforms_table as tool


def test_the_table_is_current():
    same = tool.page() == tool.PAGE.read_text()
    assert same, "docs/transforms.md is not current: run `python tools/transforms_table.py`"


def test_what_is_missing_needs_a_reason(monkeypatch):
    monkeypatch.setattr("shardwise._src.core.op.OPS", {})
    odd = Op("odd", type_rule=lambda op, x: x)
    with pytest.raises(SystemExit) as error:
        list(tool.table([tool.row_of(odd, [])]))
    assert str(error.value) == f"odd has no 'jvp': say why in REASONS of {tool.__file__}."


def test_reasons_are_for_ops_that_exist():
    names = {op.name for op in tool.ops()}
    assert {name for name, _ in tool.REASONS} <= names
