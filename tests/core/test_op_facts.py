"""Facts about an op are in its record: no code patches the record or checks op names instead.

Read from the source of the library by AST, as `tests/test_layers.py` does.

    complaints(source)  ->  the problems in one file, as (line, text)
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardwise
from shardwise._src.core.op import Op

ROOT = Path(shardwise.__file__).parent / "_src"
FIELDS = {f.name for f in dataclasses.fields(Op)} - {"name"}
PARAMETERS = {"program", "programs", "body", "branches", "sharding", "shardings", "names"}
COMPARED = "asks for the name of an op: give its record a field that says what matters"
PATCHED = "changes a record that is made: give the value to its constructor"
NAMED = "asks how a parameter is called: use the fields that say what parameters hold"


def complaints(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if any(_is_patch(t) for t in _targets(node)):
            yield node.lineno, PATCHED  # type: ignore[attr-defined]
        elif isinstance(node, ast.Attribute) and node.attr == "family":
            yield node.lineno, "asks for a family: " + COMPARED
        elif isinstance(node, ast.Compare):
            if any(map(_is_op_name, (node.left, *node.comparators))):
                yield node.lineno, COMPARED
            if _names_a_parameter(node.left) and _are_parameters(node.comparators[0]):
                yield node.lineno, NAMED
        elif isinstance(node, ast.Subscript) and _is_op_name(node.slice):
            yield node.lineno, COMPARED
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr == "get" and _is_op_name(node.args[0]):
                yield node.lineno, COMPARED
            elif _names_a_parameter(node.args[0]) and _are_parameters(node.func.value):
                yield node.lineno, NAMED


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    return [t for target in found for t in getattr(target, "elts", [target])]


def _is_patch(target: ast.expr) -> bool:
    """Whether the target is an op attribute of an object other than `self`."""
    if not isinstance(target, ast.Attribute) or target.attr not in FIELDS:
        return False
    return not (isinstance(target.value, ast.Name) and target.value.id == "self")


def _is_op_name(node: ast.expr) -> bool:
    """`op.name`, `eqn.op.name`."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return getattr(owner, "id", getattr(owner, "attr", "")) == "op"


def _names_a_parameter(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in PARAMETERS


def _are_parameters(node: ast.expr) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) in ("params", "p")


def test_facts_of_ops_are_asked_of_their_records():
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in sorted(ROOT.rglob("*.py"))
        for line, text in complaints(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("op.batch = rule", PATCHED),
        ("op.jvp, x = rule, 1", PATCHED),
        ("make(op).inferred = {}", PATCHED),
        ("if op.family: pass", "asks for a family: " + COMPARED),
        ("op.name == 'sin'", COMPARED),
        ("x = eqn.op.name in ('eq', 'ne')", COMPARED),
        ("rule = RULES[eqn.op.name]", COMPARED),
        ("rule = RULES.get(op.name)", COMPARED),
        ("'program' in params", NAMED),
        ("'sharding' not in eqn.params", NAMED),
        ("held = eqn.params.get('program')", NAMED),
    ],
)
def test_what_is_found(source: str, wanted: str):
    assert [text for _, text in complaints(source)] == [wanted]


def test_what_is_fine():
    lines = "self.batch = 1", "name = f'[{op.name}]'", "op is add", "'groups' in p", "p['body']"
    source = "\n".join(lines)
    assert list(complaints(source)) == []
