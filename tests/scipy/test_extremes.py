"""Beta and similar functions of huge, tiny and negative arguments, against mpmath."""

from __future__ import annotations

import itertools

import mpmath as mp
import numpy as np
import pytest

import shardwise as sw
from shardwise.scipy import special
from tests.helpers.everyday import everyday

# Numbers of float32; those between -1 and 1 have inverses in it.
POINTS = np.float32(
    [
        3e38,
        -3e38,
        1e20,
        1e10,
        1e6,
        -1e6,
        -1e6 - 0.5,
        -100.5,
        -2.5,
        -2,
        -1.5,
        -0.5,
        1e-30,
        -1e-30,
        0.5,
        2,
        2.5,
        100,
    ]
)
TOL = {np.float32: 1e-4, np.float64: 1e-9}


def wanted(function, *args: float) -> float:
    """As a 64-bit float; infinite at a pole."""
    with mp.workdps(220):
        try:
            return float(function(*[mp.mpf(float(x)) for x in args]))
        except (ZeroDivisionError, ValueError):
            return np.inf


def compared(ours, theirs, args: np.ndarray, dtype: type) -> None:
    """args: a column for each argument."""
    args = args.astype(dtype)
    with sw.enable_x64(dtype is np.float64):
        found = np.asarray(ours(*args))
    with np.errstate(over="ignore", under="ignore"):
        values = np.array([wanted(theirs, *each) for each in args.T]).astype(dtype)
        values[abs(values) < np.finfo(dtype).tiny] = 0  # as on the CPU
    np.testing.assert_allclose(found, values, TOL[dtype], 0)


def log_beta(a, b):
    value = mp.beta(a, b)
    return mp.log(abs(value)) if value else -mp.inf


@pytest.mark.parametrize("dtype", everyday(TOL, 1))
def test_beta(dtype: type):
    args = np.array([*itertools.product(POINTS, POINTS)]).T
    args = args[:, ~((args[0] == -2) & (args[1] == -2))]
    compared(special.beta, mp.beta, args, dtype)
    compared(special.betaln, log_beta, args, dtype)


@pytest.mark.parametrize("dtype", everyday(TOL, 1))
def test_limits_of_beta(dtype: type):
    """At integers up to -a the value is the limit, which is finite; others are poles."""
    a = np.array(
        [[-1, 1], [-2, 1], [-2, 2], [-7, 3], [3, -7], [-2, 3], [0, 1], [-3, -2], [-3, 0.5]]
    )
    compared(special.beta, lambda a, b: mp.inf if b == -2 else mp.beta(a, b), a.T, dtype)
    inf, nan = np.inf, np.nan
    a = np.array([inf, inf, inf, inf, -2.5, inf, -inf, nan], dtype)
    b = np.array([2, -2.5, -1.5, inf, inf, -inf, 2, 1], dtype)
    with sw.enable_x64(dtype is np.float64):
        np.testing.assert_array_equal(special.beta(a, b), [0, -inf, inf, 0, -inf, nan, nan, nan])
        logs = [-inf, inf, inf, -inf, inf, nan, nan, nan]
        np.testing.assert_array_equal(special.betaln(a, b), logs)


@pytest.mark.parametrize("dtype", TOL)
def test_comb(dtype: type):
    """Also if their beta function underflows and the result does not."""
    cases = [(3e38, 0.5), (1e30, 0.5), (1e10, 0.5), (10, 0.5), (3e38, 3e38), (3e38, 1), (1e10, 3)]
    compared(special.comb, mp.binomial, np.float32(cases).T, dtype)


def test_slopes_of_comb():
    def numeric(n: float, k: float) -> list[float]:
        return [float(mp.diff(mp.binomial, (n, k), each)) for each in ((1, 0), (0, 1))]

    for n, k in ((10.0, 0.5), (30.5, 7.25)):
        found = sw.grad(special.comb, (0, 1))(n, k)
        np.testing.assert_allclose(found, numeric(n, k), 1e-3)


@pytest.mark.parametrize("dtype", TOL)
def test_poch(dtype: type):
    """A sum that is rounded to an integer is not a pole; nor is m lost when added to z."""
    z = np.float32([-1e6 - 0.5, -2.5, -1e-30, 1e-30, 0.5, 2.5, 30.5, 3e38, 100])
    m = np.float32([-3e38, -1e20, -1e10, -1e6, -0.5, 0.5, 2, 2.5, 3e38])
    args = np.array([*itertools.product(z, m)]).T
    compared(special.poch, mp.rf, args, dtype)


@pytest.mark.parametrize("dtype", everyday(TOL, 1))
def test_zeta(dtype: type):
    x = [1.0000001, 1.5, 2, 3, 10, 41, 1e10, 3e38]
    q = [1e-30, 0.1, 0.5, 1, 2.5, 10, 1e4, 1e10, 3e38, -0.5, -2.5, -100.25, -30000.5]
    args = np.array(
        [(a, b) for a, b in itertools.product(x, q) if a == int(a) or b > 0 if (a, b) != (10, 1e4)],
        np.float32,
    ).T

    def sum_of_powers(x, q):
        if x > 100:
            return min(mp.mpf(abs(q + n)) for n in range(-int(min(q, 0)), 2 - int(min(q, 0)))) ** -x
        if q > 1e4:
            return q ** (1 - x) * (1 / (x - 1) + 1 / (2 * q) + x / (12 * q**2))
        before = mp.fsum((q + n) ** -x for n in range(int(mp.ceil(-q)))) if q < 0 else 0
        return mp.re(before) + mp.zeta(x, q if q > 0 else q + int(mp.ceil(-q)))

    compared(special.zeta, sum_of_powers, args, dtype)
    with sw.enable_x64(dtype is np.float64):
        assert np.isnan(special.zeta(dtype(2.5), dtype(-0.5)))
        far = np.array([-1e4, -1e10, -3e38], dtype)
        np.testing.assert_array_equal(special.zeta(far), [0, 0, 0])
