"""A lowered `shard_map` has exactly the collectives that are written, and the same ones as jax."""

import re
from collections import Counter

import numpy as np
import pytest

from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS
from tests.maps.test_shard_map import PROGRAMS, ROWS, W, X, mapped

KINDS = "all_reduce|all_gather|reduce_scatter|all_to_all|collective_permute|collective_broadcast"


def written(lib, f, *args):
    """How often each collective occurs in the lowered text."""
    text = lib.root.jit(f).lower(*args).as_text()
    return Counter(re.findall(rf"stablehlo\.({KINDS})\b", text))


def sharded_parameters(lib, w, x):
    def part(w, x):
        whole = lib.lax.all_gather(w, "x", tiled=True)
        return lib.lax.pmean(lib.np.mean(lib.np.tanh(x @ whole) ** 2), "x")

    return mapped(lib, part, (P("x"), P("x")), P(), axis_names={"x"})(w, x)


def two_layers(lib, w, x):
    """Tensor parallelism: columns first, then rows."""

    def part(w, x):
        hidden = lib.np.tanh(x @ w)
        return lib.lax.psum(hidden @ w.T, "y")

    return mapped(lib, part, (P(None, "y"), P("x")), P("x"))(w, x)


def scattered(lib, w, x):
    def part(w, x):
        part = lib.lax.psum_scatter(x @ w, "y", scatter_dimension=1, tiled=True)
        return lib.lax.all_gather(lib.np.sin(part), "y", axis=1, tiled=True)

    return mapped(lib, part, (P("y"), P("x", "y")), P("x", "y"))(w, x)


def exchanged(lib, w, x):
    def part(w, x):
        there = lib.lax.all_to_all(lib.np.sin(x @ w), "y", 0, 1, tiled=True)
        return lib.lax.all_to_all(there, "y", 1, 0, tiled=True)

    return mapped(lib, part, (P(), P("x")), P(("x", "y")))(w, x)


def passed_on(lib, w, x):
    ring = [(i, (i + 1) % 4) for i in range(4)]

    def part(w, x):
        def step(carry, _):
            return lib.lax.ppermute(lib.np.sin(carry), "x", ring), None

        return lib.lax.scan(step, x @ w, None, length=3)[0]

    return mapped(lib, part, (P(), ROWS), ROWS)(w, x)


def largest(lib, w, x):
    def part(w, x):
        y = x @ w
        return lib.lax.psum(lib.np.exp(y - lib.lax.pmax(lib.lax.stop_gradient(y), "x")), "x")

    return mapped(lib, part, (P(), P("x")), P())(w, x)


MORE = {
    sharded_parameters: {"all_gather": 1, "all_reduce": 1},
    two_layers: {"all_reduce": 1},
    scattered: {"reduce_scatter": 1, "all_gather": 1},
    exchanged: {"all_to_all": 2},
    passed_on: {"collective_permute": 1},
    largest: {"all_reduce": 2},
}


def slopes(lib, f, by):
    def total(*args):
        return sum([lib.np.sum(lib.np.sin(y)) for y in lib.root.tree.leaves(f(lib, *args))])

    return lib.root.grad(total, by)


BIG = np.ones((16, 8), np.float32), np.ones((16, 16), np.float32)


@pytest.mark.parametrize("f", MORE)
def test_as_written(f):
    assert written(OURS, lambda *args: f(OURS, *args), *BIG) == MORE[f]


@pytest.mark.parametrize("by", everyday([None, 0, 1, (0, 1)], 2))
@pytest.mark.parametrize("f", [*PROGRAMS, *MORE])
def test_as_in_jax(f, by):
    args = BIG if f in MORE else (X, W)
    ours, theirs = [
        written(lib, (lambda *a, lib=lib: f(lib, *a)) if by is None else slopes(lib, f, by), *args)
        for lib in (OURS, JAX)
    ]
    assert ours == theirs


def test_gradients_of_sharded_parameters_are_scattered():
    found = written(OURS, slopes(OURS, sharded_parameters, 0), *BIG)
    assert found["reduce_scatter"] == 1 and found["all_gather"] == 1
