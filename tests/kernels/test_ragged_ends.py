"""Blocks that extend beyond the end of their arrays: derivatives, and blocks by elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.kernels import Block, Element, call
from tests.kernels.kernels import like, normal

ROWS = Block((8, 16), lambda i: (i, 0))
BODIES = {
    "log": lambda x, s: jnp.log(x) * s,
    "sqrt": lambda x, s: jnp.sqrt(x * s),
    "quotient": lambda x, s: x / x.sum(-1, keepdims=True) * s,
    "norm": lambda x, s: x / jnp.sqrt((x * x).mean(-1, keepdims=True)) * s,
}


@pytest.mark.parametrize("name", BODIES)
def test_derivatives_of_arguments_that_all_programs_share(name: str):
    f = BODIES[name]

    def body(x: Any, s: Any, out: Any) -> None:
        out[...] = f(x[...], s[...])

    launch = call(body, like(20, 16), grid=3, in_specs=[ROWS, Block()], out_specs=ROWS)
    x, s = abs(normal(20, 16)) + 1, abs(normal(16)) + 1
    for g in (launch, f):
        np.testing.assert_allclose(g(x, s), f(jnp.array(x), s), rtol=1e-5)
    found = sw.grad(lambda x, s: launch(x, s).sum(), argnums=(0, 1))(x, s)
    wanted = sw.grad(lambda x, s: f(x, s).sum(), argnums=(0, 1))(jnp.array(x), jnp.array(s))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [0, -2])
def test_blocks_by_elements_are_not_moved(offset: int):
    """Row i of the result is the sum of rows i + offset and i + offset + 2, where there are any."""

    def body(x: Any, out: Any) -> None:
        out[...] = x[0:8] + x[2:10]

    f = call(
        body,
        like(37, 16),
        grid=5,
        in_specs=[Block((Element(10), 16), lambda i: (8 * i + offset, 0))],
        out_specs=ROWS,
    )
    x = normal(37, 16)
    at = np.arange(37)[:, None] + offset + np.array([0, 2])
    inside = ((at >= 0) & (at < 37)).all(1)
    wanted = x[at.clip(0, 36)].sum(1)
    for g in (f, sw.jit(f)):
        np.testing.assert_array_equal(np.asarray(g(x))[inside], wanted[inside])
    counts = sw.grad(lambda x: (f(x) * inside[:, None]).sum())(x)
    np.testing.assert_array_equal(counts[:, 0], np.bincount(at[inside].ravel(), minlength=37))


def test_results_by_elements_are_dropped_beyond_the_end():
    def body(x: Any, out: Any) -> None:
        out[...] = x[...]

    out = Block((Element(8),), lambda i: (8 * i - 2,))
    f = call(body, like(13), grid=2, in_specs=[Block((8,), lambda i: (i,))], out_specs=out)
    x = normal(16)
    np.testing.assert_array_equal(f(x)[:13], x[2:15])


def test_blocks_by_elements_next_to_prefetched_arrays():
    def body(_: Any, x: Any, out: Any) -> None:
        out[...] = x[1:3]

    taken = Block((Element(4),), lambda i, _: 2 * i - 1)
    out = Block((2,), lambda i, _: i)
    f = call(body, like(8), grid=4, prefetch=1, in_specs=[taken], out_specs=out)
    x = normal(8)
    np.testing.assert_array_equal(f(np.zeros(3, np.int32), x), x)
