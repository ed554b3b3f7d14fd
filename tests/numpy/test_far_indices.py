"""Unsigned indices beyond int32 and int64 are out of bounds at the end, as in NumPy."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.base.config import enable_x64
from tests.helpers.everyday import everyday

FAR = np.array([3_000_000_000, 2, 2**32 - 1, 7, 0], np.uint32)


@pytest.mark.parametrize("bits", everyday([32, 64], 1))
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_unsigned_indices_beyond_the_signed_ones(mode, bits):
    """They are out of bounds at the end, not negative."""
    x = np.arange(7, dtype=np.float32)
    near = np.minimum(FAR, 6).astype(np.int64)
    inside = FAR < 7 if mode == "fill" else FAR >= 0
    with enable_x64(bits == 64):
        far = snp.asarray(FAR.astype(np.uint64) * np.uint64(2**32) if bits == 64 else FAR)
        near, inside = (
            (near, inside)
            if bits == 32
            else (near * 0 + (FAR > 0) * 6, (FAR == 0 if mode == "fill" else inside))
        )
        read = np.where(inside, x[near], np.nan)
        a = snp.asarray(x)
        for found in (
            snp.take(a, far, mode=mode),
            snp.take_along_axis(a, far, 0, mode=mode),
            a.at[far].get(mode=mode),
            sw.jit(lambda a, i: a.at[i].get(mode=mode))(a, far),
        ):
            np.testing.assert_array_equal(np.asarray(found), read)
        summed = x.copy()
        np.add.at(summed, near[inside], 5)
        np.testing.assert_array_equal(np.asarray(a.at[far].add(5.0, mode=mode)), summed)
        put = x.copy()
        put[near[inside]] = 9
        for found in (
            a.at[far].set(9.0, mode=mode),
            snp.put_along_axis(a, far, 9.0, 0, inplace=False, mode=mode),
        ):
            np.testing.assert_array_equal(np.asarray(found), put)


def test_unsigned_indices_that_start_again():
    x, far = np.arange(7, dtype=np.float32), FAR.astype(np.int64)
    np.testing.assert_array_equal(np.asarray(snp.take(x, FAR, mode="wrap")), x[far % 7])
    put = x.copy()
    np.put(put, far, [5, 6, 7, 8, 9], mode="wrap")
    found = snp.put(x, FAR, np.arange(5.0) + 5, mode="wrap", inplace=False)
    np.testing.assert_array_equal(np.asarray(found), put)
    rows = [x[k : k + 5] for k in range(3)]
    for mode in ("wrap", "clip"):
        wanted = np.choose(far, rows, mode=mode)
        np.testing.assert_array_equal(np.asarray(snp.choose(FAR, rows, mode=mode)), wanted)
