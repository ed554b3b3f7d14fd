"""A matrix below the size of the option is gathered, and LAPACK computes the function."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import P
from shardwise._src.base.config import sharded_linalg_min_size_bytes
from shardwise.numpy import linalg
from shardwise.sharding import AxisType
from tests.helpers.everyday import everyday

X = np.random.default_rng(1).standard_normal((37, 37)).astype(np.float32)
A = X @ X.T / 37 + np.eye(37, dtype=np.float32)


def placed(kind: AxisType, *spec: str | None):
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    return sw.device_put(A, sw.NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("spec", everyday([("x",), (None, "y"), ("y", "x")], 1))
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_small_matrices_are_gathered(spec: tuple, kind: AxisType):
    def f(a):
        return linalg.cholesky(a), linalg.inv(a)

    with sharded_linalg_min_size_bytes(sharded_linalg_min_size_bytes.default):
        program = sw.jit(f).lower(placed(kind, *spec))
        found = sw.jit(f)(placed(kind, *spec))
    assert "shardwise_matrices" not in program.as_text()
    for x, wanted in zip(found, (np.linalg.cholesky(A), np.linalg.inv(A)), strict=True):
        np.testing.assert_allclose(x, wanted, rtol=2e-3, atol=1e-4)
        if kind is AxisType.Explicit:
            assert x.sharding.is_equivalent_to(placed(kind, *spec).sharding, 2)


def test_the_option_decides():
    f, a = sw.jit(linalg.cholesky), placed(AxisType.Auto, "x")
    for size, kept in ((A.nbytes, True), (A.nbytes + 1, False)):
        with sharded_linalg_min_size_bytes(size):
            assert ("shardwise_matrices" in f.lower(a).as_text()) == kept


def test_many_right_hand_sides_stay_divided():
    rows = sw.device_put(np.ones((8000, 37), np.float32), placed(AxisType.Auto, "x").sharding)
    with sharded_linalg_min_size_bytes(rows.nbytes):
        text = sw.jit(sw.vmap(linalg.solve, (None, 0))).lower(A, rows).as_text()
    assert text.count("getrs") == 1 and "getrf_ffi" in text
