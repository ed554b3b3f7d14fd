"""Writes at arrays of indices in kernels for GPUs, run with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwise import numpy as jnp
from shardwise.kernels import (
    Block,
    atomic_add,
    atomic_cas,
    atomic_xchg,
    call,
    ds,
    load,
    program_id,
    store,
)
from tests.helpers.triton_numpy import kernel_of, triton_values
from tests.kernels.kernels import like, normal


def masked_sum(x: Any, y: Any, out: Any) -> None:
    at = program_id(0) * 64 + jnp.arange(64)
    mask = at < 100
    store(out, at, load(x, at, mask=mask) + load(y, at, mask=mask), mask=mask)


def elements(at: Any, x: Any, out: Any) -> None:
    out[...] = jnp.zeros(out.shape)
    rows = at[...]
    out[rows, (rows + 1) % 4] = x[...]
    out[0, 0] = out[rows, (rows + 1) % 4].sum()


def counted(at: Any, x: Any, out: Any) -> None:
    atomic_add(out, (at[...],), x[...], mask=at[...] != 3)


@pytest.mark.parametrize("name", ["masked sum", "elements", "counted"])
def test_values(name: str):
    x, y = normal(100), normal(100)
    at = np.array([2, 0, 7, 3, 5, 3, 2, 6], np.int32)
    f, args = {
        "masked sum": (call(masked_sum, like(100), grid=2, parallel=[0]), (x, y)),
        "elements": (call(elements, like(8, 4)), (np.arange(8, dtype=np.int32)[::-1], x[:8])),
        "counted": (
            call(
                lambda start, at, x, out: counted(at, x, out),
                like(8),
                grid=2,
                in_specs=[Block(), Block((4,), lambda i: (i,)), Block((4,), lambda i: (i,))],
                out_specs=Block(),
                aliases={0: 0},
                parallel=[0],
            ),
            (y[:8], at, x[:8]),
        ),
    }[name]
    wanted = np.asarray(f(*args))
    if name == "masked sum":
        np.testing.assert_array_equal(wanted, x + y)
    (found,) = triton_values(f, *args)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # of another order of sums


def exchanged(x: Any, out: Any, before: Any) -> None:
    before[ds(0, 4)] = atomic_xchg(out, ds(0, 4), x[...])
    for i in range(2):
        before[4 + i] = atomic_cas(out.at[2 * i], x[2], 7 + i)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_exchanges(dtype: str):
    start, x = np.arange(8).astype(dtype), np.array([5, 6, 7, 8], dtype)

    def body(start: Any, x: Any, out: Any, before: Any) -> None:
        before[...] = start[...]
        exchanged(x, out, before)

    results = (like(8, dtype=dtype), like(8, dtype=dtype))
    f = call(body, results, aliases={0: 0})
    for g in (f, call(body, results, aliases={0: 0}, check="memory")):
        out, before = g(start, x)
        assert out.tolist() == [5, 6, 8, 8, 4, 5, 6, 7]
        assert before.tolist() == [0, 1, 2, 3, 5, 7, 6, 7]
    text = kernel_of(f, start, x).text
    assert text.count("tt.atomic_rmw exch") == 1
    assert text.count("tt.atomic_cas") == 2


def test_atomic_updates_at_indices_return_nothing():
    def body(at: Any, start: Any, out: Any, before: Any) -> None:
        before[...] = atomic_add(out, (at[...],), 1.0)

    f = call(body, (like(8), like(8)), aliases={1: 0})
    at, start = np.arange(8, dtype=np.int32), np.zeros(8, np.float32)
    assert f(at, start)[1].tolist() == [0] * 8
    with pytest.raises(NotImplementedError) as caught:
        kernel_of(f, at, start)
    assert str(caught.value) == (
        "kernel body cannot be compiled for GPUs: an atomic access at an array of indices does not "
        "return the elements from before on GPUs. Do not use them, or access slices or single "
        "elements."
    )
