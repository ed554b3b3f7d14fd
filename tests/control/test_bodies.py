"""Control-flow bodies that are already cached are found by function, without a fingerprint."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise._src.control import bodies

X = np.float32([1, 2])


def turn(i, x):
    return x * 2


def double(x):
    return x * 2


def small(x):
    return x.sum() < 100


def add(carry, x):
    return carry + x, carry


CALLS = {
    "fori": lambda x: lax.fori_loop(0, 5, turn, x),
    "fori, unrolled": lambda x: lax.fori_loop(0, 4, turn, x, unroll=True),
    "fori, bounds of NumPy": lambda x: lax.fori_loop(np.int32(1), np.int32(3), turn, x),
    "while": lambda x: lax.while_loop(small, double, x),
    "scan": lambda x: lax.scan(add, x, np.ones((3, 2), "float32")),
    "cond": lambda x: lax.cond(True, double, abs, x),
    "switch": lambda x: lax.switch(1, [double, abs], x),
}


@pytest.mark.parametrize("start", [sw.device_put(X), X], ids=["array", "NumPy"])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_known_is_found_by_the_function(name, start, monkeypatch):
    first = CALLS[name](start)

    def recipe_of(fun, mutable):
        raise AssertionError(f"asks what {fun} does")

    monkeypatch.setattr(bodies, "fingerprint_of", recipe_of)
    again = CALLS[name](start)
    for a, b in zip(sw.tree.leaves(first), sw.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
