"""`lax.optimization_barrier`, compared with jax's."""

from __future__ import annotations

import jax
import numpy as np

import shardwise as sw
from tests.helpers.errors import message


def test_values_derivatives_and_batches_go_through():
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def f(lib, numpy):
        def g(x):
            a, b = lib.lax.optimization_barrier((numpy.sin(x), {"k": x * 2}))
            return numpy.sum(a * b["k"])

        return g

    ours, theirs = f(sw, sw.numpy), f(jax, jax.numpy)
    np.testing.assert_allclose(ours(x), theirs(x), 1e-6)
    np.testing.assert_allclose(sw.grad(ours)(x), jax.grad(theirs)(x), 1e-6)
    np.testing.assert_allclose(sw.vmap(sw.grad(ours))(x), jax.vmap(jax.grad(theirs))(x), 1e-6)
    assert "stablehlo.optimization_barrier" in sw.jit(ours).lower(x).as_text()
    assert sw.lax.optimization_barrier({}) == {}


def test_leaves_must_be_arrays():
    assert message(TypeError, sw.lax.optimization_barrier, {"a": 1.0, "b": "text"}) == (
        "optimization_barrier: operand['b'] is 'text' of type str, which is not an array."
    )
