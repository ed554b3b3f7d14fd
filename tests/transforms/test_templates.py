"""A fused function that was staged for some types adds the same equations when called again."""

import itertools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import nn
from shardwise._src.transforms import stage
from shardwise._src.transforms.templates import SIZE, templates
from tests.helpers.everyday import everyday

X = np.linspace(0.25, 0.75, 6, dtype=np.float32).reshape(2, 3)

FUNCTIONS = {
    "one op": lambda x, y: jnp.sin(x),
    "two arrays": lambda x, y: x * y + y * x,
    "the same twice": lambda x, y: (x * x) * (x * y) * (y * y),
    "scalars": lambda x, y: (x * 2.0 + 1) / 3 - (2.0 * x - True) + x * -0.0 + x * 0.0,
    "scalars that are equal": lambda x, y: [
        v.astype(int) * s for v in (x, y) for s in (1, 1.0, True, 0, -0.0, 0.0, False)
    ],
    "exponents": lambda x, y: x**2 + x**3 + x**2.0 + x**0.5 + 2**x,
    "axes": lambda x, y: (x.sum(0), x.sum(1), x.mean(1, keepdims=True), x.sum(axis=-1), x.sum()),
    "many equations": lambda x, y: nn.softmax(x) + nn.softmax(y) + nn.gelu(x) + nn.gelu(y),
    "dtypes": lambda x, y: x.astype(jnp.float16) + y.astype(jnp.float16) + x.astype(int),
    "several results": lambda x, y: [*jnp.divmod(x, y), *jnp.divmod(y, x), *jnp.frexp(x)],
    "an argument": lambda x, y: (jnp.asarray(x), jnp.positive(x), jnp.real(x), jnp.real(y)),
    "captured": lambda x, y: jnp.where(jnp.ones(3, bool), x, y) + jnp.where(x > y, x, 0),
    "shapes": lambda x, y: x + y[0] + y[:, :1] + jnp.stack([x, y]) + jnp.concatenate([x, x])[:2],
}


@pytest.mark.parametrize("name", everyday(FUNCTIONS, 3))
def test_the_program_is_the_same(name, monkeypatch):
    f = FUNCTIONS[name]
    templates.clear()
    first = str(sw.make_jaxpr(f)(X, X))  # some calls in it find templates of other functions
    for _ in range(2):
        assert str(sw.make_jaxpr(lambda x, y: f(x, y))(X, X)) == first
    with monkeypatch.context() as without:
        without.setattr(stage, "key_of", lambda *args: None)
        assert str(sw.make_jaxpr(lambda x, y: f(x, y))(X, X)) == first
    expected = f(jnp.asarray(X), jnp.asarray(X))
    for got, want in zip(
        sw.tree.leaves(sw.jit(lambda x, y: f(x, y))(X, X)), sw.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_equations_know_their_own_lines():
    def f(x):
        x = jnp.sin(x)
        return jnp.sin(x)

    sites = [e.site[1] for e in sw.jit(f).trace(X).program.eqns]
    assert len(set(sites)) == 2


def test_flags_are_part_of_what_is_known():
    scales = itertools.count(2)

    def trace():
        scale = next(scales)  # a new value, so the function is not in the cache
        sw.make_jaxpr(lambda x: x + scale * x[0])(X)

    trace()
    with sw.numpy_rank_promotion("warn"):
        for _ in range(2):
            with pytest.warns(UserWarning, match="different ranks"):
                trace()
    with sw.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="different ranks"):
        trace()
    trace()


def test_tracers_of_outer_functions_are_captured():
    def f(x):
        y = jnp.sin(x)
        inner = sw.jit(lambda z: z * y + z * z)
        return inner(y) + inner(x)

    expected = np.sin(X) * np.sin(X) * 2 + X * np.sin(X) + X * X
    for _ in range(2):
        np.testing.assert_allclose(sw.jit(lambda x: f(x))(X), expected, rtol=1e-5)
    slope = sw.grad(lambda x: sw.jit(f)(x).sum())
    np.testing.assert_allclose(slope(X), slope(X.copy()), rtol=1e-6)


def test_there_are_not_too_many():
    templates.clear()

    def f(x):
        for i in range(50):
            x = x + float(i)
        return x

    sw.make_jaxpr(f)(X)
    assert 50 <= len(templates) <= SIZE
