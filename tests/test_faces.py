"""The public names: every module outside `_src` declares its names and has no others."""

import ast
import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import shardwise
from shardwise.errors import BroadcastError
from tests.helpers.everyday import everyday
from tests.helpers.processes import python

FACES = ["shardwise"] + sorted(
    m.name
    for m in pkgutil.walk_packages(shardwise.__path__, "shardwise.")
    if not m.name.startswith(("shardwise._", "shardwise.examples")) and "__main__" not in m.name
)


def names(module: ModuleType) -> list[str]:
    return [n for n in dir(module) if not n.startswith("_")]


@pytest.mark.parametrize("face", everyday(FACES, 42))
def test_every_stated_name_is_there(face: str):
    module = import_module(face)
    assert names(module) or face == "shardwise.version", "a face without names"
    missing = [n for n in names(module) if not hasattr(module, n)]
    assert not missing


@pytest.mark.parametrize("face", FACES)
def test_type_checkers_see_the_names_that_are_there(face: str):
    source = Path(import_module(face).__file__).read_text()
    parsed = ast.walk(ast.parse(source))
    seen = {a.asname for node in parsed if isinstance(node, ast.ImportFrom) for a in node.names}
    assert {n for n in seen if n and not n.startswith("_")} == set(names(import_module(face)))
    assert "__getattr__" not in source  # would claim that every name exists


def test_dir_shows_public_names_only():
    shown = names(shardwise)
    modules = {n for n in shown if isinstance(getattr(shardwise, n), ModuleType)}
    assert modules == {f.split(".")[1] for f in FACES[1:]}
    for name in ("_src", "TYPE_CHECKING", "lazy_names", "annotations"):
        assert name not in dir(shardwise)


def test_faces_load_nothing_until_a_name_is_used():
    code = (
        "import sys, shardwise; from importlib import import_module\n"
        "before = set(sys.modules)\n"
        f"for face in {FACES[1:]}:\n"
        "    import_module(face)\n"
        "new = set(sys.modules) - before\n"
        "print(*sorted(m for m in new if m.startswith('shardwise._src')))"
    )
    run = python(code)
    assert (run.returncode, run.stdout) == (0, "\n"), run.stderr


def test_all_names_at_once():
    found: dict[str, object] = {}
    exec("from shardwise.lax import *", found)
    assert set(names(import_module("shardwise.lax"))) <= set(found)


def test_classes_of_errors_are_at_home_in_errors():
    for name in names(shardwise.errors):
        kind = getattr(shardwise.errors, name)
        assert kind.__module__ == "shardwise.errors" or name == "JaxRuntimeError"
    assert f"{BroadcastError.__module__}.{BroadcastError.__name__}" in repr(BroadcastError)
