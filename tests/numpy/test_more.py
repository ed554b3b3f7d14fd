"""Files, default types, other functions. `calls` has grids, sets, windows and polynomials."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import shardwise as sw
import shardwise.numpy as snp
from tests.numpy.calls import SETS

A, B, X = [SETS[name] for name in "abx"]


def test_default_types_follow_x64():
    assert [np.dtype(t) for t in (snp.int_, snp.uint, snp.float_, snp.complex_)] == [
        np.int32,
        np.uint32,
        np.float32,
        np.complex64,
    ]
    assert snp.int_ == snp.int32 and snp.bool == snp.bool_
    with sw.enable_x64(True):
        assert snp.zeros(1, snp.float_).dtype == np.float64
        assert snp.int_(3).dtype == np.int64
    assert snp.zeros(1, snp.float_).dtype == np.float32
    assert repr(snp.float_) == "<scalar type float32>"


def test_scalar_types_have_the_instances_of_numpys():
    assert isinstance(np.float32(1), snp.float32) and not isinstance(1.0, snp.float32)
    assert not isinstance(snp.float32(1), snp.float32)
    assert isinstance(np.int32(1), (str, snp.int_)) and not isinstance(np.int64(1), snp.int_)


def test_under_jit():
    x = snp.asarray(A)
    a = sw.jit(lambda x, y: snp.setdiff1d(x, y, size=2))(x, snp.asarray(B))
    assert a.tolist() == [1, 7]
    assert sw.jit(lambda x: snp.r_[0:2, x, 5])(x).tolist() == [0, 1, *A.tolist(), 5]
    slope = sw.grad(lambda p: snp.polyval(p, 2.0))(snp.asarray(X))
    assert slope.tolist() == [32, 16, 8, 4, 2, 1]
    np.testing.assert_allclose(
        sw.jit(lambda b: snp.kaiser(5, b))(2.5), np.kaiser(5, 2.5), rtol=1e-5
    )


def test_unwrap_by_an_odd_period_is_numpys():
    assert snp.unwrap(snp.asarray(A * 2), period=5).tolist() == np.unwrap(A * 2, period=5).tolist()


def test_s_and_index_exp():
    assert snp.s_[1:2, ...] == np.s_[1:2, ...]
    assert snp.index_exp[3] == (3,)
    assert {"s_", "sin", "fft"} <= {*dir(snp)}


def test_files(tmp_path):
    x = snp.arange(3.0)
    snp.save(tmp_path / "x.npy", x)
    again = snp.load(tmp_path / "x.npy")
    assert isinstance(again, sw.Array) and again.tolist() == x.tolist()
    snp.savez(tmp_path / "x.npz", x, b=x + 1)
    with snp.load(tmp_path / "x.npz") as held:
        assert held["arr_0"].tolist() == [0, 1, 2] and held["b"].tolist() == [1, 2, 3]


def test_from_dlpack_and_print_options():
    assert snp.from_dlpack(np.arange(3, dtype=np.int32)).tolist() == [0, 1, 2]
    assert snp.from_dlpack(jnp.arange(3)).tolist() == [0, 1, 2]
    with snp.printoptions(precision=2):
        assert snp.get_printoptions()["precision"] == 2
        assert str(snp.asarray([1.23456])) == "[1.23]"


def test_equal_elements_keep_their_order_where_the_largest_come_first():
    x = np.array([1, 2, 1, 2, 0, 2], np.int32)
    wanted = np.argsort(-x, kind="stable")
    np.testing.assert_array_equal(snp.argsort(x, descending=True), wanted)
