"""`jit`: kinds of arguments and results; arguments that no result depends on."""

from __future__ import annotations

import dataclasses
from collections import namedtuple

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime.pytree import register_dataclass
from tests.helpers.beside_jax import ours, sharding
from tests.helpers.jitted import ONE, V, W, X

# -- trees and kinds of values --


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class State:
    weights: object
    step: object
    name: str = "state"


register_dataclass(State, ["weights", "step"], ["name"])


def test_containers_of_all_kinds():
    f = sw.jit(lambda p, s, d: (Point(p.y, p.x), State(s.weights * 2, s.step + 1, s.name), d))
    p, s, d = f(Point(X, 1), State(X, 3, "mine"), {"a": (None, [X])})
    assert type(p) is Point and int(p.x) == 1
    assert type(s) is State and s.name == "mine" and int(s.step) == 4
    assert d["a"][0] is None
    np.testing.assert_array_equal(np.asarray(s.weights), X * 2)


def test_other_static_fields_make_another_trace():
    traces = []
    f = sw.jit(lambda s: traces.append(s.name) or s.weights)
    for name in ("a", "b", "a"):
        f(State(X, 0, name))
    assert traces == ["a", "b"]


def test_named_arguments_defaults_and_varargs():
    f = sw.jit(lambda a, b=2.0, *rest, c, **more: a * b + sum(rest) + c + more.get("d", 0))
    assert float(f(1.0, c=3.0)) == 5.0
    assert float(f(1.0, 3.0, 4.0, 5.0, c=0.0, d=1.0)) == 13.0
    assert float(f(a=1.0, b=5.0, c=1.0)) == 6.0


def test_kinds_of_host_values():
    f = sw.jit(lambda a: a + 1)
    for value, dtype, weak in (
        (1, np.int32, True),
        (1.0, np.float32, True),
        (True, np.int32, True),
        (1j, np.complex64, True),
        (np.float32(1), np.float32, False),
        (np.float64(1), np.float32, False),
        (np.arange(3), np.int32, False),
        (np.int8(1), np.int8, False),
        (np.ones((), np.float16), np.float16, False),
    ):
        y, z = f(value), jax.jit(lambda a: a + 1)(value)
        assert (y.dtype, y.weak_type) == (dtype, weak) == (z.dtype, z.weak_type), value


def test_results_of_all_kinds():
    y = sw.jit(lambda a: (1, 2.5, True, None, np.arange(3), np.float32(2), a))(X)
    assert [getattr(v, "weak_type", None) for v in y] == [True, True, False, None] + [False] * 3
    assert y[3] is None and np.asarray(y[4]).tolist() == [0, 1, 2]


def test_no_arguments_and_no_results():
    assert np.asarray(sw.jit(lambda: jnp.arange(3))()).tolist() == [0, 1, 2]
    assert sw.jit(lambda a: None)(X) is None
    assert sw.jit(lambda a: ())(ours(X, "x")) == ()


# -- unused arguments --


def test_unused_and_forwarded_arguments():
    f = sw.jit(lambda a, b, c: (b, b))
    one, two = f(ours(X, "x"), ours(W, None, "y"), 1.0)
    assert one.sharding == two.sharding == sharding(None, "y")
    np.testing.assert_array_equal(np.asarray(one), W)


def test_unused_arguments_stay_where_they_are():
    elsewhere = sw.device_put(X, sw.devices()[3])
    f = sw.jit(lambda a, b, c: (c * 2, c))
    y, z = f(elsewhere, X, ours(X, "x"))
    assert y.sharding == z.sharding == sharding("x")
    text = f.lower(elsewhere, X, ours(X, "x")).as_text()
    assert "%arg0" in text and "%arg1" not in text
    theirs_text = jax.jit(lambda a, b, c: (c * 2, c)).lower(X, X, X).as_text()
    assert "%arg1" not in theirs_text
    compiled = f.lower(elsewhere, X, ours(X, "x")).compile()
    assert compiled.input_shardings == ((None, None, sharding("x")), {})
    np.testing.assert_array_equal(np.asarray(compiled(X, X, X)[0]), X * 2)
    with pytest.raises(TypeError):
        compiled(X[:1], X, X)  # the argument types must still match


def test_unused_arguments_may_be_gone_and_are_not_given_up():
    gone, kept = jnp.ones(4), jnp.ones(4)
    gone.delete()
    f = sw.jit(lambda a, b: b * 2, donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(f(gone, V)), V * 2)
    f(kept, V)
    assert not kept.is_deleted()


def test_all_arguments_may_be_unused_or_all_kept():
    f = sw.jit(lambda a, b: 1.0)
    assert float(f(ours(X, "x"), sw.device_put(X, sw.devices()[3]))) == 1.0
    kept = sw.jit(lambda a, b: b * 2, keep_unused=True)
    assert kept.lower(X, X).as_text().count("%arg0") == 1
    assert kept(ours(X, "x"), X).sharding == sharding()
    with pytest.raises(ValueError):
        kept(ours(X, "x"), sw.device_put(X, sw.devices()[3]))
    assert kept.lower(X, X).compile().input_shardings == ((ONE, ONE), {})


def test_arguments_that_only_effects_or_inner_programs_use_are_used():
    f = sw.jit(lambda a, b: sw.jit(lambda c, d: c)(a, b))
    np.testing.assert_array_equal(np.asarray(f(X, V)), X)
    g = sw.jit(lambda a, b: sw.lax.scan(lambda c, x: (c + b, x), a, V)[0])
    np.testing.assert_array_equal(np.asarray(g(1.0, 2.0)), 9.0)
