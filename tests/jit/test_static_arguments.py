"""Static arguments: how they are distinguished, and errors for those that cannot be keys."""

import math

import jax
import jax.core
import numpy as np
import pytest

import shardwise as sw
from tests.helpers.errors import message
from tests.helpers.jitted import V, counted


class Group:
    """Equal to all instances of its class with the same number."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Group) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


SAME = [(3, 3), ((1, "a"), (1, "a")), (Group(1), Group(1)), (len, len), (None, None)]
OTHER = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    ((1, 2), (1.0, 2)),
    ((0.0,), (-0.0,)),
    ((1, (2,)), (1, (2.0,))),
    (Group(1), Group(2)),
    ("1", 1),
    (1j, complex(-0.0, 1)),
    ((), None),
    (np.int32(1), 1),
]


@pytest.mark.parametrize("a, b", SAME)
@pytest.mark.parametrize("how", ["number", "name"])
def test_equal_ones_find_the_same_program(a, b, how):
    fun, traces = counted(lambda x, s: x)
    f = sw.jit(fun, static_argnums=1) if how == "number" else sw.jit(fun, static_argnames="s")
    for s in (a, b, a):
        f(V, s) if how == "number" else f(V, s=s)
    assert len(traces) == 1


@pytest.mark.parametrize("a, b", OTHER)
def test_others_do_not(a, b):
    fun, traces = counted(lambda x, s: x)
    f = sw.jit(fun, static_argnums=1)
    for s in (a, b, a, b):
        f(V, s)
    assert len(traces) == 2
    sw.jit(lambda x: [f(x, s) for s in (a, b)])(V)
    assert len(traces) == 2  # nor under a transform, where both are found in the cache


def test_static_arguments_are_compared_by_value():
    fun, traces = counted(lambda a, n, mode="up": a * n if mode == "up" else a - n)
    f = sw.jit(fun, static_argnums=1, static_argnames="mode")
    assert float(f(2.0, 3)) == 6 and float(f(5.0, 3)) == 15 and len(traces) == 1
    assert float(f(2.0, 4)) == 8 and len(traces) == 2
    assert float(f(2.0, 3, mode="down")) == -1 and len(traces) == 3
    assert float(f(2.0, n=3)) == 6
    assert float(f(2.0, 3.0)) == 6 and len(traces) == 5  # equal, but of another type


def test_negative_and_several_static_numbers():
    f = sw.jit(lambda op, a, b, n: op(a, b) * n, static_argnums=(0, -1))
    assert float(f(lambda a, b: a - b, 3.0, 1.0, 5)) == 10


def test_values_of_equal_tuples_are_those_given():
    f = sw.jit(lambda x, s: x * s[0] ** 1 + math.copysign(1, s[1]), static_argnums=1)
    assert f(np.int32(2), (3, 0.0)).dtype == np.float32
    assert [float(f(1.0, (3, z))) for z in (0.0, -0.0, 0.0)] == [4, 2, 4]


def test_numbers_may_be_of_numpy():
    numbers = {"static_argnums": np.int64(1), "donate_argnums": (np.int32(0),)}
    f = sw.jit(lambda x, n, *, y: x * n + y, **numbers)
    np.testing.assert_array_equal(f(V, 3, y=1), V * 3 + 1)


class Hash:
    def __init__(self, result):
        self.result = result

    def __hash__(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __repr__(self):
        return "Hash()"


@pytest.mark.parametrize(
    "value, what",
    [
        ([1], "[1] of type list, which cannot be hashed."),
        (V, "array([0., 1., 2., 3.], dtype=float32) of type ndarray, which cannot be hashed."),
        (
            (1, ("a", [2])),
            "(1, ('a', [2])) of type tuple, which cannot be hashed, as it holds [2] of type list.",
        ),
        (
            set(range(50)),
            "{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16... of type set, "
            "which cannot be hashed.",
        ),
        (
            Hash(RuntimeError("not yet")),
            "Hash() of type Hash, which cannot be hashed (RuntimeError: not yet).",
        ),
        (
            Hash("a"),
            "Hash() of type Hash, which cannot be hashed (TypeError: __hash__ method should "
            "return an integer).",
        ),
    ],
)
@pytest.mark.parametrize("call", ["call", "lower", "staged", "eval_shape"])
def test_what_cannot_be_hashed(value, what, call):
    def f(x, s):
        return x

    jitted = sw.jit(f, static_argnums=1)
    calls = {
        "call": jitted,
        "lower": jitted.lower,
        "eval_shape": jitted.eval_shape,
        "staged": lambda x, s: sw.jit(lambda x: jitted(x, s))(x),
    }
    assert message(ValueError, calls[call], V, value) == (
        f"jit of f: static argument s is {what} Static arguments are part of the cache key: use a "
        "hashable type such as a tuple, or do not mark it static."
    )


class Odd:
    """Instances have equal hashes, but cannot be compared."""

    def __init__(self, answer):
        self.answer = answer

    def __hash__(self):
        return 7

    def __eq__(self, other):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __repr__(self):
        return "Odd()"


@pytest.mark.parametrize(
    "answer, what",
    [
        (RuntimeError("no"), "RuntimeError (no)"),
        (TypeError("no"), "TypeError (no)"),
        (AttributeError("no"), "AttributeError (no)"),
        (
            np.array([True, False]),
            "ValueError (The truth value of an array with more than one element "
            "is ambiguous. Use a.any() or a.all())",
        ),
    ],
)
def test_what_cannot_be_compared(answer, what):
    def f(x, s):
        return x

    jitted = sw.jit(f, static_argnames="s")
    first = Odd(answer)
    jitted(V, s=first)
    jitted(V, s=first)
    for call in (jitted, jitted.lower, sw.jit(lambda x, s: jitted(x, s=s), static_argnames="s")):
        assert message(ValueError, call, V, s=Odd(answer)) == (
            f"jit of f: static argument s is Odd() of type Odd, whose `==` raised {what}. It is "
            "compared with those of earlier calls: make `__eq__` return a bool for any two values."
        )


def test_one_that_equals_nothing_is_traced_each_time_and_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("shardwise._src.jit.staging.CACHE_SIZE", 5)
    fun, traces = counted(lambda x, s: x)
    f = sw.jit(fun, static_argnums=1)
    for _ in range(12):
        f(V, Odd(False))
    assert len(traces) == 12 and f._cache_size() <= 5 and len(f._cache) <= 6
    f(V, math.nan)
    before = len(traces)
    f(V, math.nan)  # the same object
    assert len(traces) == before


def test_names_of_arguments_that_have_no_parameter():
    f = sw.jit(lambda *xs, **more: xs[0], static_argnums=1, static_argnames="mode")
    for args, named, name in (((V, [1]), {}, "xs[1]"), ((V, 2), {"mode": []}, "more['mode']")):
        with pytest.raises(ValueError, match="static argument") as caught:
            f(*args, **named)
        assert str(caught.value).startswith(f"jit of <lambda>: static argument {name} is [")


def test_jit_of_jit_has_static_arguments_of_its_own():
    inner = sw.jit(lambda x, n: x * n, static_argnums=1)
    inner(V, 2)
    with pytest.raises(TypeError):
        inner(V, "two").block_until_ready()
    outer = sw.jit(inner, static_argnums=1)
    np.testing.assert_array_equal(outer(V, 3), V * 3)
    with pytest.raises(ValueError, match="static argument n is"):
        outer(V, [])


# -- cached calls --

KNOWN_CALLS = [
    lambda f, a, b: f(a, 2, b),
    lambda f, a, b: f(a, 2, y=b),
    lambda f, a, b: f(y=b, n=2, x=a),
    lambda f, a, b: f(n=2, x=a, y=b),
    lambda f, a, b: f(a, y=b, n=2),
    lambda f, a, b: f(a, True, b),
    lambda f, a, b: f(a, 2.0, b),
    lambda f, a, b: f(a, -0.0, b),
    lambda f, a, b: f(a, 0.0, b),
    lambda f, a, b: f(a, (2, "n"), b),
    lambda f, a, b: f(b, 2, a),
]


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "n"}], ids=str)
def test_known_calls_with_static_arguments_are_one_look(options, monkeypatch):
    def f(x, n, y):
        return x - 2 * y, float(n[0] if type(n) is tuple else 1 / n if n else repr(n) == "0.0")

    ours = sw.jit(f, **options)
    a, b = np.float32([1, 2]), np.float32([5, 7])
    first = [call(ours, sw.device_put(a), sw.device_put(b)) for call in KNOWN_CALLS]
    monkeypatch.setattr(type(ours), "_call", None)
    again = sw.jit(f, **options)
    for call, kept in zip(KNOWN_CALLS, first, strict=True):
        for g in (ours, again):
            out = call(g, sw.device_put(a), sw.device_put(b))
            for u, v, w in zip(out, kept, call(f, a, b), strict=True):
                np.testing.assert_array_equal(u, v)
                np.testing.assert_array_equal(u, w)


def test_static_arguments_beside_trees_and_scalars():
    def f(tree, n, s):
        return tree["a"] * n + s

    g = sw.jit(f, static_argnums=1)
    x = sw.device_put(np.float32([1, 2]))
    for n in (2, 3, 2, 3):
        for s in (1.0, 2.0):
            np.testing.assert_array_equal(g({"a": x}, n, s), np.float32([1, 2]) * n + s)
            np.testing.assert_array_equal(g({"a": x}, n, x), np.float32([1, 2]) * n + [1, 2])


def test_numbers_and_names_may_differ():
    """If both are given, each applies to its own kind of argument, as in jax."""

    def traced(x, y):
        return [isinstance(z, lib.core.Tracer) for z in (x, y)]

    cases = [
        ({"static_argnums": 1, "static_argnames": ()}, (2, "y"), {}),
        ({"static_argnums": 1, "static_argnames": ()}, (1,), {"y": 2}),
        ({"static_argnums": (), "static_argnames": "y"}, (2, 3), {}),
        ({"static_argnums": (), "static_argnames": "y"}, (1,), {"y": "s"}),
        ({"static_argnums": (1,), "static_argnames": "x"}, (2, "s"), {}),
        ({"static_argnums": (1,), "static_argnames": "x"}, (), {"x": "s", "y": 3}),
        ({"static_argnums": 1}, (2,), {"y": "s"}),
        ({"static_argnames": "y"}, (2, "s"), {}),
    ]
    for options, args, kwargs in cases:
        found = []
        for lib in (sw, jax):
            outs = lib.jit(traced, **options)(*args, **kwargs)
            found.append([bool(x) for x in outs])
        assert found[0] == found[1], options
