"""One program of each kind, without jax: for every supported pair of Python and jaxlib."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

X = np.arange(16, dtype=np.float32).reshape(8, 2) / 8
W = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)


def mesh():
    return Mesh(np.array(sw.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))


def layer(x, w):
    return lax.tanh(lax.dot(x, w))


def loss(w, x):
    y = layer(x, w)
    return lax.reduce_sum(lax.mul(y, y), (0, 1))


def test_an_eager_op():
    y = lax.add(lax.sin(X), 1.0)
    assert y.dtype == np.float32
    np.testing.assert_allclose(np.asarray(y), np.sin(X) + 1, rtol=1e-6)


def test_jit_over_eight_devices():
    x = sw.device_put(X, NamedSharding(mesh(), P("data", None)))
    w = sw.device_put(W, NamedSharding(mesh(), P(None, "model")))
    y = sw.jit(layer)(x, w)
    assert y.sharding == NamedSharding(mesh(), P("data", "model"))
    assert [s.data.shape for s in y.addressable_shards] == [(2, 2)] * 8
    np.testing.assert_allclose(np.asarray(y), np.tanh(X @ W), rtol=1e-5)


def test_a_sum_over_shards():
    x = sw.device_put(X, NamedSharding(mesh(), P(("data", "model"), None)))
    total = sw.jit(lambda x: lax.reduce_sum(x, (0, 1)))(x)
    assert float(np.asarray(total)) == X.sum()


def test_a_resharding():
    x = sw.device_put(X, NamedSharding(mesh(), P("data", "model")))
    y = sw.device_put(x, NamedSharding(mesh(), P("model", None)))
    assert y.sharding.spec == P("model", None)
    np.testing.assert_array_equal(np.asarray(y), X)


def test_grad():
    y = np.tanh(X @ W)
    expected = X.T @ (2 * y * (1 - y**2))
    np.testing.assert_allclose(np.asarray(sw.grad(loss)(W, X)), expected, rtol=1e-4, atol=1e-6)


def test_grad_of_jit_over_eight_devices():
    x = sw.device_put(X, NamedSharding(mesh(), P("data", None)))
    w = sw.device_put(W, NamedSharding(mesh(), P(None, "model")))
    value, gradient = sw.jit(sw.value_and_grad(loss))(w, x)
    y = np.tanh(X @ W)
    np.testing.assert_allclose(float(np.asarray(value)), (y * y).sum(), rtol=1e-5)
    expected = X.T @ (2 * y * (1 - y**2))
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-4, atol=1e-6)


def test_vmap():
    y = sw.vmap(lambda row: lax.reduce_max(lax.exp(row), (0,)))(X)
    np.testing.assert_allclose(np.asarray(y), np.exp(X).max(axis=1), rtol=1e-6)


def test_gradients_of_examples():
    each = sw.vmap(sw.grad(lambda x: lax.reduce_sum(lax.sin(x), (0,))))
    np.testing.assert_allclose(np.asarray(each(X)), np.cos(X), rtol=1e-6)


def test_scan():
    last, all_sums = lax.scan(lambda c, x: (lax.add(c, x),) * 2, X[0], X)
    np.testing.assert_allclose(np.asarray(all_sums), X.cumsum(axis=0) + X[0], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(last), np.asarray(all_sums)[-1])


def test_donation_and_lowered_text():
    add = sw.jit(lambda x: lax.add(x, 1.0), donate_argnums=0)
    x = sw.device_put(X, sw.devices("cpu")[0])
    assert "stablehlo.add" in add.lower(x).as_text()
    np.testing.assert_array_equal(np.asarray(add(x)), X + 1)
    assert x.is_deleted()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", [P(), P("data", None), P("data", "model")])
def test_host_values_outlive_their_arrays(dtype, spec):
    """XLA aborts the process when a buffer is freed while an external reference exists."""
    double = sw.jit(lambda x: lax.add(x, x), donate_argnums=0)
    x = sw.device_put(X.astype(dtype), NamedSharding(mesh(), spec))
    one = sw.device_put(X.astype(dtype), sw.devices("cpu")[0])
    for array in (x, one):
        value = np.asarray(array)
        np.testing.assert_array_equal(np.asarray(double(array)), 2 * value)
        np.testing.assert_array_equal(value.astype(np.float32), X)
    copy = sw.device_put(value, NamedSharding(mesh(), spec))
    value = np.asarray(copy)
    copy.delete()
    np.testing.assert_array_equal(value.astype(np.float32), X)


def test_an_error_from_the_compiler_is_raised():
    bad = sw.jit(lambda x: x, compiler_options={"xla_no_such_flag": True})
    try:
        bad(X)
    except Exception as error:
        assert "xla_no_such_flag" in str(error)
    else:
        raise AssertionError("an unknown compiler option was accepted")


def test_a_chain_of_rolls_is_compiled_in_its_length():
    """On jaxlib 0.12 XLA took twice as long for each additional roll."""
    x = np.arange(8, dtype=np.float32)

    def chain(x, s):
        for k in range(20):
            x = sw.numpy.roll(x, s + k)
        return x

    np.testing.assert_array_equal(np.asarray(sw.jit(chain)(x, 3)), np.roll(x, 20 * 3 + 190))
