"""`named_scope` and `named_call`: names reach the metadata of compiled programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import explain, lax
from shardwise._src.core.structure import structure_of
from tests.helpers.errors import message as error_of

X = np.arange(1, 2049, dtype=np.float32)


def names(fun: Callable, *args: Any) -> set[str]:
    hlo = sw.jit(fun).lower(*args).compile().as_text()
    return set(re.findall(r'op_name="([^"]*)"', hlo))


inner = sw.jit(lambda x: sw.named_call(snp.cos, name="turn")(x) * 2)


def f(x: Any) -> Any:
    with sw.named_scope("a"):
        y = snp.sin(x)
        with sw.named_scope("b"):
            y = inner(y)
    return y + 1


def test_names_are_joined_also_through_nested_jit():
    assert names(f, X) >= {
        "jit(f)/a/sin",
        "jit(f)/a/b/jit(<lambda>)/turn/cos",
        "jit(f)/a/b/jit(<lambda>)/mul",
        "jit(f)/add",
    }


def test_debug_text_says_names_and_lines():
    text = sw.jit(f).lower(X).as_text(debug_info=True)
    assert f'loc("jit(f)/a/sin"("{__file__}":' in text


def test_a_function_is_decorated():
    @sw.named_scope("whole")
    def g(x: Any) -> Any:
        return snp.tan(x) if x.ndim == 1 else g(x[0])

    assert names(g, X) >= {"jit(g)/whole/tan"}
    assert "jit(g)/whole/whole/tan" in names(g, X[None])
    assert sw.named_call(g).__name__ == "g"
    assert names(sw.named_call(snp.tan), X) == {"jit(tan)/tan/tan"}


def loop(x: Any) -> Any:
    def body(c: Any, _: Any) -> tuple:
        with sw.named_scope("body"):
            return snp.tan(c) * c, None

    with sw.named_scope("loop"):
        return lax.scan(body, x, None, length=3)[0]


def test_names_in_loops_and_branches():
    inside = "jit(loop)/loop/while/body/body"
    assert names(loop, X) >= {f"{inside}/tan", f"{inside}/mul"}

    def choose(x: Any) -> Any:
        with sw.named_scope("choose"):
            return lax.cond(x[0] > 0, sw.named_scope("yes")(snp.sin), snp.cos, x)

    inside = "jit(choose)/choose/cond"
    assert names(choose, X) >= {f"{inside}/branch_1_fun/yes/sin", f"{inside}/branch_0_fun/cos"}

    def search(x: Any) -> Any:
        with sw.named_scope("search"):
            test, body = sw.named_scope("small")(lambda c: c[0] < 9), sw.named_scope("twice")
            return lax.while_loop(test, body(lambda c: c * 2), x)

    assert any("/search/while/cond/small/" in name for name in names(search, X))
    assert any("/search/while/body/twice/" in name for name in names(search, X))


def test_names_under_transforms():
    def slope(x: Any) -> Any:
        with sw.named_scope("loss"):
            return sw.grad(lambda x: f(x).sum())(x)

    found = names(slope, X)
    assert found >= {"jit(slope)/loss/jvp(a)/cos", "jit(slope)/loss/transpose(jvp(a))/mul"}
    assert any(n.startswith("jit(slope)/loss/jvp(a)/b/jit(<lambda>)/turn/") for n in found)
    assert "jit(f)/vmap(a)/sin" in names(sw.vmap(f), X[:, None])
    grad_of_loop = names(sw.grad(lambda x: loop(x).sum()), X)
    assert any("/transpose(jvp(loop))/while/body/body/" in name for name in grad_of_loop)
    assert "jit(<lambda>)/jvp(a)/cos" in names(lambda x: sw.jvp(f, (x,), (x,))[1], X)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda m, f: m.vmap(f),
        lambda m, f: m.vmap(m.grad(lambda x: f(x))),
        lambda m, f: m.named_scope("out")(m.vmap(lambda x: m.vmap(f)(m.numpy.stack([x, x])))),
        lambda m, f: m.vmap(m.jit(f)),
        lambda m, f: m.named_scope("out")(lambda x: m.jvp(f, (x,), (x,))[1]),
        lambda m, f: m.named_scope("out")(m.vmap(lambda x: m.vjp(f, x)[1](x)[0])),
        lambda m, f: m.vmap(lambda x: m.linearize(f, x)[1](x)),
    ],
)
def test_name_stacks_of_transforms_are_those_of_jax(transformed: Callable):
    def stacks(m: Any) -> set[str]:
        @m.named_scope("in")
        def g(x: Any) -> Any:
            return (m.numpy.sin(x) * x).sum()

        x = np.ones(3, np.float32)
        program = m.make_jaxpr(transformed(m, g))(x)
        return {str(eqn.source_info.name_stack) for eqn in program.jaxpr.eqns}

    assert stacks(sw) == stacks(jax)


def test_names_change_no_values():
    np.testing.assert_allclose(sw.jit(f)(X), np.cos(np.sin(X)) * 2 + 1, rtol=1e-5)
    np.testing.assert_allclose(f(X), np.cos(np.sin(X)) * 2 + 1, rtol=1e-5)


def test_what_is_outside_of_a_program_is_not_in_it():
    def plain(x: Any) -> Any:
        return snp.sin(x) * 3.5

    with sw.named_scope("outside"):
        text = sw.jit(plain).lower(X).as_text()
        eager = snp.exp(snp.asarray(X))
    assert "loc(" not in text
    assert text == sw.jit(plain).lower(X).as_text()
    assert eager.shape == X.shape


def test_programs_that_differ_in_names_only_are_told_apart():
    def scaled(name: str) -> Any:
        def step(x: Any) -> Any:
            with sw.named_scope(name):
                return x * 2

        return sw.jit(step).trace(X).jaxpr

    one, same, other = map(scaled, ("one", "one", "other"))
    assert structure_of(one) == structure_of(same) != structure_of(other)
    assert str(one) == str(other)

    def two(x: Any) -> Any:
        def body(name: str) -> Callable:
            return lambda i, c: sw.named_scope(name)(snp.sin)(c)

        x = lax.fori_loop(0, 5, body("first"), x)
        return lax.fori_loop(0, 7, body("second"), x)

    found = names(two, X)
    assert any(name.endswith("/first/sin") for name in found)
    assert any(name.endswith("/second/sin") for name in found)


def test_reports_of_communication_say_names():
    mesh = sw.make_mesh((8,), ("x",))
    given = sw.device_put(X, sw.NamedSharding(mesh, sw.P("x")))

    def total(x: Any) -> Any:
        with sw.named_scope("norm"):
            return (x * x).sum()

    (found,) = explain.collectives(sw.jit(total).lower(given).compile())
    assert found.op_name == "jit(total)/norm/reduce_sum"


def test_names_inside_shard_map():
    mesh = sw.make_mesh((8,), ("x",))

    def part(x: Any) -> Any:
        with sw.named_scope("sum"):
            return lax.psum(x.sum(), "x")

    whole = sw.shard_map(part, mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P())
    (found,) = explain.collectives(sw.jit(whole).lower(X).compile())
    assert "/sum/psum" in found.op_name
    np.testing.assert_allclose(sw.jit(whole)(X), X.sum())


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (3, TypeError, "shardwise.named_scope takes a name; got 3 of type int."),
        ("", ValueError, "shardwise.named_scope takes a name; got an empty string."),
    ],
)
def test_a_name_is_a_text(name: Any, kind: type[Exception], message: str):
    assert error_of(kind, sw.named_scope, name) == message


def test_names_that_have_to_be_quoted():
    def g(x: Any) -> Any:
        with sw.named_scope('a "b" é\\'):
            return snp.sin(x)

    assert sw.jit(g)(X).shape == X.shape
