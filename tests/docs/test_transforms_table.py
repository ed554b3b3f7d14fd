"""docs/transforms.md agrees with the ops' records, and gives a reason for each missing rule."""

import importlib.util
import sys
from pathlib import Path

import pytest

from shardwise._src.core.op import Op

TOOL = Path(__file__).resolve().parents[2] / "tools" / "transforms_table.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("transforms_table", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_the_table_is_current(tool):
    same = tool.page() == tool.PAGE.read_text()
    assert same, "docs/transforms.md is not current: run `python tools/transforms_table.py`"


def test_what_is_missing_needs_a_reason(tool, monkeypatch):
    monkeypatch.setattr("shardwise._src.core.op.OPS", {})
    odd = Op("odd", type_rule=lambda op, x: x)
    with pytest.raises(SystemExit) as error:
        list(tool.table([tool.row_of(odd, [])]))
    assert str(error.value) == f"odd has no 'jvp': say why in REASONS of {TOOL}."


def test_reasons_are_for_ops_that_exist(tool):
    names = {op.name for op in tool.ops()}
    assert {name for name, _ in tool.REASONS} <= names
