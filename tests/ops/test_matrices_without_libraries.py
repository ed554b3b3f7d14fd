"""Functions of matrices on hardware without LAPACK or cuSOLVER: values of XLA's expansions, and of
the programs that replace libraries, against NumPy and SciPy.

They run on XLA's CPU backend; TPUs compile the same programs.
"""

from functools import partial

import numpy as np
import pytest
import scipy.linalg

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.ops.linalg import factor
from shardwise._src.ops.linalg.singular_values import singular_values_or_nan
from shardwise.lax import linalg
from tests.helpers.bare import bare_devices
from tests.helpers.everyday import everyday

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = ((5, 5), (7, 4), (4, 7), (2, 6, 6), (1, 1), (3, 0), (0, 4), (2, 70, 66))
SQUARE = ((5, 5), (2, 6, 6), (1, 1), (2, 2), (0, 0), (2, 35, 35))


def _random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def _bare(function, *args):
    """The results of a function on hardware without libraries."""
    with sw.enable_x64(True):
        found = sw.jit(function)(*[sw.device_put(x, bare_devices()[0]) for x in args])
        return [np.asarray(x) for x in found] if isinstance(found, tuple) else np.asarray(found)


def _close(found, wanted, times=100, scale=None):
    """Equal up to rounding errors, relative to the largest element."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    eps = np.finfo(found.dtype).eps
    scale = max(1.0, np.max(np.abs(wanted), initial=0)) if scale is None else scale
    np.testing.assert_allclose(found, wanted, rtol=0, atol=times * eps * scale)


def _adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def _unitary(q, times=300):
    _close(_adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)),
           times)  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype"), everyday([(s, d) for s in SHAPES for d in DTYPES], 3))
def test_lu(shape, dtype):
    x = _random(shape, dtype)
    found, pivots, order = _bare(linalg.lu, x)
    k = min(shape[-2:])
    lower = np.tril(found[..., :k], -1) + np.eye(shape[-2], k, dtype=dtype)
    _close(lower @ np.triu(found[..., :k, :]), np.take_along_axis(x, order[..., None], -2), 300)
    assert np.all(np.abs(lower) <= 1 + 1e-6)  # the pivots are the largest elements of columns
    _, wanted, wanted_order = linalg.lu(x.astype(dtype))
    if dtype[0] == "f":  # LAPACK compares complex numbers by another norm
        assert np.array_equal(pivots, wanted) and np.array_equal(order, wanted_order)


def test_lu_of_singular_matrices():
    x = np.float32([[[0, 1], [0, 2]], [[1, 2], [2, 4]]])
    found, _, order = _bare(linalg.lu, x)
    assert found.tolist() == [[[0, 1], [0, 2]], [[2, 4], [0.5, 0]]]
    assert order.tolist() == [[0, 1], [1, 0]]
    assert not np.isfinite(_bare(jnp.linalg.inv, x)).all(axis=(1, 2)).any()


@pytest.mark.parametrize(("shape", "dtype"), everyday([(s, d) for s in SHAPES for d in DTYPES], 2))
def test_qr(shape, dtype):
    x = _random(shape, dtype)
    q, r = _bare(lambda x: jnp.linalg.qr(x, mode="complete"), x)
    _close(q @ r, x, 300)
    _unitary(q)
    assert np.array_equal(np.triu(r), r)


@pytest.mark.parametrize(("shape", "dtype"), everyday([(s, d) for s in SHAPES for d in DTYPES], 2))
def test_qr_with_pivots(shape, dtype):
    x = _random(shape, dtype) * 1e25  # squares overflow
    q, r, order = _bare(lambda x: sw.scipy.linalg.qr(x, pivoting=True, mode="economic"), x)
    _close(q @ r, np.take_along_axis(x, order[..., None, :], -1), 300)
    _unitary(q)
    if len(shape) == 2 and x.size:
        assert np.array_equal(order, scipy.linalg.qr(x / 1e25, pivoting=True)[2])


def test_qr_with_pivots_of_dependent_columns():
    x = np.float64([[1, 2, 1], [1, 2, 0], [1, 2, 0], [0, 0, 0]])
    q, r, order = _bare(lambda x: sw.scipy.linalg.qr(x, pivoting=True), x)
    _close(q @ r, x[:, order])
    _unitary(q)
    assert order.tolist() == [1, 2, 0] and abs(r[2, 2]) < 1e-15
    q, r, order = _bare(lambda x: sw.scipy.linalg.qr(x, pivoting=True), np.zeros((3, 2)))
    assert not r.any() and order.tolist() == [0, 1] and np.array_equal(q, np.eye(3))


@pytest.mark.parametrize("dtype", everyday(DTYPES, 1))
def test_products_of_reflections(dtype):
    a, taus = linalg_reflections(dtype)
    c = _random((2, 6, 3), dtype, 1)
    for options in ({"left": True, "transpose": True}, {"left": False, "transpose": False}):
        given = c if options["left"] else np.swapaxes(c, 1, 2)
        with sw.enable_x64(True):
            wanted = linalg.ormqr(a, taus, given, **options)
        _close(_bare(partial(linalg.ormqr, **options), a, taus, given), wanted)
    with sw.enable_x64(True):
        wanted = linalg.householder_product(a, taus[..., :2])
    _close(_bare(linalg.householder_product, a, taus[..., :2]), wanted)


def linalg_reflections(dtype):
    with sw.enable_x64(True):
        found = jnp.linalg.qr(_random((2, 6, 4), dtype), mode="raw")
        return np.asarray(found.H if hasattr(found, "H") else found[0]).swapaxes(1, 2), found[1]


@pytest.mark.parametrize(
    ("shape", "dtype", "lower"),
    everyday([(s, d, lower) for s in SQUARE for d in DTYPES for lower in (True, False)], 4),
)
def test_eigh(shape, dtype, lower):
    x = _random(shape, dtype)
    x = x + _adjoint(x)
    other = np.tril(x, 0 if lower else -1) if lower else np.triu(x)
    v, w = _bare(lambda x: linalg.eigh(x, lower=lower, symmetrize_input=False), other)
    _close(w, np.linalg.eigvalsh(x), 100)
    _close(v * w[..., None, :], x @ v, 200)
    _unitary(v)


def test_eigh_of_special_matrices():
    equal = np.eye(5)
    v, w = _bare(linalg.eigh, np.stack([0 * equal, 3 * equal, np.ones((5, 5)), 1e200 * equal]))
    _close(w / [[1], [1], [1], [1e200]], [[0] * 5, [3] * 5, [0, 0, 0, 0, 5], [1] * 5])
    _unitary(v)


@pytest.mark.parametrize("dtype", everyday(DTYPES, 1))
def test_matrices_that_are_not_finite(dtype):
    x = np.stack([np.eye(4, dtype=dtype)] * 3)
    x[0, 2, 1], x[1, 1, 1] = np.nan, np.inf
    v, w = _bare(linalg.eigh, x)
    assert np.isnan(v[:2]).all() and np.isnan(w[:2]).all()
    assert w[2].tolist() == [1] * 4
    with sw.enable_x64(True):
        s, u, vh = sw.jit(partial(singular_values_or_nan, full_matrices=False, vectors=True))(x)
    assert all(np.isnan(np.asarray(y)[:2]).all() and np.isfinite(y[2]).all() for y in (s, u, vh))


@pytest.mark.parametrize("dtype", everyday(DTYPES, 1))
def test_cholesky(dtype):
    x = _random((2, 6, 6), dtype)
    x = x @ _adjoint(x) + np.eye(6, dtype=dtype)
    _close(_bare(jnp.linalg.cholesky, x), np.linalg.cholesky(x))
    x[0, 3, 3] = -1
    found = _bare(jnp.linalg.cholesky, x)
    row, column = np.tril_indices(6)
    assert np.isnan(found[0, row, column]).all() and np.isfinite(found[1]).all()


def test_complex_cholesky_as_a_real_one():
    x = _random((2, 5, 5), "complex128")
    x = x @ _adjoint(x) + np.eye(5)
    with sw.enable_x64(True):
        # The imaginary part of the diagonal is not read, nor the upper triangle.
        other = np.tril(x) + 3j * np.eye(5)
        real = np.asarray(factor._as_real(jnp.asarray(other)))
        found = factor._as_complex(jnp.asarray(np.linalg.cholesky(real)))
    assert real.shape == (2, 10, 10)
    _close(np.asarray(found), np.linalg.cholesky(x))


# -- singular values by a polar factor, with the factors of LAPACK --


def _svd(x, full=False, vectors=True):
    with sw.enable_x64(True):
        compute = partial(singular_values_or_nan, full_matrices=full, vectors=vectors)
        return [np.asarray(y) for y in sw.jit(compute)(x)]


def _check_svd(x, s, u, vh):
    k = s.shape[-1]
    wanted = np.linalg.svd(x, compute_uv=False)
    size = np.max(wanted, initial=0)
    _close(s, wanted, 50, size)
    _close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, 200, size)
    _unitary(u)
    _unitary(_adjoint(vh))


@pytest.mark.parametrize(
    ("shape", "dtype", "full"),
    everyday([(s, d, f) for s in SHAPES for d in DTYPES for f in (True, False) if 0 not in s], 4),
)
def test_svd(shape, dtype, full):
    x = _random(shape, dtype)
    s, u, vh = _svd(x, full)
    _check_svd(x, s, u, vh)
    assert (u.shape[-1] == shape[-2]) if full else (u.shape[-1] == min(shape[-2:]))
    _close(_svd(x, vectors=False)[0], s)


@pytest.mark.parametrize("dtype", everyday(DTYPES, 2))
def test_svd_of_special_matrices(dtype):
    """Of low rank, zero, with equal values, badly scaled, nearly singular."""
    rng = np.random.default_rng(3)
    left, right = [np.linalg.qr(_random((8, 8), dtype, i))[0] for i in (1, 2)]
    tiny = np.finfo(dtype).tiny
    values = [
        [3, 2, 1, 0, 0, 0, 0, 0],
        [0] * 8,
        [1] * 8,
        [2, 2, 2, 1, 1, 1, 0, 0],
        [*(10.0 ** -np.arange(0, 24, 3))],
        [1e30] * 4 + [1e22] * 4,
        [1e4 * tiny] * 8,
        [1, *(np.finfo(dtype).eps * rng.random(7))],
    ]
    for row in values:
        x = (left * np.array(row)) @ right
        _check_svd(x.astype(dtype), *_svd(x.astype(dtype)))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
def test_svd_with_the_factors_of_xla(dtype):
    x = _random((9, 6), dtype)
    u, s, vh = _bare(lambda x: jnp.linalg.svd(x, full_matrices=False), x)
    _check_svd(x, s, u, vh)


# -- reductions and tridiagonal systems --


@pytest.mark.parametrize(("shape", "dtype"), everyday([(s, d) for s in SQUARE for d in DTYPES], 2))
def test_hessenberg(shape, dtype):
    x = _random(shape, dtype)
    with sw.enable_x64(True):
        wanted = linalg.hessenberg(x)
    for found, right in zip(_bare(linalg.hessenberg, x), wanted, strict=True):
        _close(found, right, 2000)


@pytest.mark.parametrize(
    ("shape", "dtype", "lower"),
    everyday([(s, d, lower) for s in SQUARE for d in DTYPES for lower in (True, False)], 3),
)
def test_tridiagonal(shape, dtype, lower):
    x = _random(shape, dtype)
    x = x + _adjoint(x)
    if not shape[-1]:
        return
    with sw.enable_x64(True):
        wanted = linalg.tridiagonal(x, lower=lower)
    found = _bare(partial(linalg.tridiagonal, lower=lower), x)
    read = np.tril if lower else np.triu
    for y, right in zip(found, wanted, strict=True):
        y, right = (read(y), read(right)) if y.ndim == x.ndim else (y, right)
        _close(y, right, 2000)


@pytest.mark.parametrize(("size", "dtype"), everyday(
    [(n, d) for n in (1, 2, 3, 20) for d in DTYPES], 3))  # fmt: skip
def test_tridiagonal_systems(size, dtype):
    """With rows that must be exchanged."""
    lines = [_random((2, size), dtype, i) for i in range(3)]
    lines[1][:, ::3] *= 1e-7
    b = _random((2, size, 3), dtype, 4)
    with sw.enable_x64(True):
        wanted = linalg.tridiagonal_solve(*lines, b)
    _close(_bare(linalg.tridiagonal_solve, *lines, b), wanted, 2000)
    perturbed = partial(linalg.tridiagonal_solve, perturb_singular=True)
    _close(_bare(perturbed, *lines, b), wanted, 2000)


def test_singular_tridiagonal_systems():
    d, zero = np.float32([[1, 0, 1], [1, 1, 1]]), np.zeros((2, 3), np.float32)
    b = np.ones((2, 3, 1), np.float32)
    found = _bare(linalg.tridiagonal_solve, zero, d, zero, b)
    assert np.isnan(found[0]).all() and found[1].ravel().tolist() == [1, 1, 1]
    found = _bare(partial(linalg.tridiagonal_solve, perturb_singular=True), zero, d, zero, b)
    assert np.isfinite(found).all() and found[0, 1, 0] > 1e6


def test_a_sharded_batch():
    mesh = sw.sharding.Mesh(np.array(bare_devices(), object), "x")
    x = _random((4, 5, 5), "float32")
    placed = sw.device_put(x, sw.NamedSharding(mesh, sw.P("x")))
    found = sw.jit(jnp.linalg.inv)(placed)
    _close(np.asarray(found) @ x, np.stack([np.eye(5)] * 4), 2000)
