"""The same function, jitted again: when its trace is found, and when not."""

from __future__ import annotations

import functools
import gc
import math
import weakref

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.jit import trace_cache
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.helpers.beside_jax import MESH
from tests.helpers.jitted import Called, V, same
from tests.helpers.threads import at_once

pytestmark = pytest.mark.usefixtures("nothing_known")

SCALE = 2.0


def test_the_same_function_is_staged_once(traces):
    other = object()  # has no fingerprint

    def f(x, n=1):
        return x + n if other else x

    for _ in range(3):
        same(sw.jit(f)(V), V + 1)
        assert sw.jit(f).eval_shape(V).shape == (4,)
    assert traces == ["f"]
    assert sw.jit(f) is not sw.jit(f) and sw.jit(f)._cache_size() == 1
    sw.jit(f).clear_cache()
    same(sw.jit(f)(V), V + 1)
    sw.clear_caches()
    same(sw.jit(f)(V), V + 1)
    assert traces == ["f"] * 3


def test_attributes_are_those_of_each():
    def f(x):
        """Doc."""
        return x

    f.mark = 1
    one, two = sw.jit(f), sw.jit(f)
    one.mark = 2
    assert (two.mark, f.mark, two.__doc__, two.__wrapped__ is f) == (1, 1, "Doc.", True)
    assert {*vars(two)} == {"mark", "__wrapped__", *functools.WRAPPER_ASSIGNMENTS}
    assert repr(sw.jit(one)) == "<jitted function f>"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({}, {"keep_unused": True}),
        ({}, {"inline": True}),
        ({}, {"donate_argnums": 0}),
        ({"static_argnums": 1}, {"static_argnames": "m"}),
        ({}, {"out_shardings": NamedSharding(MESH, PartitionSpec("x"))}),
        (
            {"in_shardings": NamedSharding(MESH, PartitionSpec("x"))},
            {"in_shardings": NamedSharding(MESH, PartitionSpec())},
        ),
        ({}, {"compiler_options": {"xla_cpu_enable_fast_math": True}}),
        (
            {"compiler_options": {"xla_cpu_enable_fast_math": False}},
            {"compiler_options": {"xla_cpu_enable_fast_math": True}},
        ),
        ({}, {"device": sw.devices()[1]}),
    ],
)
def test_other_options_are_another_function(one, two):
    other = object()

    def f(x, n=1, m=2):
        return x + n * m if other else x

    for options in (one, two, one, two):
        same(sw.jit(f, **options)(jnp.ones(8)), np.full(8, 3))
    tables = [sw.jit(f, **options)._cache for options in (one, two, one, two)]
    assert tables[0] is tables[2] and tables[1] is tables[3] and tables[0] is not tables[1]


def test_options_that_are_equal_are_found_whatever_they_are_written_in(traces):
    def f(x):
        return x["a"] + 1

    def options():
        return {"in_shardings": ({"a": NamedSharding(MESH, PartitionSpec("x"))},)}

    x = {"a": np.ones(8, np.float32)}
    for _ in range(3):
        found = sw.jit(f, **options())(x)
        assert found.sharding.spec == PartitionSpec("x")
    given = options()
    sw.jit(f, **given)
    given["in_shardings"][0]["a"] = NamedSharding(MESH, PartitionSpec())
    assert sw.jit(f, **given)(x).sharding.spec == PartitionSpec()
    assert sw.jit(f, **options())(x).sharding.spec == PartitionSpec("x")
    assert traces == ["f", "f"]
    assert sw.jit(f, static_argnums=())._cache is sw.jit(f)._cache


def test_static_arguments_stay_exact(traces):
    def f(x, n):
        return x / n if n else x + (1 if math.copysign(1, n) > 0 else 2)

    def run(n):
        return sw.jit(f, static_argnums=1)(V, n)

    for _ in range(2):
        same(run(2), V / 2)
        same(run(2.0), V / 2)
        same(run(True), V)
        same(run(0.0), V + 1)
        same(run(-0.0), V + 2)
    assert len(traces) == 5
    assert run(2).dtype == np.float32


def test_a_global_is_read_when_a_function_is_staged(traces, monkeypatch):
    """As with a single object made by `jit`, and as in JAX."""

    def f(x):
        return x * SCALE

    same(sw.jit(f)(V), V * 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    same(sw.jit(f)(V), V * 2)
    same(sw.jit(f)(V[:2]), V[:2] * 3)
    f.__code__ = (lambda x: x - SCALE).__code__  # as done by tools that reload modules
    same(sw.jit(f)(V), V - 3)
    assert traces == ["f"] * 3


def test_nothing_is_kept_alive():
    class Big:
        pass

    def made(kind):
        held = Big()

        def f(x, n=held):
            return x + (1 if held else 2)

        @sw.custom_jvp
        def g(x):
            return f(x)

        g.defjvp(lambda p, t: (f(*p), t[0] * len([held])))
        loop = functools.partial(lambda x, f: f(x), f=f)
        runs = {
            "jit": lambda: sw.jit(f)(V),
            "static": lambda: sw.jit(lambda x, n: x, static_argnums=1)(V, f),
            "own static": lambda: sw.jit(f, static_argnums=1)(V, f),
            "grad": lambda: sw.jit(sw.grad(lambda x: f(x).sum()))(V),
            "rule": lambda: sw.jit(g)(V),
            "in a rule": lambda: sw.jit(held.__dict__.setdefault("f", lambda x: g(x) + f(x)))(V),
            "partial": lambda: sw.jit(loop)(V),
            "trace": lambda: sw.jit(f).lower(V),
            "callback": lambda: sw.jit(h)(V),
            "nested": lambda: sw.jit(lambda x: sw.jit(f)(x))(V),
        }

        def h(x):
            sw.debug.callback(lambda v: h, x)
            return x

        runs[kind]()
        sw.effects_barrier()
        return weakref.ref(held)

    for kind in (
        "jit",
        "static",
        "own static",
        "grad",
        "rule",
        "in a rule",
        "partial",
        "trace",
        "callback",
        "nested",
    ):
        gone = made(kind)
        gc.collect()
        assert gone() is None, kind
    assert not trace_cache._by_function


def test_a_ref_that_a_function_uses_is_its_own(traces):
    ref = sw.new_ref(jnp.zeros(4))

    def f(x):
        ref[...] = ref[...] + x
        return x

    for n in range(1, 4):
        sw.jit(f)(V)
        same(ref[...], V * n)
    held = weakref.ref(f)
    del f
    gc.collect()
    assert held() is None


class Equal(Called):
    def __eq__(self, other):
        return isinstance(other, Equal) and self.k == other.k

    def __hash__(self):
        return hash(self.k)


class Unhashable(Called):
    __hash__ = None


class Slots:
    __slots__ = ()

    def __call__(self, x):
        return x * 2


def test_other_callables(traces):
    one = Called(2)
    for _ in range(2):
        same(sw.jit(one)(V), V * 2)
    assert len(traces) == 1
    same(sw.jit(Called(3))(V), V * 3)
    for k in (2, 3):  # each access makes a new method object: as in JAX, it sees the current values
        one.k = k
        same(sw.jit(one.method)(V), V * k)
    for made in (Equal(2), Unhashable(2)):
        for k in (2, 3):
            made.k = k
            same(sw.jit(made)(V), V * k)
    equal = Equal(4)
    del traces[:]
    for _ in range(2):
        same(sw.jit(equal)(V), V * 4)
        same(sw.jit(Slots())(V), V * 2)
    assert len(traces) == 3  # callables without weak references are staged each time


def test_threads_find_the_same():
    def f(x):
        return x + SCALE

    for y in at_once(lambda: sw.jit(f)(V), 8):
        same(y, V + 2)
    assert len(trace_cache._by_function) == 1


def test_the_table_is_bounded(monkeypatch):
    monkeypatch.setattr(trace_cache, "FUNCTIONS", 3)
    functions = [lambda x, n=n: x + n for n in range(6)]
    for n, f in enumerate(functions):
        same(sw.jit(f)(V), V + n)
    assert len(trace_cache._by_function) <= 3
    for n, f in enumerate(functions):
        same(sw.jit(f)(V), V + n)


def test_named_arguments_in_any_order(traces):
    f = sw.jit(lambda a, b, c, d: (a - b, c - d))
    a, b, c, d = (jnp.full(n, n * 1.0) for n in (3, 3, 4, 4))
    for _ in range(3):
        for pairs in ({"c": c, "b": b, "d": d}, {"d": d, "c": c, "b": b}, {"b": b, "c": c, "d": d}):
            for y in f(a, **pairs):
                same(y, np.zeros(y.shape))
        same(f(d=d, a=c, c=c, b=b[:1])[0], [1] * 4)
    assert len(traces) == 2


def test_scalars_beside_arrays(traces):
    def f(x, s, *, t=1):
        return {"y": x["a"] * s + t, "s": s}

    jitted = sw.jit(f)
    x = {"a": jnp.asarray(V)}
    for s in (2, 2, True, 2.5, 2.5, -0.0, 0.0, np.float32(2), np.int8(3), 1j, math.nan):
        for y in (jitted(x, s), jitted(x, s)):
            wanted = f({"a": V}, s)
            np.testing.assert_array_equal(np.asarray(y["y"]), np.asarray(wanted["y"], y["y"].dtype))
            assert np.signbit(np.asarray(y["s"]).real) == np.signbit(np.asarray(s).real)
            assert y["s"].weak_type == (not isinstance(s, bool | np.generic))
        y["s"].delete()  # the caller owns the result
    assert len(traces) == 6
    with pytest.raises(OverflowError):
        jitted(x, 2**40)
    with sw.enable_x64(True):
        same(jitted(x, 2)["y"], V * 2 + 1)


def test_donated_scalars_are_not_shared():
    f = sw.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        same(f(2.0), 3.0)
