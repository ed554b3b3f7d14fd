"""Functions of matrices: values against SciPy, batches, shardings, derivatives, errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.linalg

import shardwise as sw
from shardwise.lax.linalg import qdwh
from shardwise.scipy import linalg
from tests.helpers.composed import as_peer, differentiated
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases

RNG = np.random.default_rng(16)
A, B, C = RNG.standard_normal((4, 4)), RNG.standard_normal((3, 3)), RNG.standard_normal((4, 3))
V = RNG.standard_normal(4)
Z = A + 1j * A.T[::-1]
POSITIVE = A @ A.T + np.eye(4)
SCOPE = {"np": np, "A": A, "B": B, "C": C, "V": V, "Z": Z, "POSITIVE": POSITIVE}

EXPRESSIONS = """
m.sqrtm(POSITIVE); m.sqrtm(Z); m.sqrtm(A); m.sqrtm(np.eye(3))
m.sqrtm(np.zeros((0, 0)))
m.funm(A, np.exp); m.funm(Z, np.sin); m.funm(np.eye(3) * 2, np.sqrt); m.funm(A, np.cos, disp=False)
m.expm_frechet(A, A.T); m.expm_frechet(A * 5, A.T, compute_expm=False)
m.solve_sylvester(A, B, C); m.solve_sylvester(Z, B, C)
m.polar(A); m.polar(Z, "left"); m.polar(C); m.polar(C.T); m.polar(C, "left"); m.polar(C.T, "left")
m.polar(A.astype("f4")); m.polar(A * 1e30); m.polar(np.diag([1, 1e-9, 1, 2.0]))
m.qr_multiply(C, C.T @ A); m.qr_multiply(C, B, "left"); m.qr_multiply(C, V)
m.qr_multiply(C, V[:3], "left"); m.qr_multiply(Z, Z, conjugate=True)
m.qr_multiply(Z, Z, "left", conjugate=True); m.qr_multiply(C, A, pivoting=True)
m.eigh_tridiagonal(V, V[:3], eigvals_only=True); m.eigh_tridiagonal(V[:1], V[:0], eigvals_only=True)
m.eigh_tridiagonal(V, V[:3], eigvals_only=True, select="i", select_range=(1, 2))
m.fiedler_companion(V); m.fiedler_companion(np.arange(1.0, 8)); m.fiedler_companion(V[:2])
m.convolution_matrix(V, 3); m.convolution_matrix(V, 3, "same"); m.convolution_matrix(V, 6, "same")
m.convolution_matrix(V, 6, "valid"); m.convolution_matrix(Z, 2, "valid")
"""


@pytest.mark.parametrize("expression", everyday(cases(EXPRESSIONS), 7))
def test_values(expression: str):
    near = 1e-5 if "f4" in expression or "disp" in expression else 1e-9
    kinds = not re.search("sqrtm|funm", expression)  # SciPy decides by values
    as_peer(expression, linalg, scipy.linalg, SCOPE, near, kinds=kinds)


def test_what_has_no_root_is_nan():
    assert np.isnan(np.asarray(linalg.sqrtm(np.array([[0, 1], [0, 0]], np.float32)))).any()
    for fun in (linalg.sqrtm, lambda x: linalg.polar(x)[0], lambda x: linalg.funm(x, np.exp)):
        assert np.isnan(np.asarray(fun(np.full((3, 3), np.nan, np.float32)))).all()
    one = np.eye(3, dtype=np.float32)
    assert np.isnan(np.asarray(linalg.solve_sylvester(one, -one, one))).all()
    np.testing.assert_array_equal(linalg.sqrtm(0 * one), 0 * one)


def test_vectors_of_tridiagonal_matrices():
    w, v = map(np.asarray, linalg.eigh_tridiagonal(V, V[:3] * 1j))
    full = np.diag(V) + np.diag(V[:3] * 1j, -1) + np.diag(V[:3] * -1j, 1)
    np.testing.assert_allclose(full @ v, v * w, atol=1e-5)
    w, v = linalg.eigh_tridiagonal(V, V[:3], select="i", select_range=(2, 3))
    assert w.shape == (2,) and v.shape == (4, 2)


def test_complex_form_of_a_real_one():
    with sw.enable_x64(True):
        t, z = linalg.schur(A)
        t, z = map(np.asarray, linalg.rsf2csf(t, z))
    np.testing.assert_allclose(z @ t @ z.conj().T, A, atol=1e-9)
    np.testing.assert_allclose(z @ z.conj().T, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(np.tril(t, -1), 0, atol=1e-12)


def test_rotations_to_a_complex_form_are_those_of_scipy():
    rng = np.random.default_rng(0)
    t, z = rng.standard_normal((2, 3, 4, 4), np.float32)  # of any matrices
    with sw.numpy_dtype_promotion("strict"):
        found = linalg.rsf2csf(t, z[0])
    for i in range(3):
        for ours, theirs in zip(found, scipy.linalg.rsf2csf(t[i], z[0]), strict=True):
            np.testing.assert_allclose(ours[i], theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.sweep
def test_other_ways():
    with sw.enable_x64(True):
        for method, b in (("schur", B), ("eigen", B), ("schur", 1j * B), ("eigen", 1j * B)):
            x = np.asarray(linalg.solve_sylvester(A, b, C, method=method))
            np.testing.assert_allclose(A @ x + x @ b, C, atol=1e-9)
        for found in (linalg.polar(C, method="svd"), linalg.polar(C)):
            np.testing.assert_allclose(found[0], scipy.linalg.polar(C)[0], atol=1e-9)


@pytest.mark.sweep
def test_qdwh():
    from jax.lax.linalg import qdwh as theirs

    x = C.astype(np.float32)
    for more in ({}, {"dynamic_shape": (3, 2)}, {"max_iterations": 3}, {"eps": 1e-2}):
        found, wanted = [tuple(map(np.asarray, f(x, **more))) for f in (qdwh, theirs)]
        if "max_iterations" not in more:
            for y, z in zip(found[:2], wanted[:2], strict=True):
                np.testing.assert_allclose(y, z, atol=2e-6)
        assert bool(found[3]) == ("max_iterations" not in more)
    bad = qdwh(np.full((2, 2), np.nan, np.float32))
    assert int(bad[2]) == 10 and not bool(bad[3])


def test_derivatives_of_what_is_no_number_are_none():
    for bad in (np.nan, np.inf, 1e30):
        found = linalg.expm_frechet(np.float32([[bad, 1], [2, 3]]), np.eye(2, dtype=np.float32))
        assert np.isnan(found).all()


BATCHED = {
    "sqrtm": linalg.sqrtm,
    "funm": lambda x: linalg.funm(x, sw.numpy.exp),
    "polar": lambda x: linalg.polar(x)[1],
    "solve_sylvester": lambda x: linalg.solve_sylvester(x, B, C),
    "expm_frechet": lambda x: linalg.expm_frechet(x, A)[1],
    "rsf2csf": lambda x: linalg.rsf2csf(x, x)[0].sum(-1),
    "qr_multiply": lambda x: linalg.qr_multiply(x, A)[0],
}


@pytest.mark.parametrize("name", everyday(list(BATCHED), 1))
def test_batches_and_places(name: str):
    fun = BATCHED[name]
    batch = np.stack([A, A.T, A @ A, A + 1] * 2).astype(np.float32)
    mesh = sw.make_mesh((8,), ("x",))
    placed = sw.device_put(batch, sw.NamedSharding(mesh, sw.P("x")))
    found = np.asarray(fun(batch))
    each = np.stack([np.asarray(fun(x)) for x in batch])
    np.testing.assert_allclose(found, each, 1e-3, 1e-3)
    np.testing.assert_allclose(sw.vmap(fun)(batch), each, 1e-3, 1e-3)
    np.testing.assert_allclose(sw.jit(fun)(placed), each, 1e-3, 1e-3)


DERIVED = {
    "sqrtm": lambda x: linalg.sqrtm(x @ x.T + np.eye(4)).real,
    "sylvester": lambda x: linalg.solve_sylvester(x @ x.T, B @ B.T, x[:, :3]),
    "eigen": lambda x: linalg.solve_sylvester(x @ x.T, B @ B.T, C, method="eigen"),
    "polar": lambda x: linalg.polar(x)[0],
    "polar of tall ones": lambda x: linalg.polar(x[:, :3], "left")[1],
    "polar of wide ones": lambda x: linalg.polar(x[:3])[0],
    "expm_frechet": lambda x: linalg.expm_frechet(x, A)[1],
    "eigh_tridiagonal": lambda x: linalg.eigh_tridiagonal(x[0], x[1, :3])[0],
    "qr_multiply": lambda x: linalg.qr_multiply(x, A)[0],
    "fiedler_companion": lambda x: linalg.fiedler_companion(x[0]),
    "convolution_matrix": lambda x: linalg.convolution_matrix(x[0], 3) @ x[1, :3],
}


@pytest.mark.parametrize("name", everyday(list(DERIVED), 1))
def test_gradients(name: str):
    with sw.enable_x64(True):
        differentiated(DERIVED[name], A, tol=1e-4, order=2)


test_messages = messages(
    """
linalg.polar(A, "up")
    ValueError: polar: side must be 'right' or 'left', and method 'qdwh' or 'svd'; got 'up' and
    'qdwh'.
linalg.solve_sylvester(A, A, C)
    ValueError: solve_sylvester takes (…, m, m), (…, n, n) and (…, m, n); got shapes (4, 4), (4,
    4), (4, 3).
linalg.solve_sylvester(A, B, C, method="fast")
    ValueError: solve_sylvester: method must be 'schur' or 'eigen'; got 'fast'.
linalg.qr_multiply(C, B)
    ValueError: qr_multiply: c does not fit into the product c @ Q with Q of shape (4, 3); got
    f32[3,3].
linalg.qr_multiply(C, B, "up")
    ValueError: qr_multiply: mode must be 'left' or 'right'; got 'up'.
linalg.eigh_tridiagonal(V, V)
    ValueError: eigh_tridiagonal takes diagonals (…, n) and off-diagonals (…, n - 1); got f32[4]
    and f32[4].
linalg.eigh_tridiagonal(V, V[:3], select="v", select_range=(0, 1))
    NotImplementedError: eigh_tridiagonal: select='v' is not implemented: the number of eigenvalues
    in a range is unknown at trace time. Compute all of them, and select from these.
linalg.eigh_tridiagonal(V, V[:3], select="i", select_range=(2, 4))
    ValueError: eigh_tridiagonal: select_range must be within 0 to 3; got (2, 4).
linalg.convolution_matrix(V, 0)
    ValueError: convolution_matrix: n and the size of a must be positive; got 0 and 4.
linalg.convolution_matrix(V, 3, "none")
    ValueError: convolution_matrix: mode must be 'full', 'same' or 'valid'; got 'none'.
linalg.fiedler_companion(A[:, :0])
    ValueError: fiedler_companion takes nonempty vectors; got f32[4,0].
linalg.expm_frechet(A, A, method="slow")
    ValueError: expm_frechet: method must be 'SPS', 'blockEnlarge' or None; got 'slow'.
qdwh(C.T.astype(np.float32))
    ValueError: qdwh takes matrices with at least as many rows as columns; got f32[3,4]. Pass the
    adjoint.
""",
    globals(),
)


def test_companions_of_many_vectors():
    rows = np.random.default_rng(2).normal(size=(2, 3, 5)).astype(np.float32)
    found = linalg.fiedler_companion(rows)
    for i, j in np.ndindex(2, 3):
        wanted = scipy.linalg.fiedler_companion(rows[i, j])
        np.testing.assert_allclose(found[i, j], wanted, rtol=1e-5)
    assert linalg.fiedler_companion(rows[..., :1]).shape == (2, 3, 0, 0)
