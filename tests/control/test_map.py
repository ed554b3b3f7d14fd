"""`map` under every transform, against jax."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.control import bodies
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

X = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
W = np.float32([0.9, 0.2])


@pytest.mark.parametrize("size", everyday([None, 3], 1))
def test_map(size):
    def f(lib, xs, w):
        def each(x):
            return {"sin": lib.np.sin(x["a"] * w), "n": x["n"] * 2}

        n = np.arange(7, dtype=np.int32)
        return lib.lax.map(each, {"a": xs, "n": n}, batch_size=size)

    same_as_jax(f, X, W, axes=(None, 0))


@pytest.mark.parametrize("size", [0, 1, 2, 7, 10])
def test_batches(size):
    for lib in (OURS, JAX):
        close(lib.lax.map(lambda x: x.sum() * 2, lib.np.asarray(X), batch_size=size), X.sum(1) * 2)


def test_a_function_is_staged_once_for_what_it_does(monkeypatch):
    staged = []
    stage = bodies.stage
    monkeypatch.setattr(bodies, "stage", lambda *a, **k: staged.append(1) or stage(*a, **k))

    def each(x):
        return x * scale

    for scale in (2, 2, 3, 3, 2):
        close(lax.map(each, swnp.asarray(X)), X * scale)
        close(sw.jit(lambda xs: lax.map(each, xs))(swnp.asarray(X)), X * scale)
    assert len(staged) == 2


def test_messages():
    assert message(TypeError, lax.map, 3, X) == "map: f must be a function; got 3."
    assert message(ValueError, lax.map, lambda x: x, X, batch_size=-1) == (
        "map: batch_size must not be negative; got -1."
    )
    assert message(ValueError, lax.map, lambda x: x, (X, X[:3]), batch_size=2) == (
        "map: the arrays of xs must have the same size along dimension 0; xs[0] of type f32[7,2] "
        "has 7, xs[1] of type f32[3,2] has 3."
    )
    assert message(ValueError, lax.map, lambda x: x, {"a": np.float32(1)}, batch_size=2) == (
        "map: xs['a'] is of type f32[], which has no dimension 0."
    )
    assert message(ValueError, lax.map, lambda x: x, {"a": np.float32(1)}) == (
        "map: xs['a'] is of type f32[], which has no dimension 0."
    )
