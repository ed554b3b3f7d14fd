"""Loops and branches of kernels for GPUs and TPUs: their values are those on CPU."""

import numpy as np
import pytest

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.kernels import Block, call, when
from tests.helpers.triton_numpy import triton_values
from tests.kernels.kernels import like
from tests.kernels.test_mosaic_values import any_block as any_block
from tests.kernels.test_mosaic_values import values as mosaic_values


def only_one_branch_writes(n, x, out):
    out[...] = x[...]
    lax.cond(n[0] > 3, lambda: None, lambda: out.set(x[...] * 2))
    lax.cond(n[1] > 3, lambda: None, lambda: out.set(x[...] * 4))
    when(n[1] > 3)(lambda: out.set(out[...] + 8))


def a_counter_after_its_loop(n, x, out):
    def step(state):
        i, total = state
        return i + 1, total + x[...] * i.astype(np.float32)

    for start in (2, 7):  # which is beyond the end
        i, total = lax.while_loop(lambda s: s[0] < n[1], step, (start, x[...]))
        out[...] = total + i.astype(np.float32)
        x = out


def a_bound_that_the_loop_changes(n, x, out):
    def step(state):
        i, high, total = state
        return i + 1, high - 1, total + 1

    _, _, total = lax.while_loop(lambda s: s[0] < s[1], step, (0, n[1], x[...]))
    out[...] = total


def counters_of_known_loops(n, x, out):
    first = lax.fori_loop(3, 6, lambda i, y: y + i.astype(np.float32), x[...])
    second = lax.fori_loop(0, 4, lambda i, y: y * 2 + i.astype(np.float32), first, unroll=True)
    i, third = lax.fori_loop(0, 3, lambda _, s: (s[0] + 1, s[1] + s[0]), (n[0], second))
    out[...] = third + i.astype(np.float32)


def one_of_three_branches(n, x, out):
    branches = [lambda y: y, lambda y: y * 2, lambda y: y - 1]
    out[...] = x[...]
    for i in range(-1, 4):
        out[...] = x[...] + lax.switch(n[0] - 2 + i, branches, out[...])


BODIES = [
    only_one_branch_writes,
    a_counter_after_its_loop,
    a_bound_that_the_loop_changes,
    counters_of_known_loops,
    one_of_three_branches,
]


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.usefixtures("any_block")
def test_values(body, target):
    f = call(body, like(8, 128), prefetch=1, in_specs=[Block()], name="loops")
    n, x = np.array([2, 5], np.int32), np.arange(1024, dtype=np.float32).reshape(8, 128) / 64
    (found,) = (triton_values if target == "gpu" else mosaic_values)(f, n, x)
    np.testing.assert_allclose(found, jnp.asarray(f(n, x)), rtol=1e-6)
