"""When a jitted function is retraced, for static arguments and otherwise; what it keeps alive."""

import gc
import threading
import weakref

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base import config
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, ours, sharding
from tests.helpers.jitted import X, counted


def test_the_second_call_does_not_trace():
    fun, traces = counted(lambda a: a * 2)
    f = sw.jit(fun)
    for _ in range(3):
        f(X)
        f(ours(X, "x"))
    assert len(traces) == 1
    f(X.astype(np.int32))
    f(X[:4])
    f(2.0)
    f(np.float32(2))
    assert len(traces) == 5


def test_same_types_elsewhere_make_a_new_program_but_no_new_trace():
    fun, traces = counted(lambda a: a * 2)
    f = sw.jit(fun)
    mesh_2 = Mesh(MESH.devices[::-1], ("x", "y"))
    for place in (sharding("x"), sharding("y"), NamedSharding(mesh_2, P("x")), sw.devices()[2]):
        y = f(sw.device_put(X, place))
        np.testing.assert_array_equal(np.asarray(y), X * 2)
        assert y.sharding.device_set == (sw.device_put(X, place)).sharding.device_set
    assert len(traces) == 1 and len({id(r) for r in f._cache.values()}) == 4


def test_other_trees_make_new_traces():
    fun, traces = counted(lambda a: a)
    f = sw.jit(fun)
    for tree in (X, [X], (X,), {"a": X}, {"b": X}, [X], {"a": X}):
        f(tree)
    assert len(traces) == 5


def test_flags_are_part_of_the_key():
    fun, traces = counted(lambda a: jnp.arange(3.0) * a)
    f = sw.jit(fun)
    f(2.0)
    with config.enable_x64(True):
        assert f(2.0).dtype == np.float64
    assert f(2.0).dtype == np.float32 and len(traces) == 2


def test_clear_cache():
    fun, traces = counted(lambda a: a)
    f = sw.jit(fun)
    f(X)
    f.clear_cache()
    f(X)
    assert len(traces) == 2


@pytest.mark.sweep
def test_threads_may_call_at_the_same_time():
    f = sw.jit(lambda a, n: jnp.sin(a) * n + (a @ a.T).sum(), static_argnums=1)
    x, results, errors = ours(X, "x"), {}, []

    def work(i):
        try:
            for k in range(5):
                results[i, k] = np.asarray(f(x, 1 + (i + k) % 3))
                g = sw.grad(lambda a: (f(a, 2) * k).sum())(x)  # noqa: B023
                results[i, k, "grad"] = np.asarray(g)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert errors == []
    for key, value in results.items():
        if len(key) == 2:
            expected = np.sin(X) * (1 + sum(key) % 3) + (X @ X.T).sum()
            np.testing.assert_allclose(value, expected, rtol=1e-4)
        else:
            np.testing.assert_allclose(value, results[0, key[1], "grad"], rtol=1e-5)


def test_programs_and_constants_die_with_their_function():
    held = jnp.arange(10.0) + 1
    seen = weakref.ref(held)

    def make(c):
        return sw.jit(lambda a: (jnp.sin(a) * c).sum())

    f = make(held)
    f(1.0)
    sw.grad(f)(1.0)
    sw.jit(sw.grad(f))(1.0)
    sw.vmap(f)(jnp.ones(3))
    del held, f
    gc.collect()
    assert seen() is None


def test_arguments_are_not_kept():
    x = ours(X, "x")
    seen = weakref.ref(x)
    f = sw.jit(lambda a: a * 2)
    f(x)
    f.lower(x).compile()(x)
    del x
    gc.collect()
    assert seen() is None
