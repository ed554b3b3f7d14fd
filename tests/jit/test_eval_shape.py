"""`eval_shape` and `make_jaxpr`: functions traced, and not run."""

from __future__ import annotations

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base import context
from tests.helpers.beside_jax import sharding
from tests.helpers.jitted import W, X


def test_eval_shape():
    def f(a, b):
        return {"product": a @ b, "sum": (a.sum(), 2)}

    found = sw.eval_shape(f, X, sw.ShapeDtypeStruct((4, 3), "bfloat16"))
    assert found == {
        "product": sw.ShapeDtypeStruct((8, 3), np.float32),
        "sum": (
            sw.ShapeDtypeStruct((), np.float32),
            sw.ShapeDtypeStruct((), np.int32, weak_type=True),
        ),
    }
    inside = []
    sw.jit(lambda a: inside.append(sw.eval_shape(jnp.sin, a)) or a)(X)
    assert inside == [sw.ShapeDtypeStruct((8, 4), np.float32)]
    assert sw.jit(f).eval_shape(X, W)["product"].shape == (8, 8)


def test_make_jaxpr():
    program = sw.make_jaxpr(lambda a, n: jnp.sin(a) * n, static_argnums=1)(X, 2)
    assert str(program) == (
        "{ lambda ; a:f32[8,4]. let\n"
        "    b:f32[8,4] = sin a\n"
        "    c:f32[8,4] = mul b 2.0:f32[]\n"
        "  in (c,) }"
    )
    program, shape = sw.make_jaxpr(lambda a: a.sum(), return_shape=True)(X)
    assert shape == sw.ShapeDtypeStruct((), np.float32)


def test_looking_at_functions():
    t = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    assert t.update(shape=(4,), sharding=None) == sw.ShapeDtypeStruct((4,), np.float32)
    assert sw.eval_shape(lambda a, b: a @ b, t, b=X.T).shape == (8, 8)
    axes = []
    program = sw.make_jaxpr(
        lambda a: axes.append(context.current().axis("i").size) or a * 2, axis_env=[("i", 4)]
    )(t)
    assert axes == [4] and str(program).startswith("{ lambda ; a:f32[8,4]. let")
    _, shape = sw.make_jaxpr(lambda a, n: [a] * n, static_argnums=1, return_shape=True)(t, 2)
    assert [s.shape for s in shape] == [(8, 4)] * 2


class Like:
    """An object with a shape and a dtype but no data, as other libraries have."""

    shape, dtype = (4, 3), np.dtype("float32")


def test_types_may_be_anything_with_a_shape_and_a_dtype():
    assert sw.eval_shape(lambda a: X @ a, Like()) == sw.ShapeDtypeStruct((8, 3), np.float32)
    assert jax.eval_shape(lambda a: X @ a, Like()).shape == (8, 3)
    assert sw.jit(lambda a: a.T).lower(Like()).compile()(W[:, :3]).shape == (3, 4)
    assert "f32[4,3]" in str(sw.make_jaxpr(lambda a: a + 1)(Like()))
    with pytest.raises(TypeError):
        sw.jit(lambda a: a)(Like())


def test_inside_of_a_function_that_is_not_run_types_are_values():
    t = sw.ShapeDtypeStruct((4, 3), np.float32)
    inner = sw.jit(lambda a: a + 1)
    for f in (inner, jnp.sin, lambda a: inner(a) * 2, lambda a: sw.jit(lambda b: inner(b))(a)):
        assert sw.eval_shape(lambda f=f: f(t)) == sw.eval_shape(lambda f=f: sw.vmap(f)(t)) == t
        assert sw.eval_shape(lambda f=f: sw.grad(lambda a: f(a).sum())(t)) == t
        found = sw.eval_shape(lambda a, f=f: sw.vmap(lambda b: f(t)[0] + b)(a), X[:, :3])
        assert found.shape == (8, 3)
        with pytest.raises(TypeError, match="which has no data"):
            sw.jit(lambda f=f: f(t)).lower()
    with pytest.raises(TypeError, match="has no data"):
        inner(t)
