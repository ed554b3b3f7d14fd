"""Functions that are re-created with equal code: which traces are found, and which are new."""

from __future__ import annotations

import dataclasses
import functools
import math
import types

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core import fingerprints
from shardwise._src.jit import trace_cache
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.helpers.beside_jax import MESH
from tests.helpers.everyday import everyday
from tests.helpers.jitted import Called, V, same

pytestmark = pytest.mark.usefixtures("nothing_known")

SCALE = 2.0
SIZES = [1.0, 2.0]
OF_NUMPY = (np.float32(2), np.dtype("int8"))
settings = types.ModuleType("settings")
settings.scale = 2.0


def helper(x):
    return jnp.sin(x) * SCALE


def test_functions_of_equal_code_are_staged_once(traces):
    def run(k, xs=V):
        return sw.jit(lambda x: jnp.cos(x) * k)(xs)

    for _ in range(3):
        same(run(2.0), np.asarray(jnp.cos(V)) * 2)
    assert len(traces) == 1
    same(run(-0.0), np.asarray(jnp.cos(V)) * -0.0)
    assert np.signbit(np.asarray(run(-0.0))[0]) and not np.signbit(np.asarray(run(0.0))[0])
    assert run(2).dtype == run(True).dtype == np.float32
    for _ in range(2):
        assert np.isnan(np.asarray(run(math.nan))).all()
    assert len(traces) == 6
    run(2.0, V[:2])
    assert len(traces) == 7


def over(k):
    return lambda x, y: x + y * k


@pytest.mark.parametrize(
    "make",
    everyday(
        [
            lambda: sw.grad(lambda x: helper(x).sum()),
            lambda: sw.value_and_grad(lambda x, y=(1, 2.0): helper(x).sum() * y[1]),
            lambda: sw.vmap(helper),
            lambda: sw.vmap(functools.partial(over(2), y=1.0)),
            lambda: sw.jacfwd(helper),
            lambda: sw.hessian(lambda x: helper(x).sum()),
            lambda: sw.checkpoint(helper),
            lambda: functools.partial(over(3.0), 2.0),
            lambda: sw.jit(sw.grad(sw.jit(lambda x: helper(x).sum()))),
            lambda: lambda x: sw.lax.scan(lambda c, y: (c + helper(y), c), x[0], x)[1],
            lambda: lambda x: sum(x * s for s in SIZES) + settings.scale,
            lambda: sw.jit(sw.jit(helper, out_shardings=NamedSharding(MESH, PartitionSpec()))),
            lambda: lambda x, s=slice(2), t=OF_NUMPY: x[s] * t[0],
        ],
        2,
    ),
)
def test_transforms_made_anew_are_staged_once(traces, make):
    first = sw.jit(make())(V)
    count = len(traces)
    for _ in range(2):
        again = sw.jit(make())(V)
        sw.tree.map(same, again, first)
    assert len(traces) == count
    outer = sw.grad(lambda x: sw.tree.leaves(sw.jit(make())(x))[0].sum())
    outer(V)
    count = len(traces)
    outer(V)
    assert len(traces) == count


def test_what_changes_is_seen(traces, monkeypatch):
    """All values that a function reads are compared each time a function is made."""
    table = np.ones(3, np.float32)
    names = {"a": [1.0]}
    k = 1.0

    def inner(x, n=2.0):
        return x * n

    def run():
        def f(x):
            y = inner(x) + k + settings.scale * SCALE + sum(SIZES) + names["a"][0]
            return helper(y) + table.sum() + getattr(inner, "more", 0)

        return sw.jit(f)(V)

    def wanted():
        n = inner.__defaults__[0]
        y = V * n + k + settings.scale * SCALE + sum(SIZES) + names["a"][0]
        return np.asarray(jnp.sin(y)) * SCALE + table.sum() + getattr(inner, "more", 0)

    def check():
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(run()), wanted(), 1e-5)

    check()
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    check()
    monkeypatch.setattr(settings, "scale", 4.0)
    check()
    monkeypatch.setitem(globals(), "SIZES", [5.0, 2.0])
    check()
    names["a"][0] = 2.0
    check()
    table[1] = 7
    check()
    k = 2.0
    check()
    inner.__defaults__ = (3.0,)
    check()
    inner.more = 1
    check()
    assert len(traces) == 9
    monkeypatch.setitem(globals(), "sum", lambda xs: 10.0)  # shadows the builtin
    check()
    assert len(traces) == 10


def test_what_is_not_known_is_staged_again(traces, monkeypatch):
    """If state may change that cannot be inspected, a new function is traced again."""
    import random as drawn
    import time

    from shardwise.numpy import load

    array, one = jnp.ones(4), Called(2.0)
    called = sw.custom_jvp(lambda x: x)
    called.defjvp(lambda p, t: (p[0], t[0]))
    rng = np.random.default_rng(0)
    alias = np.random
    seen = []

    class Local:
        k = 2.0

    def counted(x):
        seen.append(1)
        return x

    def importing(x):
        from math import pi

        return x * pi

    def printing(x):
        print(end="")
        return x

    def setting(x):
        global SIZES
        SIZES = SIZES
        return x

    def with_cell():
        n = 0

        def f(x):
            nonlocal n
            n += 1
            return x * n

        return f

    makers = [
        lambda: lambda x: x + array,
        lambda: lambda x: x * one.k,
        lambda: lambda x: one(x),
        lambda: lambda x: x * Local.k,
        lambda: lambda x: called(x),
        lambda: one.method,
        lambda: lambda x: x * drawn.random(),
        lambda: lambda x: x * rng.random(),
        lambda: lambda x: x * np.random.rand(),
        lambda: lambda x: x * alias.rand(),
        lambda: lambda x: x * sw.config.values().get("a", 1) if x.ndim > 1 else x,
        lambda: lambda x: x + jnp.load("x") if x.ndim > 1 else x,
        lambda: lambda x: x + load("x") if x.ndim > 1 else x,
        lambda: lambda x: x * time.time(),
        lambda: lambda x: x * len(vars(one)),
        lambda: lambda x: (lambda m: x * m.pi)(math),
        lambda: lambda x: x * len(globals()),
        lambda: lambda x: importing(x),
        lambda: lambda x: printing(x),
        lambda: lambda x: setting(x),
        lambda: with_cell(),
        lambda: lambda x: Unset(x) if x.ndim > 1 else x,  # noqa: F821
    ]
    for number, make in enumerate(makers):
        assert fingerprints.fingerprint_of(make()) is None, number
        for _ in range(2):
            del traces[:]
            sw.jit(make())(V)
            assert traces, number
    for make in (lambda: lambda x: counted(x), lambda: sw.grad(lambda x: counted(x).sum())):
        assert sw.jit(make())(V) is not sw.jit(make())(V)
    assert len(seen) == 4


class Point:
    def __init__(self, x):
        self.x = x

    def scaled(self):
        return self.x * SCALE


sw.tree_util.register_pytree_node(Point, lambda p: ((p.x,), None), lambda _, x: Point(*x))


@dataclasses.dataclass(frozen=True)
class Config:
    k: float

    def apply(self, x):
        return x * self.k * SCALE


def test_arguments_with_code_of_their_own(monkeypatch):
    def run():
        return [
            sw.jit(lambda p: p.scaled())(Point(V)),
            sw.jit(lambda p: p[0].scaled())([Point(V)]),
            sw.jit(lambda x, c: c.apply(x), static_argnums=1)(V, Config(1.0)),
            sw.jit(lambda x, c: c(x), static_argnums=1)(V, scaled),
            sw.jit(lambda x, c=Config(1.0): c.apply(x))(V),
        ]

    def scaled(x):
        return x * SCALE

    for y in run():
        same(y, V * 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    for y in run():
        same(y, V * 3)


def test_what_inner_functions_were_staged_to_before(monkeypatch):
    """A jitted or scanned function keeps its first trace; its callers must not hide a newer one."""

    def plain(x):
        return x * SCALE

    jitted = sw.jit(lambda x: x + SCALE)

    def step(c, x):
        return c + x * SCALE, c

    def first():
        return sw.jit(lambda x: sw.jit(plain)(x) + jitted(x))(V)

    def second():
        return sw.jit(lambda x: sw.lax.scan(step, x[0], x)[0])(V)

    same(first(), V * 2 + V + 2)
    same(second(), V.sum() * 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    for _ in range(2):
        same(first(), V * 2 + V + 2)  # as in JAX
        same(second(), V.sum() * 2)
    jitted.clear_cache()
    sw.jit(plain).clear_cache()
    for _ in range(2):
        same(first(), V * 3 + V + 3)
    sw.clear_caches()
    same(second(), V.sum() * 3)


def test_equal_functions_are_told_apart():
    """Two functions that do the same are distinct if code checks which one it has."""

    def made():
        return lambda x: x

    one, two = made(), made()
    bound = [functools.partial(one), functools.partial(one)]
    rates, order = {one: 2.0, two: 3.0}, [two, one]
    for f, p, k in ((one, bound[0], 2.0), (two, bound[1], 3.0)):
        for _ in range(2):
            same(sw.jit(lambda x: x * rates[f])(V), V * k)  # noqa: B023
            same(sw.jit(lambda x: x * order.index(f))(V), V * (3 - k))  # noqa: B023
            same(sw.jit(lambda x: x if f is one else -x)(V), V if f is one else -V)  # noqa: B023
            same(sw.jit(lambda x: x * bound.index(p))(V), V * (k - 2))  # noqa: B023
    other = fingerprints.fingerprint_of(lambda x: one(one(x)))
    assert other is not None and other != fingerprints.fingerprint_of(lambda x: one(two(x)))


def test_containers_that_hold_themselves_or_much():
    loop: list = [2.0]
    loop.append(loop)
    table: dict = {"k": 3.0}
    table["self"] = table
    deep: list = [1.0]
    for _ in range(40):
        deep = [deep, deep]
    for _ in range(2):
        same(sw.jit(lambda x: x * loop[0])(V), V * 2)
        same(sw.jit(lambda x: x * table["k"])(V), V * 3)
        same(sw.jit(lambda x: x * len(deep))(V), V * 2)
    many = [[float(n)] for n in range(fingerprints.ENTRIES)]
    few = many[: fingerprints.ENTRIES // 4]
    assert fingerprints.fingerprint_of(lambda x: x * many[0][0]) is None
    assert fingerprints.fingerprint_of(lambda x: x * few[0][0]) is not None


def test_globals_of_other_functions_are_no_recipe(monkeypatch):
    def run():
        return sw.jit(lambda x: x * helper.__globals__["SIZES"][0])(V)

    same(run(), V)
    monkeypatch.setitem(globals(), "SIZES", [4.0])
    same(run(), V * 4)


def test_defaults_are_not_taken_for_attributes():
    def run(*, by_name):
        def f(x, *, k=2.0):
            return x * k

        if not by_name:
            f.__kwdefaults__ = None
            f.k = 2.0
        return sw.jit(f)(V)

    same(run(by_name=True), V * 2)
    with pytest.raises(TypeError):
        run(by_name=False)


def test_a_trace_that_changes_what_it_reads_is_not_kept(traces):
    calls = []

    def run():
        def f(x):
            calls.append(len(calls))
            return x + len(calls)

        return sw.jit(f)(V)

    for n in range(1, 4):
        same(run(), V + n)
    assert len(traces) == 3
    for _ in range(2):  # the state equals that before the first trace, not that after it
        calls.clear()
        same(run(), V + 1)
        assert calls == [0]


def test_calls_of_the_host_reach_the_objects_that_they_hold():
    def run():
        log = []
        sw.jit(lambda x: sw.debug.callback(lambda v: log.append(float(v)), x[1]) or x)(V)
        sw.effects_barrier()
        return log

    assert run() == run() == [1.0]


def test_rules_of_users_are_those_of_each():
    def run(k):
        state = [k]

        @sw.custom_jvp
        def f(x):
            return x

        f.defjvp(lambda p, t: (p[0], t[0] * state[0]))
        jitted = sw.jit(lambda x: f(x))
        jitted(V)
        state[0] += 1
        return sw.grad(lambda x: jitted(x).sum())(V)

    for k in (1.0, 1.0, 5.0):
        same(run(k), np.full(4, k + 1))


def test_functions_that_call_themselves(traces):
    def run(n):
        def power(x, m):
            return x * power(x, m - 1) if m else 1.0

        return sw.jit(lambda x: power(x, n))(V)

    for _ in range(3):
        same(run(3), V**3)
    same(run(2), V**2)
    assert len(traces) == 2


def test_names_options_and_contexts_count(traces):
    def run(name="f", **options):
        f = lambda x: x * 2  # noqa: E731
        f.__name__ = name
        return sw.jit(f, **options).lower(V).as_text().split("@")[1].split(" ")[0]

    assert run() == run() == "jit_f" and run("g") == "jit_g"
    assert traces == ["f", "g"]
    run(keep_unused=True)
    with sw.enable_x64(True):
        run()
    assert traces == ["f", "g", "f", "f"]


def test_clearing():
    def make():
        return sw.jit(lambda x: x + 1)

    def count():
        return sum(len(s.traces) for s in trace_cache._cache_groups.values())

    make()(V)
    assert count() == 1 and make()._cache_size() == 0
    make().clear_cache()
    assert count() == 0
    make()(V)
    f = make()
    f(V)
    assert f._cache_size() == 1 == count()
    sw.clear_caches()
    assert f._cache_size() == 0 == count()


def test_shelves_are_bounded(monkeypatch):
    monkeypatch.setattr(trace_cache, "CACHE_GROUPS", 3)
    for n in range(6):
        same(sw.jit(lambda x: x + n)(V), V + n)  # noqa: B023
    assert len(trace_cache._cache_groups) <= 3
    monkeypatch.setattr(trace_cache, "CACHE_GROUPS", 100)
    monkeypatch.setattr(trace_cache, "EQUATIONS", 20)
    for n in range(6):
        same(
            sw.jit(lambda x: functools.reduce(lambda y, _: y + n, range(8), x))(V),  # noqa: B023
            V + 8 * n,
        )
    assert sum(s.size for s in trace_cache._cache_groups.values()) <= 20


def test_large_constants_are_not_held():
    def run():
        return sw.jit(lambda x: x.sum() + np.ones(100_000, np.float32))(V)

    same(run(), np.full(100_000, 7))
    assert not any(s.traces for s in trace_cache._cache_groups.values())


def test_other_arguments_of_functions_made_anew(traces):
    def run(*args, **kwargs):
        return sw.jit(lambda x, y=1, **more: (x + y, more), static_argnames="y")(*args, **kwargs)

    device = sw.device_put(V, sw.devices()[1])
    for _ in range(2):
        same(run(V)[0], V + 1)
        same(run(jnp.asarray(V))[0], V + 1)
        assert run(device)[0].devices() == {sw.devices()[1]}
        same(run(x=V, y=2)[0], V + 2)
        same(run(V, b=V, a={"c": 1.0})[1]["b"], V)
        same(run(2.0)[0], 3.0)
    assert len(traces) == 4
    with pytest.raises(RuntimeError) as caught:
        gone = sw.device_put(V)
        gone.delete()
        run(gone)
    assert "deleted" in str(caught.value)
