"""Derivatives where values are infinite, zero or NaN, as those of jax."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.beside_jax import LIBRARIES
from tests.helpers.everyday import everyday

SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, 3.0, np.inf, -np.inf, np.nan], np.float32)
X, Y = (half.ravel() for half in np.meshgrid(SPECIAL, SPECIAL, indexing="ij"))


def derivatives(sw, jnp, f, *args):
    """Gradients, eager and compiled, and forward derivatives, for each argument."""
    weights = np.arange(1.0, 1.0 + np.size(f(jnp, *args)), dtype=np.float32)

    def loss(*args):
        return (f(jnp, *args).ravel() * weights).sum()

    for i in range(len(args)):
        yield from (sw.grad(loss, i)(*args), sw.jit(sw.grad(loss, i))(*args))
        tangents = [np.full(x.shape, float(i == k), np.float32) for k, x in enumerate(args)]
        yield sw.jvp(lambda *args: f(jnp, *args), args, tuple(tangents))[1]


def assert_as_jax(f, *args):
    ours, theirs = (derivatives(*library, f, *args) for library in LIBRARIES)
    for got, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-6)


@pytest.mark.parametrize("name", everyday(["floor_divide", "remainder", "fmod", "divide"], 1))
def test_quotients(name):
    assert_as_jax(lambda jnp, x, y: getattr(jnp, name)(x, y), X, Y)


@pytest.mark.parametrize("part", everyday([0, 1], 1))
def test_divmod(part):
    assert_as_jax(lambda jnp, x, y: jnp.divmod(x, y)[part], X, Y)


def test_kron():
    assert_as_jax(lambda jnp, x, y: jnp.kron(x, y), SPECIAL, np.stack([SPECIAL, SPECIAL[::-1]]))


@pytest.mark.sweep
@pytest.mark.parametrize("size", everyday([3, 12], 1))
def test_unique_of_a_size(size):
    x = np.concatenate([SPECIAL, SPECIAL[2:5]])
    assert_as_jax(lambda jnp, x: jnp.unique(x, size=size), x)
    assert_as_jax(lambda jnp, x: jnp.unique(x, size=size, fill_value=np.nan), x)


def test_power_to_zero_is_constant():
    """x**0 is 1 for each x. (jax has NaN at 0, as its rule for floats divides by it.)"""
    x = np.array([0.0, -0.0, 2.0, -2.0, np.inf, -np.inf], np.float32)
    for y in (np.float32(0), np.int32(0), np.float32(-0.0)):
        slope = sw.vmap(sw.grad(jnp.power), (0, None))(x, y)
        np.testing.assert_array_equal(slope, np.zeros(6, np.float32))
    found = sw.jvp(jnp.power, (x, np.zeros_like(x)), (np.zeros_like(x), np.ones_like(x)))[1]
    np.testing.assert_allclose(np.asarray(found)[[2, 4]], [np.log(2), np.inf], rtol=1e-6)


def test_mixed_second_derivative_of_power_at_zero():
    """As a function of y, the derivative y·x^(y-1) of x^y grows as 1/x where y is 0."""
    mixed = sw.grad(sw.grad(jnp.power), 1)
    np.testing.assert_allclose(mixed(2.0, 0.0), 0.5, rtol=1e-6)
    np.testing.assert_allclose(mixed(2.0, 3.0), 4 + 12 * np.log(2), rtol=1e-6)
