"""Logical axes through programs: what `check` follows and finds, and the op where it finds it."""

from typing import Annotated

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import Array, lax, named
from shardwise._src.named.axes_op import axes_op
from shardwise.named import axes, check, checked, einsum, rename
from tests.helpers.errors import line, message
from tests.helpers.meshes import MESH

X = np.arange(16, dtype=np.float32).reshape(4, 4)
HERE = "test_check.py:"


@checked
def turned(x: Annotated[Array, "row column"]) -> Annotated[Array, "column row"]:
    return snp.sin(x)  # of which it should have taken the transpose


@checked
def right(x: Annotated[Array, "row column"]) -> Annotated[Array, "column row"]:
    return snp.sin(x).T


def in_scan(f):
    def run(x):
        return lax.scan(lambda c, row: (c, f(c) + row), x, snp.ones((3, 4)))[1]

    return run


def in_cond(f):
    return lambda x: lax.cond(snp.sum(x) > 0, f, f, x)


def in_while(f):
    return lambda x: lax.while_loop(lambda x: snp.sum(x) < 3, f, x)


WAYS = {
    "as it is": lambda f: lambda x: f(x),
    "jit": lambda f: lambda x: sw.jit(f)(x),
    "grad": lambda f: sw.grad(lambda x: snp.sum(f(snp.cos(x)))),
    "vmap": lambda f: lambda x: sw.vmap(f)(snp.stack([x, x])),
    "scan": in_scan,
    "cond": in_cond,
    "while": in_while,
    "checkpoint": lambda f: sw.grad(lambda x: snp.sum(sw.checkpoint(f)(x))),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_dimension_that_was_mistaken_for_another(way):
    check(WAYS[way](right), X)
    text = message(ValueError, check, WAYS[way](turned), X)
    assert text.startswith("named.check: one axis is ")
    assert "'row' (turned: " in text
    assert "'column' (turned: " in text
    assert text.endswith(
        "If the dimensions are in the wrong order, `rearrange` them; if one axis "
        "should have two names, use `shardwise.named.rename`."
    )
    assert HERE in text


def test_the_whole_message():
    @checked
    def f(x: Annotated[Array, "a b"]):
        y = snp.sin(x)
        return einsum("b a, b c -> a c", y, y)

    def g(x):
        return f(x)

    text = message(ValueError, check, g, X).replace(__file__, "FILE")
    assert text == (
        f"named.check: one axis is named 'a' (f: x, at FILE:{line('return f(x)')} (g)) and 'b' "
        f"(einsum: operand 0, at FILE:{line('b c -> a c')} (f)) in the same function; the two meet "
        f"in 'axes', at FILE:{line('b c -> a c')} (f). If the dimensions are in the wrong "
        "order, `rearrange` them; if one axis should have two names, use "
        "`shardwise.named.rename`."
    )


def test_values_that_meet_in_an_op():
    def f(x, y):
        return axes(x, "a b") + axes(y, "b a")

    @checked
    def g(x: Annotated[Array, "a b"], y: Annotated[Array, "b a"]):
        return x + y

    check(f, X, X)  # outside a function, each boundary has its own logical axes
    assert "the two meet in 'add', at" in message(ValueError, check, g, X, X)


def test_functions_have_words_of_their_own():
    @checked
    def linear(x: Annotated[Array, "rows in_"], w: Annotated[Array, "in_ out"]):
        return einsum("rows in_, in_ out -> rows out", x, w)

    @checked
    def f(x: Annotated[Array, "batch embed"], ws: Annotated[list, ["embed mlp", None, None]]):
        y = linear(x, ws[0])
        axes(y, "batch mlp")
        return sw.jit(linear)(y, ws[1]), sw.jit(linear)(y.T, ws[2])

    check(f, X, [X, X, X])
    # One matrix for both orders is different: its rows would also be the batch.
    message(ValueError, check, lambda x: f(x, [X, ws := snp.sin(X), ws]), X)


def test_one_axis_by_two_words():
    @checked
    def scores(x: Annotated[Array, "seq embed"]) -> Annotated[Array, "seq key"]:
        keys = rename("seq embed -> key embed", x)
        return einsum("seq embed, key embed -> seq key", x, keys)

    @checked
    def without(x: Annotated[Array, "seq embed"]) -> Annotated[Array, "seq key"]:
        return einsum("seq embed, key embed -> seq key", x, x)

    def loss(x):
        return snp.sum(scores(snp.sin(x)) ** 2)

    check(scores, X)
    check(sw.grad(loss), X)
    assert "'key' (einsum: operand 1, at" in message(ValueError, check, without, X)
    np.testing.assert_allclose(scores(X), X @ X.T)


def test_patterns_that_only_move_dimensions():
    @checked
    def f(x: Annotated[Array, "seq embed"]):
        return named.rearrange("embed seq -> seq embed", x)

    @checked
    def g(x: Annotated[Array, "seq embed"]) -> Annotated[Array, "heads embed"]:
        parts = named.rearrange("(heads head) embed -> heads head embed", x, heads=2)
        return named.reduce("heads head embed -> heads embed", parts, by=snp.sum)

    @checked
    def h(x: Annotated[Array, "seq embed"]) -> Annotated[Array, "heads embed"]:
        parts = named.rearrange("(heads head) embed -> heads head embed", x, heads=4)
        return named.rearrange("embed head heads -> heads (embed head)", snp.sin(parts))

    check(g, X)
    assert "rearrange: operand" in message(ValueError, check, f, X)
    assert "'embed' (rearrange: operand" in message(ValueError, check, h, X)


def test_shapes_are_enough_and_nothing_stays():
    check(right, sw.ShapeDtypeStruct((3, 4), np.float32))
    with named.rules({"row": "x", "column": None}, MESH):
        check(sw.jit(right), X)
        assert axes_op.name not in str(sw.make_jaxpr(right)(X))
        seen = sw.jit(right).lower(X).as_text()
    assert "sharding_constraint" in seen


def test_a_map_by_word_has_its_word_inside():
    @checked
    def inner(x: Annotated[Array, "embed"]) -> Annotated[Array, "embed"]:
        return snp.sin(x)

    @checked
    def f(x: Annotated[Array, "batch embed"]) -> Annotated[Array, "batch embed"]:
        return named.vmap(inner, "batch", ("batch embed",), "batch embed")(x)

    @checked
    def wrong(x: Annotated[Array, "batch embed"]) -> Annotated[Array, "batch embed"]:
        return named.vmap(inner, "batch", ("batch embed",), "embed batch")(x)

    check(f, X)
    message(ValueError, check, wrong, X)
