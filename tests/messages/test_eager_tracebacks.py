"""Tracebacks of errors in eager calls: the user's line and the library's innermost one."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from importlib import import_module

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.base.config import traceback_filtering
from shardwise._src.messages.source import is_own
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

A, B = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)


def raised(call, *args):
    try:
        call(*args)
    except Exception as error:
        return error
    return None


def own(error):
    """The names of the library's functions in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f.name for f in frames if is_own(f.filename)]


CALLS = {
    "operator": (lambda: jnp.asarray(A) + jnp.asarray(B), ["common_shape"]),
    "reflected operator": (lambda: A + jnp.asarray(B), ["common_shape"]),
    "fused": (lambda: jnp.add(A, B), ["common_shape"]),
    "composed": (
        lambda: jnp.intersect1d(sw.random.key(0), sw.random.key(1)),
        ["intersect1d", "check_domain"],
    ),
    "method": (lambda: jnp.asarray(A).sum(axis=3), ["sum", "sum", "_reduce", "canonical_axis"]),
    "index": (lambda: jnp.asarray(A)[0, 0, 0], ["_too_many"]),
    "at": (lambda: jnp.asarray(A).at[0].set(np.ones(9)), ["set", "_in_shape"]),
    "lax": (lambda: lax.add(A, B), ["add", "common_shape"]),
    "random": (lambda: sw.random.normal(3), ["normal", "draw", "keyed", "check_key"]),
    "device_put": (lambda: sw.device_put("text"), ["_put"]),
    "tree": (lambda: sw.tree.map(lambda a, b: a, [1], [1, 2]), ["_up_to"]),
    "scan": (lambda: lax.scan(lambda c, x: c, 1.0, A), ["apply"]),
    "grad": (lambda: sw.grad(lambda x: x)(A), ["_check_output"]),
    "vmap": (lambda: sw.vmap(lambda x: x)(1.0), ["axis_of"]),
    "jit": (lambda: sw.jit(lambda x: x)("text"), ["checked"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_frames_of_the_library(name):
    call, expected = CALLS[name]
    assert own(raised(call)) == expected


def test_the_users_lines_are_all_shown():
    def inner(x):
        return x + jnp.asarray(B)

    def outer(x):
        return inner(x) * 2

    frames = traceback.extract_tb(raised(outer, jnp.asarray(A)).__traceback__)
    assert [f.name for f in frames] == ["raised", "outer", "inner", "common_shape"]


def test_the_flag_shows_everything():
    before = traceback_filtering.value
    traceback_filtering.set("off")
    try:
        assert len(own(raised(lambda: jnp.add(A, B)))) > 8
    finally:
        traceback_filtering.set(before)


NAMED = {
    "add: shapes (3, 4) and (4, 3) do not broadcast together: from the last dimension backwards, "
    "sizes must be equal or 1.": lambda x: jnp.asarray(A) + jnp.asarray(B),
    "multiply: shapes (3, 4) and (4, 3) do not broadcast together: from the last dimension "
    "backwards, sizes must be equal or 1.": lambda x: A * jnp.asarray(B),
    "bincount: x must be a vector of integers; got f32[3,4].": lambda x: jnp.bincount(A),
    "argsort: axis 4 is out of bounds for array of dimension 2": lambda x: jnp.argsort(A, 4),
    "unique: keys are not numbers: they can be moved and compared for equality, but not "
    "computed with; got key<fry>[3]. `shardwise.random.key_data` gives the integers of a key.": lambda x: (
        jnp.unique(x)
    ),
    ".at[...].set: values of shape (4,) cannot be broadcast to the shape (3,) of the elements that "
    "the index selects.": lambda x: jnp.ones(3).at[:].set(np.ones(4, np.float32)),
    "expand_dims: axis 9 is out of bounds for array of dimension 3": lambda x: jnp.expand_dims(
        A, 9
    ),
}


@pytest.mark.parametrize("text", NAMED)
def test_the_function_that_was_called_is_named(text):
    keys = sw.random.split(sw.random.key(0), 3)
    assert str(raised(NAMED[text], keys)) == text
    staged = raised(sw.jit(NAMED[text]), keys)
    assert staged is None or str(staged).partition(":")[0] == text.partition(":")[0]


def test_a_function_of_the_user_is_not_renamed():
    def body(c, x):
        raise ValueError("mine")

    assert str(raised(lambda: lax.scan(body, 1.0, A))) == "mine"
    inner = raised(lambda: lax.scan(lambda c, x: (c, jnp.add(A, B)), 1.0, A))
    assert str(inner).startswith("add: shapes")


# --------------------------------------------------------------- every function of the library

SPACES = ["numpy", "lax", "nn", "random", "tree", "numpy.linalg", "nn.initializers"]
NO_FUNCTIONS = {"fromfile", "load", "save", "savez", "set_printoptions", "fromfunction"}


def functions():
    for space in SPACES:
        module = import_module(f"shardwise.{space}")
        for name in dir(module):
            value = getattr(module, name)
            plain = callable(value) and not inspect.isclass(value) and name[0] != "_"
            if plain and name not in NO_FUNCTIONS:
                yield f"{space}.{name}"


def test_the_name_comes_once():
    """The call passes through functions that each name the called function."""
    with sw.set_mesh(sw.make_mesh((2,), ("x",))):
        x = jnp.zeros((4, 2), out_sharding=P("x"))
        assert str(raised(lambda: x.at[np.array([1, 2])].get())) == (
            ".at[...].get: cannot operate along dimension 0 of f32[4@x,2], "
            "which is sharded over ('x',). Use `shardwise.sharding.reshard(x, P())`, or specify "
            "how the result is sharded: `x.at[idx].get(out_sharding=P(...))`."
        )


def wrong_arguments():
    a, b, c = jnp.asarray(A), jnp.asarray(B), jnp.ones((3, 4), complex)
    key, i = sw.random.key(0), jnp.arange(5)
    yield from [(a, b), (a, b, a), ("text",), ("text", a), (object(), object()), (a, "text")]
    yield from [(a, 7), (a, (9,)), ([a, b],), (key, a), (key, key), (c, c), (i, i, i), ()]
    yield from [(a, 9, 9), (a, [1, 2, 3]), (key, (3,), "text"), (key, (2, 2), object())]


@pytest.mark.parametrize("name", everyday(functions(), 42))
def test_no_function_buries_the_users_line(name):
    space, _, last = name.rpartition(".")
    fun = getattr(import_module(f"shardwise.{space}"), last)
    for args in wrong_arguments():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = raised(fun, *args)
        if error is not None:
            assert len(own(error)) <= 5, re.sub(r"\s+", " ", str(args))
