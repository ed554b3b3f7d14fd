"""`scipy.fft`: cosine transforms against SciPy, shardings, derivatives, errors and signatures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.fft
from jax.scipy import fft as theirs

import shardwise as sw
from shardwise.scipy import fft
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5))
CASES = [
    (name, *rest)
    for rest in itertools.product(
        (1, 2, 3, 4), (None, "backward", "ortho", "forward"), (1, 2, 3, 4, 5, 9, 16)
    )
    for name in ("dct", "idct")
    if rest[0] != 1 or rest[2] > 1
]


@pytest.mark.parametrize(("name", "kind", "norm", "n"), everyday(CASES, 6))
def test_values(name, kind, norm, n):
    x = RNG.standard_normal((2, n))
    with sw.enable_x64(True):
        close(getattr(fft, name)(x, kind, norm=norm), getattr(scipy.fft, name)(x, kind, norm=norm))


def test_along_several_axes():
    with sw.enable_x64(True):
        for p in everyday(
            [
                {},
                {"s": (6, 2), "axes": (0, 1)},
                {"s": (7,)},
                {"axes": (-1, 0), "type": 3},
                {"type": 4, "norm": "ortho"},
                {"type": 1, "norm": "forward"},
            ],
            1,
        ):
            for name in ("dctn", "idctn"):
                close(getattr(fft, name)(X, **p), getattr(scipy.fft, name)(X, **p))
                z = X + 1j * X[::-1]
                close(getattr(fft, name)(z, **p), getattr(scipy.fft, name)(z, **p))
        close(fft.dct(X, n=7, axis=1), scipy.fft.dct(X, n=7, axis=1))


def test_dtypes():
    for dtype, wanted in (
        (np.int32, "f4"),
        (np.float16, "f4"),
        (np.float32, "f4"),
        (np.complex64, "c8"),
        (bool, "f4"),
    ):
        assert fft.dct(np.ones(4, dtype)).dtype == np.dtype(wanted)
    assert fft.dct(np.ones((0, 4), np.float32)).shape == (0, 4)


@pytest.mark.parametrize("kind", everyday([1, 2, 3, 4], 1))
def test_places_and_derivatives(kind):
    everywhere(lambda x: fft.dctn(x, kind, axes=(0, 1), norm="ortho"), X[..., 0])
    everywhere(lambda x: fft.idct(x, kind), RNG.standard_normal((7, 6)))


test_messages = messages(
    """
fft.dct(X, 5)
    ValueError: dct: type must be 1, 2, 3 or 4; got 5.
fft.idct(X, norm="none")
    ValueError: idct: norm must be 'backward' (or None), 'ortho' or 'forward'; got 'none'.
fft.dct(X[..., :1], 1)
    ValueError: dct: type 1 takes signals of at least 2 elements; got a length of 1 along axis 2.
fft.dctn(X, axes=(0, 0))
    ValueError: dctn: axes must differ, and s must have a length for each; got axes (0, 0) and s
    None.
""",
    globals(),
)


def test_signatures_are_those_of_jax():
    for name in ("dct", "dctn", "idct", "idctn"):
        assert signature(getattr(fft, name)) == signature(getattr(theirs, name))
