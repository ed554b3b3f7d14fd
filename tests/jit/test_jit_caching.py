"""When a jitted function is retraced, for static arguments and otherwise; what it keeps alive."""

import functools
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

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)

# --------------------------------------------------------------------------- static arguments


def counted(fun):
    """The function, and a list with one entry per trace."""
    traces = []

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        traces.append((args, kwargs))
        return fun(*args, **kwargs)

    return wrapped, traces


def test_static_arguments_are_compared_by_value():
    fun, traces = counted(lambda a, n, mode="up": a * n if mode == "up" else a - n)
    f = sw.jit(fun, static_argnums=1, static_argnames="mode")
    assert float(f(2.0, 3)) == 6 and float(f(5.0, 3)) == 15 and len(traces) == 1
    assert float(f(2.0, 4)) == 8 and len(traces) == 2
    assert float(f(2.0, 3, mode="down")) == -1 and len(traces) == 3
    assert float(f(2.0, n=3)) == 6
    assert float(f(2.0, 3.0)) == 6 and len(traces) == 5  # equal, but of another type


def test_static_arguments_are_compared_by_their_own_eq():
    class Config:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __hash__(self):
            return hash(self.n)

    fun, traces = counted(lambda c, a: a * c.n)
    f = sw.jit(fun, static_argnums=(0,))
    assert [float(f(Config(n), 2.0)) for n in (2, 2, 3)] == [4, 4, 6] and len(traces) == 2


def test_negative_and_several_static_numbers():
    f = sw.jit(lambda op, a, b, n: op(a, b) * n, static_argnums=(0, -1))
    assert float(f(lambda a, b: a - b, 3.0, 1.0, 5)) == 10


# -------------------------------------------------------------------------------------- caching


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


def test_disable_jit():
    f = sw.jit(lambda a: a * 2 if float(a.sum()) > -100 else a)
    with config.disable_jit(True):
        np.testing.assert_array_equal(np.asarray(f(jnp.asarray(X))), X * 2)
    seen = []
    h = sw.jit(lambda a: seen.append(type(a)) or a)
    h(jnp.asarray(X))
    with config.disable_jit(True):
        h(jnp.asarray(X))
        h(jnp.asarray(X))
    h(jnp.asarray(X))
    assert len(seen) == 3 and seen[0] is not seen[1] is seen[2]


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
