"""Linear systems with one matrix, of which only the right-hand sides are sharded."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import P
from shardwise.numpy import linalg

A = np.array([[2, 1], [1, 3]], np.float32)
ROWS = np.random.default_rng(0).standard_normal((12, 2)).astype(np.float32)


def divided():
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(sw.sharding.AxisType.Auto,) * 2)
    return sw.device_put(ROWS, sw.NamedSharding(mesh, P("x")))


def test_many_systems_of_one_matrix():
    found = sw.jit(sw.vmap(linalg.solve, (None, 0)))(A, divided())
    np.testing.assert_allclose(found, np.linalg.solve(A, ROWS.T).T, rtol=1e-5)
