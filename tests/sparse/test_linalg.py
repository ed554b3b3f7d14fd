"""Solutions and eigenvalues of sparse matrices, against dense ones."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse.linalg import lobpcg_standard, spsolve
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)


def system(n=6, dtype=np.float64):
    a = np.diag(RNG.uniform(2, 3, n)) + RNG.normal(size=(n, n)) * (RNG.random((n, n)) < 0.3)
    if np.dtype(dtype).kind == "c":
        a = a * np.exp(0.3j * np.arange(n))
    return a.astype(dtype), RNG.normal(size=n).astype(dtype)


@pytest.mark.parametrize("dtype", everyday(["float32", "float64", "complex64", "complex128"], 1))
def test_solutions(dtype):
    with sw.enable_x64(True):
        a, b = system(dtype=dtype)
        m = sparse.CSR.fromdense(a)
        args = m.data, m.indices, m.indptr
        tol = 1e-4 if dtype in ("float32", "complex64") else 1e-10
        for solve in (spsolve, sw.jit(spsolve)):
            x = solve(*args, b)
            assert x.dtype == dtype
            np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=tol, atol=tol)
        padded = sparse.CSR.fromdense(a, nse=40)
        x = spsolve(padded.data, padded.indices, padded.indptr, b)
        np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=tol, atol=tol)


def test_derivatives_and_batches_of_solutions():
    with sw.enable_x64(True):
        a, b = system()
        m = sparse.CSR.fromdense(a)
        loss = lambda data, b: (spsolve(data, m.indices, m.indptr, b) ** 2).sum()  # noqa: E731
        dense = lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum()  # noqa: E731
        by_data, by_b = sw.grad(loss, (0, 1))(m.data, b)
        by_a, want_b = sw.grad(dense, (0, 1))(a, b)
        np.testing.assert_allclose(by_b, want_b, rtol=1e-8)
        np.testing.assert_allclose(by_data, np.asarray(by_a)[a != 0], rtol=1e-8)
        many = np.stack([b, 2 * b])
        found = sw.vmap(lambda b: spsolve(m.data, m.indices, m.indptr, b))(many)
        np.testing.assert_allclose(found, np.linalg.solve(a, many.T).T, rtol=1e-8)


def test_mistakes():
    a, b = system(dtype=np.float32)
    m = sparse.CSR.fromdense(a)
    what = "shardwise.experimental.sparse.linalg."
    with pytest.raises(TypeError) as error:
        spsolve(m.data, m.indices, m.indptr, b.astype(int))
    assert str(error.value) == (
        f"{what}spsolve: data and b must have the same dtype, float32, float64, complex64 or "
        "complex128; got float32 and int32."
    )
    with pytest.raises(TypeError, match="indices and indptr must be integers"):
        spsolve(m.data, m.data, m.indptr, b)
    with pytest.raises(ValueError, match="one more element in indptr than in b"):
        spsolve(m.data, m.indices, m.indptr, b[1:])
    with pytest.raises(ValueError, match="reorder must be 0, 1, 2 or 3; got 7"):
        spsolve(m.data, m.indices, m.indptr, b, reorder=7)
    with pytest.raises(ValueError, match="X must have k columns with 0 < 5 k < n; got k=2, n=6"):
        lobpcg_standard(a, np.ones((6, 2), np.float32))
    with pytest.raises(ValueError, match="its products are float32 of shape"):
        lobpcg_standard(lambda x: x[1:], np.ones((6, 1), np.float32))


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["array", "sparse", "function"])
def test_greatest_eigenvalues(kind):
    with sw.enable_x64(True):
        n, k = 30, 3
        q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
        values = np.sort(RNG.uniform(1, 10, n))[::-1]
        a = (q * values) @ q.T
        a = (a + a.T) / 2
        given = {"array": a, "sparse": sparse.BCOO.fromdense(a), "function": lambda x: a @ x}[kind]
        theta, u, steps = sw.jit(lambda x: lobpcg_standard(given, x, 200))(RNG.normal(size=(n, k)))
        np.testing.assert_allclose(theta, values[:k], rtol=1e-10)
        np.testing.assert_allclose(a @ np.asarray(u), np.asarray(u * theta), atol=1e-8)
        np.testing.assert_allclose(np.asarray(u.T @ u), np.eye(k), atol=1e-10)
        assert 0 < steps < 200
        assert lobpcg_standard(a, RNG.normal(size=(n, k)), 2)[2] == 2
