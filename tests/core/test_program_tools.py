"""The tools for programs, and a check that no code does their work manually."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.checker import check_program
from shardwise._src.core.op import OPS
from shardwise._src.core.program import Program, eval_program
from shardwise._src.core.program_tools import (
    Rewriting,
    consts_to_args,
    equation_count,
    inlined,
    programs_in,
    pruned,
    single,
    walk,
)
from shardwise._src.messages.source import describe

X = np.ones(3, np.float32)


def program_of(f, *args) -> Program:
    return sw.jit(f).trace(*args).program


@sw.jit
def twice(x):
    return jnp.sin(x) * 2


def nested(x):
    return twice(twice(x)) + 1


def names(program):
    return [e.op.name for e in program.eqns]


# -- tools --


def test_replace_keeps_the_rest():
    program = program_of(lambda x: (jnp.sin(x), jnp.cos(x)), X)
    first = program.replace(outvars=program.outvars[:1])
    assert first is not program and first.eqns is program.eqns
    assert (first.inputs, first.name) == (program.inputs, program.name)
    assert len(first(X)) == 1
    eqn = program.eqns[0]
    assert eqn.replace(params={}).site is eqn.site
    with pytest.raises(TypeError):
        program.replace(effect=())


def test_replace_finds_the_effects_anew():
    program = program_of(lambda x: sw.debug.print("{}", x), X)
    assert program.effects and not program.replace(eqns=()).effects
    assert program.replace(effects=frozenset()).effects == program.effects


def test_walk_goes_through_each_held_program_once_after_its_equation():
    program = program_of(nested, X)
    assert [e.op.name for e in walk(program)] == ["jit", "sin", "mul", "jit", "add"]
    assert programs_in(program) == [program, program.eqns[0].params["program"]]
    assert equation_count(program) == 7


def test_replayed_asks_what_to_do_at_each_equation():
    program = program_of(lambda x: jnp.sin(x) * 2, X)
    seen = []

    def bind(eqn, values):
        seen.append((eqn.op.name, values[1:]))
        return [f"{eqn.op.name}({values[0]})"]

    assert eval_program(program, ["x"], bind) == ["mul(sin(x))"]
    assert seen == [("sin", []), ("mul", [2])]
    with pytest.raises(ValueError):
        eval_program(program, ["x"], lambda eqn, values: [])


def test_inlined_programs_do_the_same_at_the_same_lines():
    program = program_of(nested, X)
    flat = inlined(program, lambda e: e.params["program"] if e.op.name == "jit" else None)
    check_program(flat)
    assert names(flat) == ["sin", "mul", "sin", "mul", "add"]
    assert describe(flat.eqns[0].site) == describe(flat.eqns[2].site)
    np.testing.assert_array_equal(flat(X)[0], program(X)[0])
    assert names(inlined(program, lambda e: None)) == names(program)


def test_inlined_programs_bring_their_constants():
    values = jnp.arange(3.0)
    f = sw.jit(lambda x: x + values)
    program = program_of(lambda x: f(x) * f(x), X)
    flat = inlined(program, lambda e: e.params.get("program"))
    check_program(flat)
    assert len(flat.consts) == 2 and flat.in_types == program.in_types
    np.testing.assert_array_equal(flat(X)[0], program(X)[0])
    whole, held = consts_to_args(flat)
    assert not whole.consts and whole.inputs == flat.inputs
    np.testing.assert_array_equal(whole(*held, X)[0], program(X)[0])


def test_pruned_programs_compute_what_is_asked_for():
    program = program_of(lambda x: (jnp.sin(x), jnp.cos(x)), X)
    assert names(pruned(program, program.outvars[1:])) == ["cos"]


def test_rewriting_adds_equations_after_those_of_a_program():
    program = program_of(jnp.sin, X)
    new = Rewriting(program.eqns)
    out = new.bind(OPS["neg"], *program.outvars)
    whole = program.replace(outvars=[out], eqns=new.eqns)
    check_program(whole)
    assert names(program) == ["sin"] and names(whole) == ["sin", "neg"]


def test_the_program_of_a_single_op():
    (t,) = program_of(jnp.sin, X).in_types
    program = single(OPS["sin"], (t,), {})
    check_program(program)
    assert program.name == "sin" and program.in_types == program.out_types == (t,)


# -- nothing done manually --

SOURCES = Path(sw.__file__).parent / "_src"
TOOLS = {"core/program.py", "core/program_tools.py"}
SUSPECT = ("Program(", "programs(", "replay.site")
BACKWARDS = "transforms/transpose.py"  # runs the known equations, then traverses the rest backwards


def complaints(source: str, file: str = "api/some.py") -> list[str]:
    """Places where a file does manually what the program tools do."""
    if file in TOOLS or not any(text in source for text in SUSPECT):
        return []
    tree = ast.parse(source)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.stmt | ast.expr)]
    found = [(node.lineno, what) for node in nodes for what in _by_hand(node)]
    if file == BACKWARDS:
        found = [(line, what) for line, what in found if "eval_program" not in what]
    return [f"{file}:{line}: {what}" for line, what in sorted(found)]


def _by_hand(node: ast.stmt | ast.expr) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name("Program")):
            parts = [n for a in [*node.args, *node.keywords] for n in ast.walk(a)]
            copied = [n.attr for n in parts if isinstance(n, ast.Attribute)]
            if {"eqns", "consts"} & {*copied}:
                yield "copies fields of a program: use `program.replace`"
        case ast.FunctionDef(name=name):
            calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
            called = {ast.unparse(f).rpartition(".")[2] for f in calls}
            if {"programs", name} <= called:
                yield "goes through held programs by itself: use `walk` or `programs_in`"
        case ast.Attribute(value=ast.Name("replay"), attr="site", ctx=ast.Store()):
            yield "runs a program by itself: use `eval_program`"


def test_there_is_one_toolbox_for_programs():
    files = {p.relative_to(SOURCES).as_posix(): p for p in sorted(SOURCES.rglob("*.py"))}
    assert {*TOOLS, BACKWARDS} <= {*files}
    found = [line for name, p in files.items() for line in complaints(p.read_text(), name)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source, tool",
    [
        ("Program(p.inputs, outs, p.eqns)", "program.replace"),
        ("Program(ins, outs, [*p.eqns, e])", "program.replace"),
        ("Program(ins, outs, kept, consts=p.consts)", "program.replace"),
        ("def f(p):\n for e in p.eqns:\n  for q in e.programs():\n   f(q)", "walk"),
        ("class A:\n def f(self, p):\n  return [self.f(q) for q in p.programs()]", "walk"),
        ("def f(p):\n for e in p.eqns:\n  replay.site = e.site", "eval_program"),
    ],
)
def test_what_is_done_by_hand_is_found(source, tool):
    (complaint,) = complaints(source)
    assert f"`{tool}`" in complaint
    assert complaints(source, "core/program_tools.py") == []


def test_what_no_tool_does_is_fine():
    assert not complaints("Program(ins, outs, equations, name=op.name)")
    assert not complaints("def f(e):\n return [g(p) for p in e.programs()]")
