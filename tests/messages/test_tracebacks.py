"""Tracebacks of errors that pass through transforms: the user's lines."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base.config import traceback_filtering

X = np.ones(3, np.float32)


class Mistake(Exception):
    pass


def fails(*_):
    raise Mistake


def lines(call, *args):
    """The names of the functions in the traceback of the error that `call(*args)` raises."""
    try:
        call(*args)
    except Exception as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
    raise AssertionError("nothing was raised")


@sw.custom_jvp
def ruled(x):
    return fails(x)


ruled.defjvp(fails)

THROUGH = {
    "jit": lambda: sw.jit(fails)(X),
    "jit of a tree": lambda: sw.jit(fails)({"a": X}),
    "trace": lambda: sw.jit(fails).trace(X),
    "lower": lambda: sw.jit(fails).lower(X),
    "grad": lambda: sw.grad(fails)(X),
    "value_and_grad": lambda: sw.value_and_grad(fails)(X),
    "jvp": lambda: sw.jvp(fails, (X,), (X,)),
    "vjp": lambda: sw.vjp(fails, X),
    "linearize": lambda: sw.linearize(fails, X),
    "linear_transpose": lambda: sw.linear_transpose(fails, X),
    "jacfwd": lambda: sw.jacfwd(fails)(X),
    "jacrev": lambda: sw.jacrev(fails)(X),
    "hessian": lambda: sw.hessian(fails)(X),
    "vmap": lambda: sw.vmap(fails)(X),
    "checkpoint": lambda: sw.checkpoint(fails)(X),
    "eval_shape": lambda: sw.eval_shape(fails, X),
    "make_jaxpr": lambda: sw.make_jaxpr(fails)(X),
    "scan": lambda: sw.lax.scan(fails, X, X),
    "while_loop": lambda: sw.lax.while_loop(fails, fails, X),
    "fori_loop": lambda: sw.lax.fori_loop(0, 3, fails, X),
    "cond": lambda: sw.lax.cond(True, fails, fails, X),
    "switch": lambda: sw.lax.switch(0, [fails, fails], X),
    "map": lambda: sw.lax.map(fails, X),
    "associative_scan": lambda: sw.lax.associative_scan(fails, X),
    "custom_root": lambda: sw.lax.custom_root(fails, X, fails, fails),
    "custom_linear_solve": lambda: sw.lax.custom_linear_solve(fails, X, fails),
    "custom_jvp": lambda: ruled(X),
}


@pytest.mark.parametrize("name", THROUGH)
def test_only_the_users_lines_are_shown(name):
    wanted = ["<lambda>", "ruled", "fails"] if name == "custom_jvp" else ["<lambda>", "fails"]
    assert lines(THROUGH[name]) == wanted


def test_nested_transforms():
    @sw.jit
    def inner(x):
        return sw.lax.scan(fails, x, x)

    def outer(x):
        return inner(x)

    assert lines(sw.vmap(sw.grad(outer)), np.ones((2, 3), np.float32)) == [
        "outer",
        "inner",
        "fails",
    ]


def test_an_error_of_the_library_shows_where_it_was_raised():
    def f(x):
        return jnp.dot(x, np.ones(4))

    assert lines(sw.jit(f), X) == ["f", "_check_summed"]


def test_the_flag_shows_all():
    assert len(lines(sw.jit(fails), X)) == 1
    with traceback_filtering("off"):
        assert len(lines(sw.jit(fails), X)) > 4


def test_errors_stay_the_same_objects_with_their_causes():
    kept = ValueError("the cause")
    raised = Mistake("a")

    def f(x):
        raise raised from kept

    with pytest.raises(Mistake) as e:
        sw.jit(f)(X)
    assert e.value is raised
    assert e.value.__cause__ is kept
