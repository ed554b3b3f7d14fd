"""`stateful_rng`: draws in order, alone, in jitted and mapped functions; equal to jax's."""

import jax
import jax.experimental.random
import numpy as np

import shardwise as sw
from shardwise import random
from shardwise.experimental.random import StatefulPRNG, stateful_rng
from tests.helpers.errors import message

F32 = np.float32


def drawn(rng):
    return [
        rng.uniform(),
        rng.random(3),
        rng.normal(np.array([1, 2], F32), 2.0, (3, 2)),
        rng.uniform(-1, np.array([1, 5], F32)),
        rng.integers(7),
        rng.integers(3, 9, (2, 2)),
        rng.normal(dtype="float16"),
        rng.spawn(2)[1].random(2),
    ]


def test_draws_are_those_of_jax():
    ours, theirs = stateful_rng(42), jax.experimental.random.stateful_rng(42)
    for got, wanted in zip(drawn(ours), drawn(theirs), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(
            np.asarray(got, F32),
            np.asarray(wanted, F32),
            rtol=1e-3 if got.dtype == "float16" else 3e-6,
        )
    keys = [
        np.asarray(lib.key_data(rng.key((2,))))
        for lib, rng in [(random, ours), (jax.random, theirs)]
    ]
    np.testing.assert_array_equal(*keys)
    assert str(stateful_rng(0, impl="rbg").key().dtype) == "key<rbg>"


def test_in_jitted_functions():
    rng, again = stateful_rng(3), stateful_rng(3)
    wanted = [float(again.uniform()) for _ in range(4)]
    assert float(rng.uniform()) == wanted[0]
    closed = sw.jit(rng.uniform)
    assert [float(closed()), float(closed())] == wanted[1:3]
    assert float(sw.jit(lambda r: r.uniform())(rng)) == wanted[3]
    inside = sw.jit(lambda seed: stateful_rng(seed).normal(size=(3,)))
    np.testing.assert_allclose(inside(5), stateful_rng(5).normal(size=(3,)), rtol=1e-6)


def test_under_vmap():
    x = np.arange(3, dtype=F32)
    got = sw.vmap(lambda r, x: x + r.uniform() + r.uniform())(stateful_rng(1).split(3), x)
    theirs = jax.experimental.random.stateful_rng(1).split(3)
    wanted = jax.vmap(lambda r, x: x + r.uniform() + r.uniform())(theirs, x)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_seeds_of_the_system_differ():
    assert float(stateful_rng().uniform()) != float(stateful_rng().uniform())
    assert message(TypeError, lambda: sw.jit(lambda: stateful_rng().uniform())()) == (
        "stateful_rng needs a seed inside transforms: a seed drawn at trace time would be the same "
        "in every call."
    )


def test_messages():
    assert message(ValueError, lambda: stateful_rng(0).split(2).uniform()) == (
        "a split StatefulPRNG contains several keys: use it under vmap, or `spawn` to get a list."
    )
    assert message(ValueError, lambda: StatefulPRNG(random.PRNGKey(0), sw.new_ref(0))) == (
        "StatefulPRNG takes a typed key; got an array of type u32[2]."
    )
