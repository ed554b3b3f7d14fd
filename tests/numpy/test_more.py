"""Files, default types, other functions. `calls` has grids, sets, windows and polynomials."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.errors import message
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


def test_masks_are_not_ignored():
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    np.testing.assert_array_equal(snp.array(masked), [1, 2])
    for f in (sw.jit(snp.asarray), snp.asarray, snp.sin, sw.vmap(snp.sin)):
        with pytest.raises(ValueError, match="masked arrays"):
            f(masked)


@pytest.mark.parametrize("k", [-(2**33), -2, 0, 3, 2**33])
def test_diagonals_that_are_far_away_or_traced(k):
    np.testing.assert_array_equal(snp.eye(3, 4, k), np.eye(3, 4, k))
    np.testing.assert_array_equal(snp.eye(3, 4, np.int64(k)), np.eye(3, 4, k))
    np.testing.assert_array_equal(snp.tri(3, 4, k), np.tri(3, 4, k))
    if abs(k) < 2**31:
        for name in ("eye", "tri"):
            f = sw.jit(lambda k, name=name: getattr(snp, name)(3, 4, k))
            np.testing.assert_array_equal(f(k), getattr(np, name)(3, 4, k))
        np.testing.assert_array_equal(snp.tri(3, 4, np.int32(k)), np.tri(3, 4, k))
    assert (
        message(ValueError, snp.eye, 3, k=1.0)
        == "eye: k must be an integer; got 1.0 of type float."
    )
    with pytest.raises(ValueError, match="integer scalar"):
        snp.eye(3, k=snp.ones(2))


def test_widths_of_trapezoids():
    y = np.arange(24.0).reshape(2, 3, 4) ** 2
    for shape, axis in [((3,), -1), ((2, 1), 1), ((1, 3, 4), 0), ((2, 2, 1), 1), ((), 0)]:
        dx = np.random.default_rng(1).normal(size=shape)
        np.testing.assert_allclose(
            snp.trapezoid(y, dx=dx, axis=axis), np.trapezoid(y, dx=dx, axis=axis), rtol=1e-4
        )


def test_what_numpy_does_with_rare_arguments():
    x = snp.arange(24).reshape(2, 3, 4)
    assert snp.size(x, (0, -1)) == 8 and snp.size(x, ()) == 1
    with pytest.raises(ValueError, match="distinct"):
        snp.size(x, (1, 1))
    assert float(snp.round(1.25, 400)) == 1.25
    wanted = np.pad(np.arange(7), (2, 3), "median", stat_length=3)
    np.testing.assert_array_equal(snp.pad(snp.arange(7), (2, 3), "median", stat_length=3), wanted)
    assert snp.corrcoef(np.ones((1, 3)), rowvar=False).shape == (3, 3)
    five = snp.arange(5)
    for mode, wanted in [(None, [0, 1, 2, 3, 7]), ("clip", [7, 1, 2, 3, 7])]:
        put = snp.put(five, np.array([-1, 9]), 7, mode=mode, inplace=False)
        np.testing.assert_array_equal(put, wanted)
    places = snp.ravel_multi_index((np.int8([0, 5]),) * 2, (2, 3), "ignore", dtype="int16")
    assert places.dtype == np.int16 and places.tolist() == [0, 20]
    for dtype in ("float32", "int8"):
        with pytest.raises(ValueError, match="dtype must be an integer type for all"):
            snp.ravel_multi_index(([0], [0]), (20, 30), "clip", dtype=dtype)
    for f in (snp.clip, lambda z: snp.clip(z, max=1), lambda z: snp.hypot(z, z), snp.signbit):
        with pytest.raises(ValueError, match="takes real numbers"):
            f(np.ones(2, np.complex64))
    assert 3 in five and 7 not in five
    for x, i in [(five.reshape(5, 1), 3), (five, five)]:
        with pytest.raises(ValueError, match="an array of one"):
            _ = i in x


def test_ranks_of_operands_only():
    table = np.arange(12.0, dtype=np.float32).reshape(3, 4) ** 2
    with sw.numpy_rank_promotion("raise"):
        snp.cov(table)
        snp.where(table[0] > 2, table, 0)
        snp.polyfit(table[0], table[1], 2)
        for f in (lambda: table + snp.ones(4), lambda: snp.isclose(table, snp.ones(4))):
            with pytest.raises(ValueError, match="different ranks"):
                f()


def test_sets_of_elements_that_are_said_to_be_unique():
    a, b = np.array([4, 1, 2, 2, 3]), np.array([3, 5, 5])
    wanted = np.setxor1d(a, b, assume_unique=True)
    np.testing.assert_array_equal(snp.setxor1d(a, b, assume_unique=True), wanted)
    assert snp.setxor1d(a, b, True, size=4, fill_value=-1).tolist() == [1, 4, -1, -1]
    assert snp.setxor1d(a[:0], b[:0], True).shape == (0,)


def test_the_slope_of_i0():
    for x in (0.0, 1.5, -2.0):
        np.testing.assert_allclose(sw.grad(snp.i0)(x), jax.grad(jnp.i0)(x), rtol=1e-5)


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
