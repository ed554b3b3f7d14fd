"""docs/notation.md contains everything that the printer of types can write."""

import re
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import P
from shardwise._src.ops.random.bits import GENERATORS
from shardwise._src.types.array_type import array_type, str_short
from shardwise._src.types.dtypes import _SUPPORTED, short_name
from shardwise.sharding import AbstractMesh, AxisType

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "notation.md").read_text()
MESH = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def test_names_of_dtypes():
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    assert {short_name(d) for d in _SUPPORTED} <= named


def test_names_of_keys():
    for name in GENERATORS:
        key = sw.random.key(0, impl=name)
        assert f"{name} {str_short(sw.typeof(key))}\n" in PAGE


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"weak_type": True}, "~f32[8,4]"),
        ({"spec": P("x", "y"), "mesh": MESH}, "f32[8@x,4@y]"),
        ({"spec": P(("x", "y")), "mesh": MESH}, "f32[8@(x,y),4]"),
        ({"varying": frozenset("x")}, "f32[8,4]{V:x}"),
        ({"spec": P(unreduced={"x"}), "mesh": MESH}, "f32[8,4]{U:x}"),
        ({"spec": P(reduced={"x"}), "mesh": MESH}, "f32[8,4]{R:x}"),
    ],
)
def test_each_part_has_its_sign_on_the_page(fields, text):
    """The parts after the dtype: what a field of a type adds to `f32[8,4]`."""
    found = str_short(array_type((8, 4), np.dtype(np.float32), **fields))
    assert found == text
    added = set(re.findall(r"~|@\(x,y\)|@x|\{\w:x\}", text))
    assert added and all(sign in PAGE for sign in added)


def test_pages_of_errors_with_types_lead_here():
    typed = re.compile(r"\b(?:f32|i32|bool|float32|key<\w+>)\[|\{[VUR]:")
    for path in (ROOT / "docs" / "errors").glob("*.md"):
        text = path.read_text()
        assert not typed.search(text) or "](../notation.md)" in text, path.name
