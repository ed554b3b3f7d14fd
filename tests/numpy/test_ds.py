"""`ds(start, size)` in indices of arrays and refs."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of

X = np.arange(24, dtype=np.float32).reshape(4, 6)
KNOWN = [(1, 2), (3, 2), (-1, 2), (-3, 1), (0, 4), (0, 0), (9, 3), (-9, 3)]


@pytest.mark.parametrize(("start", "size"), everyday(KNOWN, 1))
def test_starts_known_and_traced_are_those_of_jax(start: int, size: int):
    ours, theirs = snp.asarray(X), jax.numpy.asarray(X)
    for index in (
        lambda ds, i: ds(i, size),
        lambda ds, i: (2, ds(i, size)),
        lambda ds, i: (..., ds(i, size)),
        lambda ds, i: (ds(i, size), None, ds(1, 3)),
        lambda ds, i: (np.array([0, 2]), ds(i, size)) if start >= 0 else ...,
    ):
        wanted = jax.jit(lambda i, index=index: theirs[index(jax.ds, i)])(start)
        np.testing.assert_array_equal(ours[index(sw.ds, start)], wanted)
        np.testing.assert_array_equal(ours[index(sw.ds, snp.int32(start))], wanted)
        traced = sw.jit(lambda x, i, index=index: x[index(sw.ds, i)])
        np.testing.assert_array_equal(traced(ours, start), wanted)


def test_one_program_serves_all_starts():
    f = sw.jit(lambda x, i: x[sw.ds(i, 2), 1:3])
    for i in range(3):
        np.testing.assert_array_equal(f(X, i), X[i : i + 2, 1:3])
    assert f._cache_size() == 1


def test_other_forms():
    x = snp.asarray(X)
    assert sw.ds(None) == slice(None)
    assert sw.ds(3) == sw.ds(0, 3) != sw.ds(0, 4)
    np.testing.assert_array_equal(x[sw.ds(3)], X[:3])
    np.testing.assert_array_equal(x[0, sw.ds(1, 3, 2)], X[0, 1::2])
    np.testing.assert_array_equal(x[0, sw.ds(-9, 2, 5)], X[0, ::5])
    assert repr(sw.ds(1, 2)) == "Slice(start=1, size=2, stride=1)"
    assert sw.tree.leaves(sw.ds(1, 2)) == [] and len(sw.tree.leaves(sw.ds(snp.int32(1), 2))) == 1
    found = sw.jit(lambda s: X_TRACED[s])(sw.ds(snp.int32(1), 2))
    np.testing.assert_array_equal(found, X[1:3])


X_TRACED = snp.asarray(X)


def test_writes_derivatives_and_maps():
    x = snp.asarray(X)
    wanted = X.copy()
    wanted[2:] = 0
    for start in (2, 3, -2, -1):
        np.testing.assert_array_equal(x.at[sw.ds(start, 2)].set(0), wanted)
        traced = sw.jit(lambda x, i: x.at[sw.ds(i, 2)].multiply(0))
        np.testing.assert_array_equal(traced(x, start), wanted)
    slope = sw.grad(lambda x, i: (x[sw.ds(i, 2)] ** 2).sum())(x, 1)
    np.testing.assert_array_equal(slope, np.where(np.isin(np.arange(4), [1, 2])[:, None], 2 * X, 0))
    rows = sw.vmap(lambda i: x[sw.ds(i, 2), 0])(np.arange(-1, 3))
    np.testing.assert_array_equal(rows, X[[[2, 3], [0, 1], [1, 2], [2, 3]], 0])


def test_refs():
    def f(i: Any) -> Any:
        ref = sw.new_ref(X)
        ref[sw.ds(i, 2), sw.ds(0, 3)] = np.zeros((2, 3), np.float32)
        ref[0, sw.ds(i, 2)] += 1
        return ref[...], ref[sw.ds(i, 1)], sw.ref.swap(ref, (0, sw.ds(i, 2)), 5.0)

    wanted = X.copy()
    wanted[1:3, :3] = 0
    wanted[0, 1:3] += 1
    for run in (f, sw.jit(f)):
        whole, row, old = run(1)
        np.testing.assert_array_equal(whole, wanted)
        np.testing.assert_array_equal(row, wanted[1:2])
        np.testing.assert_array_equal(old, wanted[0, 1:3])


def test_arrays_over_devices():
    x = sw.device_put(X, sw.NamedSharding(mesh_of(4, 2), sw.P("x", "y")))
    for i in (1, snp.int32(1)):
        np.testing.assert_array_equal(x[sw.ds(i, 2), 1:], X[1:3, 1:])
        np.testing.assert_array_equal(x.at[sw.ds(i, 2)].add(1)[0], X[0])


def test_mistakes():
    x = snp.asarray(X)
    with pytest.raises(
        ValueError,
        match=re.escape(
            "ds: Slice(start=0, size=5, stride=1) needs a dimension of at least 5 elements; got 4."
        ),
    ):
        x[sw.ds(0, 5)]
    with pytest.raises(ValueError, match=re.escape("ds: stride must not be negative; got -1.")):
        sw.ds(0, 5, -1)
    with pytest.raises(
        ValueError,
        match=re.escape("ds: size must not be negative; got Slice(start=0, size=-1, stride=1)."),
    ):
        x[sw.ds(0, -1)]
    with pytest.raises(TypeError, match=r"stride must be a concrete integer; got 1\.5\."):
        sw.ds(0, 5, 1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^ds: size must be a concrete integer; got Slice\("):
        sw.jit(lambda n: x[sw.ds(0, n)])(2)
    with pytest.raises(TypeError, match=re.escape("ds: start must be an integer; got f32[].")):
        x[sw.ds(snp.float32(1), 2)]
    with pytest.raises(TypeError, match=re.escape("ds: start must be an integer; got 1.5.")):
        x[sw.ds(1.5, 2)]
    with pytest.raises(
        NotImplementedError,
        match=re.escape(
            "ds: an array as start requires a stride of 1; got stride=2. Take the window first, then "
            "stride over it: `x[ds(i, n)][::stride]`."
        ),
    ):
        x[sw.ds(snp.int32(1), 2, 2)]
    with pytest.raises(IndexError, match=r"^too many indices"):
        x[0, 0, sw.ds(1)]
