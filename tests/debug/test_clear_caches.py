"""In-memory caches: clearing, bounds, why a call misses, the source of a program."""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Iterator

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.compiling import module_cache
from shardwise._src.jit import cache_miss_explain, staging, trace_cache
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler import modules
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH
from tests.helpers.errors import message

X = np.ones((8, 4), np.float32)


pytestmark = pytest.mark.usefixtures("flags_restored")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages logged since the last call, without locations and times."""
    lines = [r.getMessage() for r in caplog.records if r.name == "shardwise.jit"]
    caplog.clear()
    lines = [re.sub(r" \(\S+:\d+\)", "", line) for line in lines]
    return [re.sub(r" in [\d.]+ ms", "", line) for line in lines]


# ------------------------------------------------------------------------------- clearing, bounds


def test_clear_caches():
    traces = []

    @sw.jit
    def f(a):
        traces.append(1)
        return jnp.sin(a) * 2

    kept = f.lower(X).compile()
    before = np.asarray(f(X)), np.asarray(jnp.cos(jnp.asarray(X)))
    assert EAGER.cache and module_cache._modules and f._cache and f._cache_size()
    sw.clear_caches()
    assert not (EAGER.cache or module_cache._modules or f._cache or f._cache_size())
    np.testing.assert_array_equal(np.asarray(kept(X)), before[0])
    np.testing.assert_array_equal(np.asarray(f(X)), before[0])
    np.testing.assert_array_equal(np.asarray(jnp.cos(jnp.asarray(X))), before[1])
    assert len(traces) == 2


def test_clear_caches_frees_what_functions_closed_over():
    held = jnp.arange(10.0) + 1
    f = sw.jit(lambda a: a + held)
    f(1.0)
    exe = next(iter(f._cache.values()))
    assert sum(1 for x in gc.get_referrers(held) if isinstance(x, tuple | list))
    sw.clear_caches()
    del exe
    gc.collect()
    assert not [x for x in gc.get_referrers(held) if isinstance(x, tuple | list)]


def test_functions_that_are_made_again_leave_nothing_behind():
    def step(scale):
        return sw.jit(lambda a: jnp.sin(a) * scale)(X)

    step(2.0)
    gc.collect()
    tables = trace_cache._alive, trace_cache._by_function, trace_cache._cache_groups
    functions = [len(table) for table in tables]
    sizes = len(module_cache._modules), len(EAGER.cache)
    for _ in range(50):
        step(2.0)
        sw.grad(lambda a: step_sum(a))(1.0)
    gc.collect()
    assert len(trace_cache._alive) <= functions[0] + 1  # `step_sum`
    assert len(trace_cache._by_function) == functions[1]
    assert len(trace_cache._cache_groups) <= functions[2] + 1
    assert len(module_cache._modules) <= sizes[0] + 4 and len(EAGER.cache) <= sizes[1] + 4


@sw.jit
def step_sum(a):
    return (a * 3).sum()


def test_the_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(staging, "CACHE_SIZE", 3)
    monkeypatch.setattr(module_cache, "CACHE_SIZE", 4)
    f = sw.jit(lambda a: a + 1)
    for n in range(1, 8):
        f(np.ones(n, np.float32))
    assert f._cache_size() <= 3 and len(f._cache) <= 4  # two of the keys are for calls with arrays
    assert len(module_cache._modules) >= 4
    sw.clear_caches()
    for n in range(1, 8):
        f(np.ones(n, np.float32))
    assert len(module_cache._modules) <= 4
    np.testing.assert_array_equal(np.asarray(f(np.ones(2, np.float32))), [2, 2])


# --------------------------------------------------------------------------------- why it missed


@pytest.fixture
def explained(monkeypatch) -> Iterator[None]:
    """Cache misses are explained, and no function is known beforehand."""
    cache_miss_explain._seen.clear()
    monkeypatch.setattr(trace_cache, "_by_function", {})
    monkeypatch.setattr(trace_cache, "_cache_groups", {})
    with sw.explain_cache_misses(True):
        yield


FIRST = "jit of f: cache miss; the function has not been called before."
ONLY = "jit of f: cache miss; differs from the only cached call:\n  "


def test_a_first_call_and_a_hit(explained, caplog):
    f = sw.jit(named_f)
    f(X)
    f(X)
    assert messages(caplog) == [FIRST]


def named_f(x, n=2, *, mode="a"):
    return x["a"] if isinstance(x, dict) else x * n


named_f.__name__ = named_f.__qualname__ = "f"
ON_X = NamedSharding(MESH, P("x"))
ONE = "SingleDeviceSharding(device=CpuDevice(id=0))"


def arrays(shape=(8, 4), dtype="float32"):
    return sw.device_put(np.ones(shape, dtype))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ((arrays,), (lambda: arrays((8, 5)),), "x has shape (8, 5), not (8, 4)"),
        ((arrays,), (lambda: arrays(dtype="int32"),), "x has dtype int32, not float32"),
        ((lambda: np.float32(2),), (2.0,), "x is weakly typed (from a Python scalar)"),
        ((2.0,), (lambda: np.float32(2),), "x is not weakly typed (from a Python scalar)"),
        ((arrays,), (X,), f"x is on the host, not on {ONE}"),
        ((arrays,), (lambda: sw.device_put(X, sw.devices()[0]),), "x is committed to its device"),
        ((lambda: sw.device_put(X, sw.devices()[0]),), (arrays,), "x is not committed"),
        (
            (lambda: sw.device_put(X, sw.devices()[0]),),
            (lambda: sw.device_put(X, ON_X),),
            f"x is on {ON_X}, not on {ONE}",
        ),
        ((X, 3), (X, 4), "static argument n is 4, not 3"),
        ((X,), (X, 4), "static argument n is given: 4"),
        ((X, 3), (X,), "static argument n is not given; it was 3"),
        ((X, 3), (X, 3.0), "static argument n is 3.0, not 3"),
        (
            ({"a": X},),
            ({"a": X, "b": 1},),
            "the arguments have the pytree structure (({'a': *, 'b': *},), {}), not (({'a': *},), "
            "{})",
        ),
        (
            ({"a": X, "b": [X]},),
            ({"a": X, "b": [X[1:]]},),
            "x['b'][0] has shape (7, 4), not (8, 4)",
        ),
    ],
)
def test_what_differs(explained, caplog, first, second, why):
    f = sw.jit(named_f, static_argnames=("n", "mode"))
    for call in (first, second):
        f(*[a() if callable(a) else a for a in call])
    assert messages(caplog) == [FIRST, ONLY + why]


class Odd:
    def __repr__(self):
        return "Odd()"


def test_static_values_that_look_alike(explained, caplog):
    f = sw.jit(lambda a, how: a, static_argnums=1)
    f(X, Odd())
    f(X, Odd())
    assert messages(caplog)[1].split("\n  ")[1] == (
        "static argument how is Odd(), which does not equal the earlier one of type Odd"
    )


def test_the_context(explained, caplog):
    f = sw.jit(named_f)
    f(X)
    with sw.enable_x64(True):
        f(X)
    with sw.numpy_rank_promotion("raise"):
        f(X)
    assert [m.split("\n  ")[1:] for m in messages(caplog)] == [
        [],
        ["the flag enable_x64 is True, not False"],
        ["the flag numpy_rank_promotion is 'raise', not 'allow'"],
    ]


def test_the_nearest_call_is_shown_and_another_tree_is_far(explained, caplog):
    f = sw.jit(named_f)
    f({"a": X})
    f([X.astype(np.int32)[:2]])
    f({"a": X[:4]})
    with sw.enable_x64(True):
        f({"a": X[:4].astype(np.float16)})
    last = messages(caplog)[-1]
    assert last == (
        "jit of f: cache miss; differs from the closest of 3 cached calls:\n"
        "  the flag enable_x64 is True, not False\n"
        "  x['a'] has dtype float16, not float32"
    )


def test_a_function_that_is_made_each_time(explained, caplog):
    for _ in range(2):
        other = object()  # it has no fingerprint
        sw.jit(lambda a: a + 1 if other else a)(X)  # noqa: B023
    assert messages(caplog) == [
        "jit of <lambda>: cache miss; the function has not been called before.",
        "jit of <lambda>: cache miss; this function object has not been called before, but another "
        "one with the same code has. It is created again each time: jit it once, outside of the "
        "loop or function that creates it.",
    ]


CLEARED = (
    "jit of f: cache miss; it has been called before, but its cached programs have been cleared."
)
TRACED = (
    "jit of f: cache miss; it has been traced before, under a transform or by `lower`, but not "
    "compiled."
)


def test_what_was_cleared_is_not_said_to_be_new(explained, caplog):
    f = sw.jit(named_f)
    for clear in (lambda: None, sw.clear_caches, f.clear_cache):
        clear()
        f(X)
        f(X)
    assert messages(caplog) == [FIRST, CLEARED, CLEARED]
    sw.clear_caches()
    sw.grad(lambda a: f(a).sum())(X)
    assert messages(caplog) == [CLEARED]


def test_what_is_only_traced_is_not_said_to_be_new(explained, caplog):
    f, g = sw.jit(named_f), sw.jit(named_f, keep_unused=True)
    sw.vmap(f)(X)
    f(X[0])
    assert messages(caplog) == [FIRST, TRACED]
    g.lower(X)
    g(X)
    assert messages(caplog) == [TRACED]


def test_meshes_that_look_alike(explained, caplog):
    f = sw.jit(named_f)
    one, other = (sw.sharding.Mesh(np.array(sw.devices()[i : i + 2]), ("x",)) for i in (0, 2))
    for mesh in (one, other):
        with mesh:
            f(X)
    assert messages(caplog)[1] == ONLY + "the mesh in scope is Mesh('x': 2), over other devices"


def test_the_place_of_the_function_is_named(explained, caplog):
    @sw.jit
    @functools.wraps(named_f)
    def outer(x):
        return x

    outer(X)
    line = named_f.__code__.co_firstlineno
    assert caplog.records[0].getMessage().startswith(f"jit of f ({__file__}:{line}): cache miss")
    sw.jit(functools.partial(named_f, n=3))(X)
    assert messages(caplog)[-1].endswith("the function has not been called before.")


def test_calls_under_transforms(explained, caplog):
    f = sw.jit(named_f)
    for n in (8, 8, 4):
        sw.grad(lambda a: f(a).sum())(X[:n])
    assert messages(caplog) == [FIRST, ONLY + "x has shape (4, 4), not (8, 4)"]


def test_nothing_is_logged_by_default(caplog):
    sw.jit(lambda a: a + 3)(X)
    assert messages(caplog) == []


# ------------------------------------------------------------------------ where programs are from


def test_log_compiles(caplog):
    sw.clear_caches()

    def f(a):
        return jnp.sin(a) - 3

    with sw.log_compiles(True):
        sw.jit(f)(X)
        sw.jit(f, keep_unused=True)(X)
        x = jnp.asarray(X)
        messages_so_far = messages(caplog)
        jnp.tanh(x)
    assert messages_so_far[:4] == ["traced f", "compiled f", "traced f", "found f in memory"]
    assert messages(caplog) == ["compiled tanh"]


# ------------------------------------------------------------------------------ compiler options


def test_an_unknown_option_is_named():
    f = sw.jit(lambda a: a * 7, compiler_options={"xla_cpu_enable_fast_mth": True})
    assert message(backend.RuntimeFailure, f, X) == (
        "compiler_options: No such compile option: 'xla_cpu_enable_fast_mth' in jaxlib "
        f"{backend.JAXLIB_VERSION}. Did you mean 'xla_cpu_enable_fast_math'?"
    )
    with pytest.raises(backend.RuntimeFailure) as caught:
        sw.jit(lambda a: a * 7, compiler_options={"zzz": True})(X)
    assert str(caught.value) == (
        f"compiler_options: No such compile option: 'zzz' in jaxlib {backend.JAXLIB_VERSION}."
    )


def test_options_are_those_of_the_outermost_program():
    f = sw.jit(lambda a: a * 7, compiler_options={"xla_cpu_enable_fast_math": True})
    assert sw.eval_shape(f, X).shape == sw.vmap(sw.vmap(f))(X[None, None])[0, 0].shape == X.shape
    sw.jvp(f, (X,), (X,))
    for traced in (sw.jit(lambda a: f(a)), sw.grad(lambda a: f(a).sum()), sw.make_jaxpr(f)):
        assert message(ValueError, traced, X).startswith(
            "jit of <lambda> has compiler_options, and is called in "
        )


def test_a_value_that_an_option_cannot_have():
    f = sw.jit(lambda a: a * 7, compiler_options={"xla_cpu_enable_fast_math": "quick"})
    assert message(backend.RuntimeFailure, f, X) == (
        "compiler_options: 'quick' is not a valid value of 'xla_cpu_enable_fast_math'; it requires "
        "a value of type bool."
    )
    with pytest.raises(TypeError) as error:
        sw.jit(named_f, compiler_options={"xla_disable_hlo_passes": ["fusion"]})
    assert str(error.value) == (
        "jit of f: compiler_options['xla_disable_hlo_passes'] must be a bool, an int, a float or a "
        "string; got ['fusion'] of type list."
    )
    with pytest.raises(TypeError) as error:
        sw.jit(named_f, compiler_options={1: True})  # pyright: ignore[reportArgumentType]
    assert str(error.value) == (
        "jit of f: compiler_options has the name 1; option names must be strings."
    )
    with pytest.raises(TypeError) as error:
        sw.jit(named_f, compiler_options=["xla_dump_to"])  # pyright: ignore[reportArgumentType]
    assert str(error.value) == (
        "jit of f: compiler_options must be a dict of XLA options by name; got ['xla_dump_to']."
    )


def test_values_that_are_equal_but_of_another_type_are_other_options():
    def run(value):
        options = {"xla_cpu_enable_fast_math": value}
        return sw.jit(lambda a: a * 7.5, compiler_options=options)(X)

    np.testing.assert_array_equal(np.asarray(run(True)), X * 7.5)
    with pytest.raises(backend.RuntimeFailure):
        run(1)  # XLA requires a bool


def test_options_of_a_compilation_go_before_those_of_the_function(monkeypatch):
    seen = []
    compile_options = modules.compile_options

    def spy(*args, overrides, **kwargs):
        seen.append(overrides)
        return compile_options(*args, overrides=overrides, **kwargs)

    monkeypatch.setattr(module_cache, "compile_options", spy)
    options = {"xla_cpu_enable_fast_math": True, "xla_backend_optimization_level": 1}
    sw.jit(lambda a: a * 9, compiler_options=options)(X)
    assert seen == [options]
    lowered = sw.jit(lambda a: a * 9, compiler_options=options).lower(X)
    other = lowered.compile(compiler_options={"xla_backend_optimization_level": 2})
    assert seen[1] == options | {"xla_backend_optimization_level": 2}
    np.testing.assert_array_equal(np.asarray(other(X)), X * 9)
    with pytest.raises(TypeError) as caught:
        lowered.compile(["xla_dump_to"])  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == (
        "jit of <lambda>: compiler_options must be a dict of XLA options by name; got "
        "['xla_dump_to']."
    )


def test_a_context_of_the_users_own(explained, caplog):
    mode = sw.make_user_context("rows")
    seen = []

    @sw.jit
    def f(x):
        seen.append(mode.value)
        return x + 1

    f(1.0)
    with mode("columns"):
        f(1.0)
        with mode("rows"):
            f(1.0)
    with mode("columns"):
        f(1.0)
    assert seen == ["rows", "columns"] and mode.value == "rows"
    assert messages(caplog)[1].split("\n  ")[1:] == ["a user context is 'columns', not 'rows'"]
    with pytest.raises(TypeError) as error, mode(["rows"]):
        pass
    assert str(error.value) == (
        "the value of a user context must be hashable, because it is part of cache keys; got "
        "['rows'] of type list. Use a tuple or a frozen dataclass."
    )
    mode.set_global("blocks")
    try:
        f(1.0)
        assert mode.get_global() == mode.value == seen[-1] == "blocks" and len(seen) == 3
        with mode("rows"):
            assert mode.get_global() == "blocks" != mode.value
    finally:
        mode.set_global("rows")
