"""Layers below the eager interpreter use only attributes of it that core declares."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.base.context import current
from shardwise._src.core.eval_context import EvalTrace, eval_context, eval_trace
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.running.eager import EAGER
from tests.test_layers import LAYERS, PACKAGE

SOURCES = PACKAGE / "_src"
BELOW = LAYERS[: LAYERS.index("running")]
OF_EVAL_TRACE = {name for name in vars(EvalTrace) if not name.startswith("_")}
OF_ALL = {name for name in vars(Interpreter) if not name.startswith("_")}
INTERPRETERS = ("current().interpreter", "CURRENT.get().interpreter", "ROOT.interpreter")


@cache
def used(source: str) -> list[tuple[str, int, str]]:
    """Attribute accesses on an interpreter or the eval context: (which of the two, line, name).

    Names bound to the result of a call count too: `interpreter = current().interpreter`. A name
    annotated with the class of a transform, `stage: Stage = …`, has more attributes.
    """
    if not any(text in source for text in ("eval_trace()", *INTERPRETERS)):
        return []
    found: list[tuple[str, int, str]] = []
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for scope in [tree, *functions]:
        names = {"eval_trace()": "eval_trace", **dict.fromkeys(INTERPRETERS, "interpreter")}
        for node in ast.walk(scope) if scope is not tree else ():
            if isinstance(node, ast.Assign):
                names |= dict(_named(node.targets[0], node.value, names))
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute) and (what := names.get(ast.unparse(node.value))):
                found.append((what, node.lineno, node.attr))
    return found


def _named(target: ast.expr, value: ast.expr, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for t, v in zip(target.elts, value.elts, strict=True):
            yield from _named(t, v, known)
    elif ast.unparse(value) in known:
        yield ast.unparse(target), known[ast.unparse(value)]


def files(rooms: tuple[str, ...]) -> list[Path]:
    return [path for room in rooms for path in sorted((SOURCES / room).rglob("*.py"))]


def test_what_is_used_of_an_interpreter_is_found():
    source = """
def f(x):
    here, n = current().interpreter, 3
    if here.eager:
        return eval_trace().place(x, n)
    host = eval_trace()
    return host.hidden(x.interpreter.tag)
"""
    found = {(what, name) for what, _, name in used(source)}
    assert found == {("interpreter", "eager"), ("eval_trace", "place"), ("eval_trace", "hidden")}


def test_lower_layers_use_what_is_declared():
    allowed = {"eval_trace": OF_EVAL_TRACE, "interpreter": OF_EVAL_TRACE | OF_ALL}
    undeclared = [
        f"{path.relative_to(SOURCES)}:{line} uses {name} of the {what}"
        for path in files(BELOW)
        for what, line, name in used(path.read_text())
        if name not in allowed[what]
    ]
    assert not undeclared, "\n" + "\n".join(undeclared)


def test_what_is_declared_is_used_by_lower_layers():
    everything = {name for path in files(BELOW) for _, _, name in used(path.read_text())}
    assert everything >= OF_EVAL_TRACE


def test_only_one_file_asks_the_root_for_its_interpreter():
    asking = {p for p in SOURCES.rglob("*.py") if "ROOT.interpreter" in p.read_text()}
    assert asking == {SOURCES / "core" / "eval_context.py"}


@pytest.mark.parametrize("room", LAYERS[: LAYERS.index("arrays")])
def test_what_lies_below_arrays_knows_nothing_of_their_insides(room):
    inside = [
        f"{path.name}:{node.lineno} {node.attr}"
        for path in files((room,))
        if any(name in (source := path.read_text()) for name in ("._sig", "._impl"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in ("_sig", "_impl")
    ]
    assert not inside


def test_the_eager_interpreter_is_the_eval_trace():
    assert isinstance(EAGER, EvalTrace) and eval_trace() is EAGER
    with pytest.raises(TypeError, match="abstract"):
        EvalTrace()  # pyright: ignore[reportAbstractUsage]


def test_untraced_runs_at_once_inside_a_trace():
    found = []

    def f(x):
        with eval_context():
            assert current().interpreter is EAGER
            found.append(eval_trace().new_array(np.ones(2, np.float32)) + 1)
        return x * found[0]

    assert sw.jit(f)(np.float32(3)).tolist() == [6.0, 6.0]
    assert found[0].tolist() == [2.0, 2.0]
