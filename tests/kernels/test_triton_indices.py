"""Writes at arrays of indices in kernels for GPUs, run with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwise import numpy as jnp
from shardwise.kernels import Block, atomic_add, call, load, program_id, store
from tests.helpers.triton_numpy import triton_values
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
