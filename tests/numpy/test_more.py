"""Grids, sets, windows, polynomials, differences, files and default types, against jax's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.everyday import everyday

A = np.array([3, 1, 2, 3, 7, 1], np.int32)
B = np.array([2, 9, 3, 3, 8], np.int32)
X = np.array([0.5, 2, 1, -3, 4, 2.5], np.float32)
M = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2

CASES = """
mgrid[0:3, 0:2]
mgrid[0:4]
mgrid[0:1:5j, 0:2]
ogrid[0:3, 0:2][1]
ogrid[0:1:3j]
r_[0:3, 7, f(X)]
r_[f(A), 1, f(B)]
r_['0,2', f(A), f(A)]
r_['1,2,0', f(A), f(B)[:3].repeat(2)]
r_['-1', f(M), f(M)]
c_[f(A), f(A)]
c_[f(M), f(M)]
gradient(f(X))
gradient(f(A))
gradient(f(X), 2)
gradient(f(X), np.array([0, 1, 3, 4, 7, 9.], np.float32))
gradient(f(M))
gradient(f(M), 2.0, 3.0)
gradient(f(M), axis=1)
gradient(f(M), axis=(0, -1))
unwrap(f(X) * 3)
unwrap(f(M), axis=0)
unwrap(f(X), discont=4.0)
unwrap(f(A), period=4)
union1d(f(A), f(B))
union1d(f(A), f(B), size=8, fill_value=-1)
union1d(f(M), f(A))
intersect1d(f(A), f(B))
intersect1d(f(A), f(B), return_indices=True)
intersect1d(f(A), f(B), size=4)
intersect1d(f(A), f(B), size=4, fill_value=-1)
intersect1d(f(A), f(B), size=1)
intersect1d(f([1, 2]), f([3, 4]), size=2)
setdiff1d(f(A), f(B))
setdiff1d(f(A), f(B), size=4)
setdiff1d(f(A), f(B), size=4, fill_value=-1)
setdiff1d(f(A), f(B), assume_unique=True)
setdiff1d(f(np.float32([np.nan, 1, np.nan])), f(B))
setdiff1d(f(np.float32([np.nan, 1, np.nan])), f(B), size=3)
setxor1d(f(A), f(B))
setxor1d(f(A), f(B), size=7, fill_value=-1)
setxor1d(f(A), f(B), size=7)
setxor1d(f(A), f(A), size=3)
setxor1d(f(A), f(B), size=1)
setxor1d(f(A), f(B)[:0])
setxor1d(f(np.float32([0., -0., 1, 1])), f(np.float32([3, 2, 3, 2])))
setxor1d(f(np.float32([np.nan, 1, np.nan])), f(np.float32([np.nan, 2])))
setxor1d(f(np.float32([2, np.nan, 3, np.nan])), f(X))
setxor1d(f(X), f(np.float32([2, np.nan, 3, np.nan])))
bartlett(5)
blackman(6)
hamming(1)
hanning(7)
kaiser(5, 2.5)
kaiser(1, 2.5)
polyval(f(X), 2.0)
polyval(f(A), f(B))
polyval(f(X), f(M))
polyval(f(M), 2.0)
polyval(f(M), f(M)[:, :1])
polyval(f(M)[:0], f(M))
polyadd(f(A), f(X)[:3])
polysub(f(A)[:2], f(A))
polymul(f(X), f(A))
polymul(np.array([0, 1., 2]), f(X), trim_leading_zeros=True)
polyder(f(X))
polyder(f(X), 2)
polyder(f(X), 0)
polyint(f(X))
polyint(f(A), 2)
polyint(f(X), 2, np.array([1, 2.], np.float32))
polyint(f(X), 2, 3)
poly(f(X))
mask_indices(3, np_.triu)
mask_indices(3, np_.tril, -1)
int_(3.5)
uint(3)
float_(1)
complex_(1)
bool(2)
zeros(2, float_)
zeros(2, int_)
zeros(2, bool)
""".strip().split("\n")


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # jax's
@pytest.mark.parametrize("case", everyday(CASES, 8))
def test_as_jax(case):
    def value(module, put):
        names = {n: getattr(module, n) for n in (case.split("(")[0].split("[")[0],)}
        names |= {n: getattr(module, n) for n in ("float_", "int_", "bool") if n in case}
        return eval(case, {"f": put, "np": np, "np_": module, "A": A, "B": B, "X": X,
                           "M": M} | names)

    ours, theirs = value(snp, snp.asarray), value(jnp, jnp.asarray)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def test_default_types_follow_x64():
    assert [np.dtype(t) for t in (snp.int_, snp.uint, snp.float_, snp.complex_)] == [
        np.int32, np.uint32, np.float32, np.complex64]
    assert snp.int_ == snp.int32 and snp.bool == snp.bool_
    with sw.enable_x64(True):
        assert snp.zeros(1, snp.float_).dtype == np.float64
        assert snp.int_(3).dtype == np.int64
    assert snp.zeros(1, snp.float_).dtype == np.float32
    assert repr(snp.float_) == "<scalar type float32>"


def test_under_jit():
    x = snp.asarray(A)
    a = sw.jit(lambda x, y: snp.setdiff1d(x, y, size=2))(x, snp.asarray(B))
    assert a.tolist() == [1, 7]
    assert sw.jit(lambda x: snp.r_[0:2, x, 5])(x).tolist() == [0, 1, *A.tolist(), 5]
    slope = sw.grad(lambda p: snp.polyval(p, 2.0))(snp.asarray(X))
    assert slope.tolist() == [32, 16, 8, 4, 2, 1]
    np.testing.assert_allclose(
        sw.jit(lambda b: snp.kaiser(5, b))(2.5), np.kaiser(5, 2.5), rtol=1e-5)


def test_unwrap_by_an_odd_period_is_numpys():
    assert snp.unwrap(snp.asarray(A * 2), period=5).tolist() == np.unwrap(A * 2, period=5).tolist()


def test_s_and_index_exp():
    assert snp.s_[1:2, ...] == np.s_[1:2, ...]
    assert snp.index_exp[3] == (3,)


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
