"""Associated Legendre functions against jax's and SciPy's."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
import scipy.special

import shardwise as sw
from shardwise.scipy.special import lpmn, lpmn_values
from tests.helpers.errors import messages

Z = np.array([-0.9, -0.3, 0.0, 0.5, 0.99], np.float32)


def theirs(name, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(jax.scipy.special, name)(*args)


@pytest.mark.parametrize("normalized", [False, True])
def test_values(normalized):
    got, wanted = lpmn_values(6, 6, Z, normalized), theirs("lpmn_values", 6, 6, Z, normalized)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype) == ((7, 7, 5), np.float32)
    np.testing.assert_allclose(got, wanted, 1e-4, 1e-5)
    assert lpmn_values(0, 0, Z, normalized).shape == (1, 1, 5)
    ends = lpmn_values(3, 3, np.array([-1, 1], np.float32), False)
    np.testing.assert_allclose(ends[0], [[1, 1], [-1, 1], [1, 1], [-1, 1]], 1e-6)


def test_values_in_double_precision():
    with sw.enable_x64():
        got = lpmn_values(30, 30, Z.astype(np.float64), True)
        assert got.dtype == np.float64
        wanted = [
            [
                scipy.special.sph_harm_y(n, m, np.arccos(Z.astype(float)), 0).real * (m <= n)
                for n in range(31)
            ]
            for m in range(31)
        ]
    np.testing.assert_allclose(got, wanted, 1e-9, 1e-12)


def test_derivatives():
    got, wanted = lpmn(4, 4, Z), theirs("lpmn", 4, 4, Z)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, 2e-4, 1e-4)


test_messages = messages(
    """
lpmn_values(2, 3, Z, True)
    NotImplementedError: lpmn_values: m and n must be equal; got 2 and 3. Pass the larger for both,
    and slice the result.
lpmn_values(-1, -1, Z, True)
    ValueError: lpmn_values: n must be at least 0; got -1.
lpmn_values(2, 2, Z[None], True)
    ValueError: lpmn_values: z must be a vector; got f32[1,5].
lpmn_values(2, 2, np.arange(3), True)
    TypeError: lpmn_values: z must be float32 or float64; got i32[3].
""",
    globals(),
)
