"""packbits and unpackbits, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday
from tests.helpers.placed import PLACES

RNG = np.random.default_rng(1)
X = RNG.integers(-1, 2, (7, 9, 2)).astype(np.int32)


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", everyday([None, 0, 1, -1], 1))
def test_as_numpy(axis, bitorder):
    for x in (X, X > 0, X[:, :8], X[:0], X[:1].astype(np.uint8)):
        packed, wanted = snp.packbits(x, axis, bitorder), np.packbits(x, axis, bitorder)
        assert packed.dtype == np.uint8 and packed.shape == wanted.shape
        assert packed.tolist() == wanted.tolist()
        for count in (None, 3, -2, 40, 0) if x.size else (None,):
            got = snp.unpackbits(packed, axis, count, bitorder)
            again = np.unpackbits(wanted, axis, count, bitorder)
            assert got.tolist() == again.tolist() and got.shape == again.shape
    assert snp.unpackbits(np.zeros(0, np.uint8), count=3).tolist() == [0, 0, 0]
    for place in ("partly replicated", "sharded"):
        placed = sw.device_put(X[..., 0], PLACES[place])
        if axis != -1:
            got = sw.jit(snp.packbits, static_argnums=(1, 2))(placed, axis, bitorder)
            assert got.tolist() == np.packbits(X[..., 0], axis, bitorder).tolist()
    mapped = sw.vmap(lambda x: snp.packbits(x, axis and 0, bitorder))(X)
    assert mapped.tolist() == [np.packbits(x, axis and 0, bitorder).tolist() for x in X]


def test_errors():
    fails(TypeError, "packbits takes integers or booleans; got f32[1].", snp.packbits, snp.ones(1))
    fails(TypeError, "unpackbits takes uint8; got i32[1].", snp.unpackbits, snp.arange(1))
    text = "packbits: bitorder must be 'big' or 'little'; got 'both'."
    fails(ValueError, text, snp.packbits, X, bitorder="both")
    fails(
        TypeError,
        "unpackbits: count must be an integer; got 1.5.",
        snp.unpackbits,
        np.zeros(1, np.uint8),
        count=1.5,
    )
