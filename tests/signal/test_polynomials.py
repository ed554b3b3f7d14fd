"""Roots, quotients and fits of polynomials, against NumPy's; and top_k and minmax."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.errors import fail, fails
from tests.helpers.everyday import everyday
from tests.helpers.placed import PLACES

RNG = np.random.default_rng(2)


def in_order(z):
    return np.sort_complex(np.round(np.asarray(z).astype(np.complex128), 3))


@pytest.mark.parametrize(
    "p",
    everyday(
        [
            [1, -6, 11, -6],
            [0, 0, 2, -4, 0, 0],
            [1, 0, 1],
            [0, 0, 0],
            [3],
            [0, 5, 1],
            [1j, 2, 1 - 1j, 3],
        ],
        3,
    ),
)
def test_roots(p):
    p = np.array(p, np.complex64 if np.iscomplexobj(p) else np.float32)
    wanted, got = np.roots(p), snp.roots(snp.asarray(p))
    assert got.dtype == np.complex64 and got.shape == wanted.shape
    np.testing.assert_allclose(in_order(got), in_order(wanted), atol=2e-3)
    traced = np.asarray(sw.jit(lambda p: snp.roots(p, strip_zeros=False))(p))
    leading = len(p) - len(np.trim_zeros(p, "f"))
    if len(p) > 1:
        assert np.isnan(traced).sum() == min(leading, len(p) - 1)
        np.testing.assert_allclose(in_order(traced[~np.isnan(traced)]), in_order(wanted), atol=2e-3)


@pytest.mark.sweep
def test_roots_in_double_precision_and_their_derivatives():
    p = np.array([1.0, -10, 35, -50, 24])
    with sw.enable_x64(True):
        np.testing.assert_allclose(np.sort(snp.roots(p).real), [1, 2, 3, 4], rtol=1e-9)

        def largest(p):
            return snp.max(snp.roots(p, strip_zeros=False).real)

        slope, step = sw.grad(largest)(p), 1e-6
        rows = [(largest(p + step * e) - largest(p - step * e)) / (2 * step) for e in np.eye(5)]
        np.testing.assert_allclose(slope, rows, rtol=1e-5)
    fails(ValueError, "roots takes vectors; got i32[2,2].", snp.roots, np.ones((2, 2), np.int32))


@pytest.mark.parametrize(
    "matrix",
    [np.arange(4).reshape(2, 2), np.float32([[0, 1], [-1, 0]]), np.diag([1j, 2, 3]), [[2.0]]],
)
def test_characteristic_polynomials(matrix):
    found = snp.poly(np.asarray(matrix))
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, np.poly(matrix), atol=1e-5)


def test_poly_takes_vectors_and_square_matrices():
    for shape in ((2, 3), (0, 0), (2, 2, 2)):
        sizes = ",".join(map(str, shape))
        fails(
            ValueError,
            f"poly takes a vector of roots or a nonempty square matrix; got f32[{sizes}].",
            snp.poly,
            np.ones(shape, np.float32),
        )


@pytest.mark.parametrize(
    "u,v",
    everyday(
        [
            ([5, 3, 1, 2], [2, 1]),
            ([2], [2, 1]),
            ([1, 2, 3], [3]),
            ([1j, 2, 1], [2, 1j]),
            ([1, 3, 2], [1, 1]),
        ],
        2,
    ),
)
def test_quotients(u, v):
    u, v = np.array(u), np.array(v)
    q, r = np.polydiv(u, v)
    got = snp.polydiv(u, v)
    np.testing.assert_allclose(got[0], q, rtol=1e-5)
    np.testing.assert_allclose(got[1][len(u) - len(r) :], r, atol=1e-5)
    trimmed = snp.polydiv(u, v, trim_leading_zeros=True)[1]
    assert trimmed.shape == r.shape
    again = snp.polyadd(snp.polymul(got[0], v), got[1])
    np.testing.assert_allclose(again[-len(u) :], u, rtol=1e-5)
    assert sw.jit(snp.polydiv)(u, v)[1].shape == (len(u),)


@pytest.mark.sweep
@pytest.mark.parametrize("k,w", [(0, False), (0, True), (2, False), (2, True)])
def test_fits(k, w):
    x = np.linspace(-1, 1, 9)
    y = RNG.normal(size=(9, k) if k else 9)
    weights = RNG.uniform(0.5, 2, 9) if w else None
    with sw.enable_x64(True):
        for deg in (0, 1, 3):
            np.testing.assert_allclose(
                snp.polyfit(x, y, deg, w=weights), np.polyfit(x, y, deg, w=weights), rtol=1e-8
            )
            for cov in (True, "unscaled"):
                ours = snp.polyfit(x, y, deg, w=weights, cov=cov)
                theirs = np.polyfit(x, y, deg, w=weights, cov=cov)
                for a, b in zip(ours, theirs, strict=True):
                    b = b[..., None] if b.ndim < a.ndim else b
                    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)
            ours = snp.polyfit(x, y, deg, None, True, weights)
            for a, b in zip(ours, np.polyfit(x, y, deg, full=True, w=weights), strict=True):
                if deg != 3 or np.ndim(a):
                    np.testing.assert_allclose(
                        np.ravel(a), np.ravel(b) if np.ndim(b) else b, rtol=1e-6, atol=1e-14
                    )
        slope = sw.grad(lambda y: snp.polyfit(x, y, 1, w=weights).sum())(y)
        assert slope.shape == y.shape
    placed = sw.device_put(x.astype(np.float32), PLACES["partly replicated"])
    got = snp.polyfit(placed, y.astype(np.float32), 2)
    np.testing.assert_allclose(got, np.polyfit(x, y, 2), rtol=1e-3, atol=1e-4)


def test_fits_that_do_not_work():
    x = np.arange(3.0, dtype=np.float32)
    fail(
        """
        snp.polyfit(x, x, -1)
            ValueError: polyfit: deg must be at least 0; got -1.
        snp.polyfit(x, x[:2], 1)
            TypeError: polyfit takes a nonempty vector, and a vector or matrix with as many rows;
            got f32[3] and f32[2].
        snp.polyfit(x, x, 1, w=x[:2])
            TypeError: polyfit: w must have the shape of x, (3,); got f32[2].
        snp.polyfit(x, x, 2, cov=True)
            ValueError: polyfit: scaling the covariance requires more than 3 points; got 3.
        """,
        globals() | locals(),
    )


@pytest.mark.parametrize(
    "axis,dtype",
    everyday([(a, d) for a in (0, -1) for d in ("float32", "int8", "uint8", "bool")], 1),
)
def test_top_k(axis, dtype):
    x = RNG.integers(0, 9, (7, 5)).astype(dtype)
    if dtype == "float32":
        x[2, 1], x[3, 3], x[0, 4] = np.nan, np.inf, -np.inf
    rising = np.sort(x, axis)
    for y in (x, sw.device_put(x, PLACES["partly replicated"])):
        low, at = snp.top_k(y, 3, axis=axis, mode="smallest")
        np.testing.assert_array_equal(low, np.take(rising, range(3), axis))
        np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(at), axis), low)
        high, at = sw.jit(lambda y: snp.top_k(y, 3, axis=axis, sorted=False))(y)
        np.testing.assert_array_equal(high, np.flip(rising, axis).take(range(3), axis))
        np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(at), axis), high)


def test_top_k_errors_and_slopes():
    x = snp.asarray([3.0, 1, 2])
    assert sw.grad(lambda x: snp.top_k(x, 2, mode="smallest")[0].sum())(x).tolist() == [0, 1, 1]
    text = "top_k: mode must be 'largest' or 'smallest'; got 'middle'."
    fails(ValueError, text, snp.top_k, x, 1, mode="middle")
    fails(
        ValueError,
        "top_k takes real numbers, and k from 0 to the size of axis 0; got f32[3] and 4.",
        snp.top_k,
        x,
        4,
    )


def test_minmax():
    x = RNG.normal(size=(7, 5)).astype(np.float32)
    for y in (x, sw.device_put(x, PLACES["partly replicated"])):
        for axis in (None, 0, (0, 1)):
            low, high = snp.minmax(y, axis, keepdims=True)
            np.testing.assert_array_equal(low, x.min(axis, keepdims=True))
            np.testing.assert_array_equal(high, x.max(axis, keepdims=True))
    mask = x > 0
    low, high = snp.minmax(x, 0, initial=(9, -9), where=mask)
    np.testing.assert_array_equal(low, x.min(0, initial=9, where=mask))
    np.testing.assert_array_equal(high, x.max(0, initial=-9, where=mask))
    fails(
        ValueError,
        "zero-size array to reduction operation minmax which has no identity",
        snp.minmax,
        x[:0],
    )


def test_names_of_numpys():
    x = snp.ones(2)
    assert snp.array_repr(x) == "Array([1., 1.], dtype=float32)" and snp.array_str(x) == "[1. 1.]"
    assert snp.iterable(x) and not snp.iterable(3)
    assert issubclass(snp.ComplexWarning, RuntimeWarning)
    assert (snp.character, snp.flexible, snp.object_) == (np.character, np.flexible, np.object_)
    assert snp.finfo(snp.float6_e2m3fn).bits == snp.finfo(snp.float6_e3m2fn).bits == 6
    fails(
        TypeError,
        "ones: dtype float6_e2m3fn has no representation on devices",
        snp.ones,
        2,
        snp.float6_e2m3fn,
    )
