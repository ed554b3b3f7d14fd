"""Transformed programs retain the source lines of the original equations."""

import inspect
import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.base.config import debug_nans
from shardwise._src.messages.source import line_of, replay, user_site
from shardwise.testing import check_grads
from tests.helpers.errors import message

X = np.linspace(0.1, 0.9, 3, dtype=np.float32)
ONE = np.float32(1)


def scanned(x):
    def step(c, a):
        return swnp.sin(c) * a, None

    return lax.scan(step, ONE, x)[0]


def branched(x):
    return swnp.sum(lax.cond(x[0] > 0, lambda x: swnp.exp(x), lambda x: x, x))


def counted(x):
    return lax.fori_loop(0, 3, lambda i, c: swnp.tanh(c * x[i]), ONE)


def repeated(x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, swnp.cos(s[1] * x)), (0, x))[1]


def sites(program):
    for eqn in program.eqns:
        yield eqn.op.name, line_of(eqn.site)
        for held in eqn.programs():
            yield from sites(held)


def lines(fun):
    rows, first = inspect.getsourcelines(fun)
    return range(first, first + len(rows))


@pytest.mark.parametrize(
    "fun, reverse", [(scanned, True), (branched, True), (counted, True), (repeated, False)]
)
def test_every_equation_has_a_line_of_the_function(fun, reverse):
    made = {
        "jvp": lambda x: sw.jvp(fun, (x,), (x,)),
        "vmap": lambda x: sw.vmap(fun)(swnp.stack([x, -x])),
        "jvp of jvp": lambda x: sw.jvp(lambda x: sw.jvp(fun, (x,), (x,)), (x,), (x,)),
    }
    if reverse:
        made |= {
            "grad": sw.grad(fun),
            "grad of grad": sw.grad(lambda x: sw.grad(fun)(x)[1]),
            "vmap of grad": lambda x: sw.vmap(sw.grad(fun))(swnp.stack([x, -x])),
        }
    for name, transformed in made.items():
        found = list(sites(sw.jit(transformed).trace(X).program))
        own = [line for _, (file, line, _) in found if file == __file__ and line in lines(fun)]
        others = {op for op, (file, _, _) in found if file != __file__}
        assert not others, name
        # The rest comes from the transforms around the function, at the lines that call them.
        assert len(own) >= len(found) - 8, (name, found)


def test_operations_keep_their_own_line():
    def step(c, a):
        c = swnp.sin(c)
        return c * a, swnp.tanh(c)

    program = sw.jit(sw.grad(lambda x: lax.scan(step, ONE, x)[1].sum())).trace(X).program
    start = step.__code__.co_firstlineno
    found = {(op, line - start) for op, (_, line, name) in sites(program) if name == "step"}
    assert {("sin", 1), ("cos", 1), ("tanh", 2), ("mul", 1), ("mul", 2)} <= found


def test_a_user_function_within_a_replayed_program_is_itself_the_place():
    @sw.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), swnp.cosh(x) * t

    def step(c, a):
        return f(c) * a, None

    program = sw.jit(sw.grad(lambda x: lax.scan(step, ONE, x)[0])).trace(X).program
    assert {name for op, (_, _, name) in sites(program) if op == "cosh"} == {"rule"}


def test_lines_in_the_compiled_text():
    text = sw.jit(sw.grad(scanned)).lower(X).as_text(debug_info=True)
    cosine = next(row for row in text.splitlines() if "stablehlo.cosine" in row)
    start = scanned.__code__.co_firstlineno
    assert re.search(rf"test_sites.py\"?:{start + 2}\b", cosine)


def test_debug_nans_names_the_line_that_a_derivative_belongs_to():
    def root(x):
        return swnp.sum(lax.scan(lambda c, a: (c + swnp.sqrt(a), None), x, x[None])[0])

    line = root.__code__.co_firstlineno + 1
    with debug_nans(True):
        for run in (sw.grad(root), sw.jit(sw.grad(root))):
            text = message(FloatingPointError, run, np.zeros(3, np.float32) * -0.0 - ONE)
            assert f"test_sites.py:{line} (<lambda>)" in text


def test_a_failure_leaves_nothing_behind():
    program = sw.make_jaxpr(lambda x: swnp.sin(x))(X)
    assert "object" in message(TypeError, program, object())
    assert replay.site is None
    assert line_of(user_site())[2] == "test_a_failure_leaves_nothing_behind"


def test_derivatives_are_what_they_were():
    check_grads(scanned, (X,), order=2)
