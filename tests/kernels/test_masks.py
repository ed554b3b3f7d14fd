"""Loads and stores with masks: of elements outside of a ref, and at repeated indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.kernels import Block, atomic_add, call, ds, load, program_id, store
from tests.kernels.kernels import like, normal

SIZE = 10


def positions(offset: int) -> Any:
    return program_id(0) * 8 + offset + jnp.arange(8)


def loads(stride: int, offset: int) -> Any:
    n = 8 // stride

    def body(x: Any, out: Any) -> None:
        at = program_id(0) * 8 + offset + stride * jnp.arange(n)
        inside = (at >= 0) & (at < SIZE)
        out[...] = load(x, ds(at[0], n, stride), mask=inside, other=-1.0)

    return call(body, like(2, n), grid=2, out_specs=Block((None, n), lambda i: (i, 0)))


def stores(offset: int, adds: bool = False) -> Any:
    def body(x: Any, out: Any) -> None:
        at = positions(offset)
        inside = (at >= 0) & (at < SIZE)
        if adds:
            atomic_add(out, ds(at[0], 8), x[...], mask=inside)
        else:
            store(out, ds(at[0], 8), x[...], mask=inside)

    in_specs = Block((8,), lambda i: (i,))
    return call(body, like(SIZE), grid=2, in_specs=in_specs, out_specs=Block())


@pytest.mark.parametrize(("stride", "offset"), [(1, 0), (1, -3), (1, 9), (2, -1)])
def test_loads_beyond_the_end(stride: int, offset: int):
    x = normal(SIZE)
    at = np.arange(2)[:, None] * 8 + offset + stride * np.arange(8 // stride)
    inside = (at >= 0) & (at < SIZE)
    wanted = np.where(inside, x[at.clip(0, SIZE - 1)], -1)
    f = loads(stride, offset)
    np.testing.assert_array_equal(f(x), wanted)
    counts = np.bincount(at[inside], minlength=SIZE)
    np.testing.assert_array_equal(sw.grad(lambda x: f(x).sum())(x), counts)
    tangents = sw.jvp(f, (x,), (x,))[1]
    np.testing.assert_array_equal(tangents, np.where(inside, wanted, 0))
    np.testing.assert_array_equal(sw.vmap(f)(np.stack([x, 2 * x]))[0], wanted)


@pytest.mark.parametrize("check", [True, "memory"])
@pytest.mark.parametrize("offset", [0, -6])
def test_stores_beyond_the_end(offset: int, check: Any):
    x = np.arange(1, 17, dtype=np.float32)
    at = np.arange(16) + offset
    inside = (at >= 0) & (at < SIZE)
    wanted = np.zeros(SIZE)
    wanted[at[inside]] = x[inside]
    f = stores(offset)
    np.testing.assert_array_equal(f(x), wanted)
    np.testing.assert_array_equal(sw.grad(lambda x: f(x).sum())(x), inside)
    np.testing.assert_array_equal(stores(offset, adds=True)(x), wanted)

    def copied(x: Any, out: Any) -> None:  # of ten elements, in two blocks of eight
        at = positions(0)
        y = load(x, ds(at[0], 8), mask=at < SIZE)
        store(out, ds(at[0], 8), y, mask=at < SIZE)

    checked = call(copied, like(SIZE), grid=2, check=check)
    np.testing.assert_array_equal(checked(x[:SIZE]), x[:SIZE])


@pytest.mark.parametrize("mask", [[True, False], [False, True], [False, False]])
def test_masked_stores_at_repeated_indices(mask: list[bool]):
    def body(at: Any, x: Any, taken: Any, out: Any, rows: Any) -> None:
        out[...] = jnp.zeros(out.shape)
        store(out, at[...], x[...], mask=taken[...])
        rows[...] = jnp.zeros(rows.shape)
        store(rows, (at[...], ds(1, 2)), x[...][:, None], mask=jnp.arange(2)[:, None] == mask[1])

    at, x = np.array([2, 2]), np.array([5.0, 7.0], np.float32)
    out, rows = call(body, (like(4), like(4, 3)))(at, x, np.array(mask))
    wanted = np.zeros(4)
    wanted[at[mask]] = x[mask]
    np.testing.assert_array_equal(out, wanted)
    assert rows[2].tolist() == [0, x[int(mask[1])], x[int(mask[1])]]


def test_values_must_fit():
    def run(body: Any) -> None:
        call(body, like(4, dtype=np.int32))(np.ones(4, np.float32))

    text = (
        "Ref{i32[4]} cannot hold f32[4]: its dtype cannot change. Cast the value with "
        "`.astype(ref.dtype)`."
    )
    for body in (
        lambda x, out: store(out, ..., x[...]),
        lambda x, out: atomic_add(out, ..., x[...]),
        lambda x, out: out.at[ds(0, 4)].set(x[...]),
    ):
        with pytest.raises(TypeError) as caught:
            run(body)
        assert str(caught.value) == text
