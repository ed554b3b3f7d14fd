"""Factors and eigenvalues of matrices far from 1, on hardware without libraries."""

from functools import partial

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.ops.linalg.scaling import scaled_to_one, times
from shardwise.lax import linalg
from tests.helpers.bare import bare_devices
from tests.helpers.everyday import everyday

SCALES = {
    "float32": (1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30),
    "float64": (1e-280, 1e-170, 1e-20, 1e20, 1e170, 1e280),
}
SCALES["complex64"], SCALES["complex128"] = SCALES["float32"], SCALES["float64"]
DTYPES = (*SCALES,)


def _batch(shape, dtype):
    """Matrices at each scale, and one of zeros; with the same ones at scale 1, and the scales."""
    rng = np.random.default_rng(5)
    scales = np.array([*SCALES[dtype], 1, 0])
    x = rng.standard_normal((len(scales), *shape))
    if dtype[0] == "c":
        x = x + 1j * rng.standard_normal(x.shape)
    if shape[0] == shape[1]:
        x = x + _adjoint(x)
    x[-1] = 0
    scales[-1] = 1
    given = (x * scales[:, None, None]).astype(dtype)
    return given, x, scales


def _adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def _bare(function, x):
    with sw.enable_x64(True):
        found = sw.jit(function)(sw.device_put(x, bare_devices()[0]))
        return [np.asarray(y) for y in found]


def _one_by_one(function, x):
    """The results for each matrix by itself: XLA's iterations end for all of a batch at once."""
    with sw.enable_x64(True):
        compute = sw.jit(function)
        found = [compute(sw.device_put(one, bare_devices()[0])) for one in x]
        return [np.stack([np.asarray(y) for y in ys]) for ys in zip(*found, strict=True)]


def _near(found, wanted, dtype, times=200):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=times * np.finfo(dtype).eps)


def _unitary(q, dtype):
    one = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2))
    _near(_adjoint(q) @ q, one, dtype)


def _at_one(x, scales):
    """In 64 bits, over the scales: one number for each matrix."""
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    return x.astype(wide) / scales.reshape(-1, *[1] * (x.ndim - 1))


@pytest.mark.parametrize(("dtype", "lower"), everyday(
    [(d, lower) for d in DTYPES for lower in (True, False)], 2))  # fmt: skip
def test_eigh(dtype, lower):
    """The triangle that is not read may have other numbers."""
    given, x, scales = _batch((5, 5), dtype)
    other = np.triu(np.ones((5, 5), bool), 1)
    given[:, other if lower else other.T] = np.nan
    for compute in (_bare, _one_by_one):
        v, w = compute(lambda x: linalg.eigh(x, lower=lower, symmetrize_input=False), given)
        w = _at_one(w, scales)
        _near(w, np.linalg.eigvalsh(x), dtype)
        _near((v * w[:, None, :]) @ _adjoint(v), x, dtype)
        _unitary(v, dtype)


@pytest.mark.parametrize(("shape", "dtype"), everyday(
    [(s, d) for s in ((6, 4), (3, 5)) for d in DTYPES], 2))  # fmt: skip
def test_qr(shape, dtype):
    given, x, scales = _batch(shape, dtype)
    q, r = _bare(jnp.linalg.qr, given)
    _near(q @ _at_one(r, scales), x, dtype)
    _unitary(q, dtype)


@pytest.mark.parametrize(("shape", "dtype"), everyday(
    [(s, d) for s in ((6, 4), (4, 6)) for d in DTYPES], 2))  # fmt: skip
def test_svd(shape, dtype):
    given, x, scales = _batch(shape, dtype)
    u, s, vh = _bare(partial(jnp.linalg.svd, full_matrices=False), given)
    s = _at_one(s, scales)
    _near(s, np.linalg.svd(x, compute_uv=False), dtype)
    _near((u * s[:, None, :]) @ vh, x, dtype)
    _unitary(u, dtype)


@pytest.mark.parametrize("dtype", everyday(DTYPES, 1))
def test_matrices_that_are_not_finite(dtype):
    """The other matrices of the batch are not affected."""
    given = _batch((4, 4), dtype)[0]
    given[0, 2, 1], given[1, 3, 3] = np.nan, np.inf
    for function in (linalg.eigh, jnp.linalg.qr):
        found = _bare(function, given)
        assert all(np.isfinite(y[2:]).all() for y in found)
        assert all(np.isnan(y[:2]).any(axis=(*range(1, y.ndim),)).all() for y in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_scale_is_a_power_of_two(dtype):
    given = _batch((3, 2), dtype)[0]
    tiny = np.finfo(dtype).tiny
    given = np.concatenate([given, [np.full((3, 2), y, dtype) for y in (
        tiny, 8 * tiny, np.finfo(dtype).max, np.inf, np.nan)]])  # fmt: skip
    with sw.enable_x64(True):
        small, scale = scaled_to_one(given)
        back = np.asarray(times(small, scale))
    small, scale = np.asarray(small), np.asarray(scale)
    assert (np.frexp(scale)[0] == 0.5).all() and (scale[[7, -2, -1]] == 1).all()
    largest = np.maximum(np.abs(np.real(small)), np.abs(np.imag(small))).max(axis=(1, 2))
    inside = [*range(7), 9]
    assert (largest[inside] > 1e-4).all() and (largest[inside] < 30).all()
    assert np.array_equal(back[:-2], given[:-2])
