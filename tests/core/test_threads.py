"""Tracing in several threads concurrently, with shared caches; and caches that stay bounded."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.arrays.signature import signature
from shardwise._src.base.caches import clear_registered, make_room, snapshot
from shardwise._src.base.context import TraceKey, current
from shardwise._src.control import bodies
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms import stage
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

THREADS, ROUNDS = 8, 12
V = np.linspace(0.1, 1.0, 5, dtype=np.float32)


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work):
    """`work(i)` in all threads concurrently: results in order, or the first error is raised."""
    gate = threading.Barrier(THREADS)

    def run(i):
        gate.wait(timeout=30)
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS), timeout=250))


def wave(k):
    """A new function on each call; functions for equal k do the same."""

    def fun(x):
        def body(c, a):
            return c + jnp.sin(a * k), c * a

        total, rows = lax.scan(body, jnp.float32(0), x)
        return total + rows.sum()

    return fun


def slope(k):
    """The derivative of `wave(k)`, worked out manually."""
    sines = np.sin(V * k, dtype=np.float64)
    before = np.concatenate([[0.0], np.cumsum(sines)[:-1]])
    after = np.concatenate([np.cumsum(V[::-1].astype(np.float64))[::-1][1:], [0.0]])
    return before + k * np.cos(V * k, dtype=np.float64) * (1 + after)


SHARED = {k: sw.jit(wave(k)) for k in range(1, 4)}
SHARED_GRAD = {k: sw.jit(sw.grad(wave(k))) for k in range(1, 4)}


def transformed(fun, step):
    """The gradient at V by one of several methods, each of which uses separate caches."""
    ways = (
        lambda: sw.grad(fun)(V),
        lambda: sw.jit(sw.grad(fun))(V),
        lambda: sw.vmap(sw.grad(fun))(np.stack([V, V]))[1],
        lambda: sw.grad(sw.jit(fun))(V),
        lambda: sw.jacfwd(fun)(V),
        lambda: sw.jit(sw.vmap(sw.grad(sw.jit(fun))))(np.stack([V, V]))[0],
    )
    return ways[step % len(ways)]()


@pytest.mark.sweep
def test_threads_trace_the_same_and_different_functions():
    def work(i):
        for step in range(ROUNDS):
            k = 1 + (i + step) % 3
            np.testing.assert_allclose(SHARED_GRAD[k](V), slope(k), rtol=1e-4)
            np.testing.assert_allclose(sw.grad(SHARED[k])(V), slope(k), rtol=1e-4)
            own = wave(k if step % 2 else 1 + i)
            wanted = slope(k if step % 2 else 1 + i)
            np.testing.assert_allclose(transformed(own, i + step), wanted, rtol=1e-4)
        return True

    assert all(together(work))


def test_threads_do_not_see_each_others_context():
    def work(i):
        for step in range(40):
            with sw.enable_x64(i % 2 == 0):
                wide = np.dtype("float64" if i % 2 == 0 else "float32")
                assert jnp.zeros(3 + step % 8).dtype == wide
                assert sw.jit(lambda x: x * 2.5)(np.ones(2)).dtype == wide
            mapped = sw.vmap(lambda x: x + i, axis_name=f"axis{i}")(V)
            np.testing.assert_array_equal(mapped, V + np.float32(i))
        return True

    assert all(together(work))


@pytest.mark.sweep
def test_caches_are_emptied_while_they_are_used(monkeypatch):
    """The caches are always full, and are also cleared."""
    monkeypatch.setattr(bodies, "FINGERPRINTS", 2)
    monkeypatch.setattr(bodies, "BODIES_PER_FUNCTION", 1)
    monkeypatch.setattr("shardwise._src.running.eager.CACHE_SIZE", 2)
    monkeypatch.setattr("shardwise._src.jit.staging.CACHE_SIZE", 1)
    shared = sw.jit(lambda x: jnp.sin(x).sum())

    def work(i):
        for step in range(25):
            x = V[: 1 + (i + step) % 4]
            np.testing.assert_allclose(shared(x), np.sin(x).sum(), rtol=1e-5)
            total, _ = lax.scan(lambda c, a: (c + a * i, a), np.float32(0), x)
            np.testing.assert_allclose(total, x.sum() * i, rtol=1e-5)
            if i == 0 and step % 5 == 0:
                sw.clear_caches()
        return True

    assert all(together(work))


def test_threads_make_equal_types_specs_and_meshes_the_same_object():
    """An interned value is always one object, even while other threads keep evicting it."""
    devices = np.array(sw.devices()[:4])
    held = [None] * THREADS

    def work(i):
        for step in range(150):
            k = 1 + step % 5
            mesh = Mesh(devices.reshape(2, 2), (f"r{k}", f"c{k}"))
            place = NamedSharding(mesh, P(f"r{k}", None))
            t = sw.ShapeDtypeStruct((k + 1, 2), np.float32, sharding=place).aval
            sig = signature(t, place, True)
            assert NamedSharding(mesh, P(f"r{k}", None)) is place
            assert sw.ShapeDtypeStruct((k + 1, 2), "float32").aval is t
            assert signature(t, place, True) is sig and sig.type is t
            held[i] = (k, mesh, place, sig)
            for other in [h for h in held if h is not None and h[0] == k]:
                assert other[1:] == held[i][1:]
            if step % 10 == i:
                clear_registered()
                gc.collect(0)
        return True

    assert all(together(work))


@pytest.mark.sweep
def test_threads_clear_everything_while_others_compute():
    """Jit, grad, vmap and scan, eager ops and shardings; `clear_caches` runs in every thread."""
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    rows = np.arange(32, dtype=np.float32).reshape(8, 4)
    shared = sw.jit(lambda a, n: jnp.sin(a * n).sum(), static_argnums=1)

    def work(i):
        for step in range(3):
            n = 1 + (i + step) % 3
            x = sw.device_put(rows, NamedSharding(mesh, P("x" if step % 2 else None, "y")))
            np.testing.assert_allclose(shared(x, n), np.sin(rows * n).sum(), atol=1e-3)
            got = sw.grad(lambda a, n=n: shared(a, n))(x)
            np.testing.assert_allclose(got, n * np.cos(rows * n), atol=1e-4)
            with mesh, sw.numpy_rank_promotion("raise" if i % 2 else "allow"):
                np.testing.assert_array_equal(sw.vmap(lambda a: a * 2 + 1)(x), rows * 2 + 1)
            total, _ = lax.scan(lambda c, a, n=n: (c + a * n, None), jnp.zeros(4), x)
            np.testing.assert_allclose(total, rows.sum(0) * n)
            if step == i % 3:
                sw.clear_caches()
        return True

    assert all(together(work))


class Refused(Exception):
    pass


@pytest.mark.sweep
def test_an_exception_within_a_trace_is_that_threads_own():
    @sw.jit
    def shared(x, k):
        if THREAD.fails:
            raise Refused(THREAD.number)
        return jnp.sin(x) * k

    def work(i):
        THREAD.number = i
        for step in range(4):
            THREAD.fails = (i + step) % 2 == 0
            x = np.full(1 + (step * THREADS + i), 0.5, np.float32)  # a new shape: traced
            for call in (shared, sw.jit(lambda a, k: shared(a, k)), sw.vmap(shared, (0, None))):
                THREAD.fails = THREAD.fails and call is shared
                if THREAD.fails:
                    with pytest.raises(Refused) as caught:
                        call(x, 2.0)
                    assert caught.value.args == (i,)
                else:
                    np.testing.assert_allclose(call(x, 2.0), np.sin(0.5) * 2, rtol=1e-5)
            assert current().interpreter is EAGER
        return True

    assert all(together(work))


THREAD = threading.local()
FIRST_USE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
sys.setswitchinterval(1e-5)
import shardwise as sw
gate = threading.Barrier(8)
V = np.linspace(0.1, 1, 5, dtype=np.float32)

def work(i):
    gate.wait(timeout=60)
    out = [
        lambda: sw.numpy.linalg.norm(V),
        lambda: sw.random.normal(sw.random.key(0), (3,)).sum(),
        lambda: sw.nn.softmax(V).sum(),
        lambda: sw.lax.scan(lambda c, x: (c + x, x), np.float32(0), V)[0],
        lambda: sw.grad(lambda a: (a * a).sum())(V).sum(),
        lambda: sw.vmap(lambda a: a + 1)(V).sum(),
        lambda: sw.jit(lambda a: sw.numpy.sort(a)[::-1].cumsum())(V),
        lambda: sw.tree.leaves(sw.eval_shape(lambda a: {"a": a}, V))[0].shape[0],
    ]
    return [float(np.asarray(out[(i + k) % 8]()).sum()) for k in range(8)], i

with ThreadPoolExecutor(8) as pool:
    rows = list(pool.map(work, range(8), timeout=120))
first = {}
for values, i in rows:
    for k, value in enumerate(values):
        assert abs(first.setdefault((i + k) % 8, value) - value) < 1e-5
print("agreed", len(first))
"""


def test_the_first_use_of_everything_in_all_threads():
    """Lazily imported modules, clients, and empty tables."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"SHARDWISE_ENABLE_COMPILATION_CACHE": "0"},
    )
    assert done.stdout == "agreed 8\n", done.stderr[-3000:]


def test_room_is_made_by_many_at_once():
    table, weak = {}, weakref.WeakSet()

    def work(i):
        for n in range(5_000):
            make_room(table, 3)
            table[i, n] = n
            weak.add(thing := Level())
            assert n % 100 or thing in snapshot(weak)
        return True

    assert all(together(work))
    assert len(table) <= 3 + THREADS


class Level:
    pass


def _caches():
    """The sizes of all tables that live for the whole process and are keyed by functions."""
    gc.collect()  # only then do weak tables drop entries that are only in reference cycles
    return {
        "recipes": len(bodies._by_fingerprint),
        "body_caches": len(bodies.body_caches),
        "eager": len(EAGER.cache),
        "literals": len(stage._literals),
        "contexts": len(TraceKey._table),
    }


def test_functions_made_anew_find_what_is_cached():
    """Ten thousand functions with equal code and equal closed-over values are staged once."""
    traced = []

    def counted(k):
        def fun(c, a):
            return c + a * k, c

        return fun

    lax.scan(counted(2.0), np.float32(0), V)
    before = _caches()
    stage_body = bodies.staged

    def counting(*args, **kwargs):
        traced.append(1)
        return stage_body(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardwise._src.control.scan_api.staged", counting)
        for _ in range(10_000):
            lax.scan(counted(2.0), np.float32(0), V)
    assert len(traced) == 0
    assert _caches() == before


@pytest.mark.parametrize(
    "transform", everyday([sw.jit, sw.grad, sw.vmap, lambda f: sw.jit(sw.grad(f))], 1)
)
def test_transforms_of_functions_made_anew_leave_nothing(transform):
    x = np.ones(2, np.float32)[0] if transform is not sw.vmap else V

    def once():
        k = 2.0
        transform(lambda a: a * k)(x)

    for _ in range(20):
        once()
    before = _caches()
    for _ in range(300):
        once()
    assert _caches() == before


def test_levels_are_hashable_and_know_their_thread():
    found = []

    def fun(a):
        found.append(a.interpreter)
        return a

    worker = threading.Thread(target=lambda: sw.jit(fun)(V))
    worker.start()
    worker.join()
    sw.vmap(fun)(V)
    assert len(set(found)) == 2
    assert all(isinstance(level, Interpreter) for level in found)
    assert found[0].thread != found[1].thread == threading.get_ident()
