"""`scipy.linalg`: values against SciPy, shardings, derivatives, errors and signatures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from jax.scipy import linalg as theirs

import shardwise as sw
from shardwise.scipy import linalg
from tests.helpers.composed import as_peer, differentiated, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases

RNG = np.random.default_rng(15)
A, B, V = RNG.standard_normal((4, 4)), RNG.standard_normal((4, 2)), RNG.standard_normal(4)
Z = A + 1j * A.T[::-1]
POSITIVE, TALL = A @ A.T + np.eye(4), RNG.standard_normal((5, 2))
HERMITIAN = Z @ Z.conj().T + np.eye(4)
SCOPE = {
    "np": np,
    "A": A,
    "B": B,
    "V": V,
    "Z": Z,
    "POSITIVE": POSITIVE,
    "TALL": TALL,
    "HERMITIAN": HERMITIAN,
}

EXPRESSIONS = """
m.cholesky(POSITIVE); m.cholesky(HERMITIAN, lower=True); m.cho_solve(m.cho_factor(POSITIVE), B)
m.cho_solve(m.cho_factor(HERMITIAN, True), V); m.det(A); m.inv(Z); m.svd(TALL); m.svd(A, False)
m.svd(A, compute_uv=False); m.svd(TALL, lapack_driver="gesvd"); m.qr(TALL); m.qr(A.T, mode="r")
m.qr(TALL, mode="economic"); m.qr(TALL.T, pivoting=True); m.qr(Z, mode="r", pivoting=True)
m.eigh(POSITIVE, eigvals_only=True); m.eigh(POSITIVE, POSITIVE + 1, eigvals_only=True)
m.eigh(HERMITIAN, HERMITIAN + np.eye(4), eigvals_only=True, type=2)
m.eigh(POSITIVE, POSITIVE + 1, eigvals_only=True, type=3); m.schur(A); m.schur(A, "complex")
m.schur(Z)
m.hessenberg(A); m.hessenberg(Z, calc_q=True); m.hessenberg(A[:1, :1], calc_q=True)
m.lu(A); m.lu(TALL); m.lu(TALL.T); m.lu(Z, permute_l=True); m.lu_factor(A)
m.lu_solve(m.lu_factor(A), B); m.lu_solve(m.lu_factor(Z), V, 1); m.lu_solve(m.lu_factor(Z), B, 2)
m.solve(A, B); m.solve(A, V); m.solve(POSITIVE, B, assume_a="pos"); m.solve(Z, B)
m.solve_triangular(A, B); m.solve_triangular(A, V, lower=True); m.solve_triangular(Z, B, "C")
m.solve_triangular(Z, B, 1, True, True); m.expm(A); m.expm(Z * 10); m.expm(A * 1e-3)
m.toeplitz(V); m.toeplitz(V, TALL[:, 0]); m.toeplitz(Z[0]); m.hankel(V); m.hankel(V, TALL[:, 0])
m.circulant(V); m.companion(V); m.leslie(V, V[:3]); m.fiedler(V); m.block_diag(A, B, V)
m.fiedler(np.uint8([3, 5]))
m.dft(5); m.dft(4, "sqrtn"); m.hadamard(8); m.helmert(5); m.helmert(3, full=True); m.hilbert(4)
m.invhilbert(4); m.pascal(5); m.pascal(4, "lower"); m.invpascal(5); m.invpascal(3, "upper")
"""


@pytest.mark.parametrize("expression", everyday(cases(EXPRESSIONS), 13))
def test_values(expression: str):
    as_peer(expression, linalg, scipy.linalg, SCOPE, kinds="pascal" not in expression)


def test_vectors_of_pairs_of_matrices():
    b = POSITIVE + 1
    with sw.enable_x64(True):
        for kind in (1, 2, 3):
            w, v = map(np.asarray, linalg.eigh(POSITIVE, b, type=kind))
            left, right = {
                1: (POSITIVE @ v, b @ v),
                2: (POSITIVE @ b @ v, v),
                3: (b @ POSITIVE @ v, v),
            }[kind]
            np.testing.assert_allclose(left, right * w, atol=1e-9)


@pytest.mark.sweep
def test_batches():
    batch = np.stack([A, A.T, A @ A]).astype(np.float32)
    for fun in (
        linalg.expm,
        linalg.inv,
        lambda x: linalg.lu(x)[1],
        lambda x: linalg.qr(x)[1],
        lambda x: linalg.hessenberg(x, calc_q=True)[1],
        linalg.circulant,
        lambda x: linalg.solve(x, B.astype(np.float32)),
    ):
        found = np.asarray(fun(batch))
        np.testing.assert_allclose(found, np.stack([fun(x) for x in batch]), 1e-3, 1e-3)
        np.testing.assert_allclose(sw.vmap(fun)(batch), found, 1e-3, 1e-3)


def test_gradients():
    with sw.enable_x64(True):
        for fun in (
            linalg.expm,
            lambda x: linalg.expm(x * 8),
            lambda x: linalg.lu(x)[2],
            lambda x: linalg.cho_solve(linalg.cho_factor(x @ x.T), B),
            lambda x: linalg.lu_solve(linalg.lu_factor(x), B, 1),
            lambda x: linalg.eigh(x, POSITIVE)[0],
            linalg.companion,
        ):
            differentiated(fun, A)


def test_too_many_squarings_are_nan():
    assert np.isnan(linalg.expm(A.astype(np.float32) * 1e3, max_squarings=3)).all()


test_messages = messages(
    """
linalg.qr(A, mode="raw")
    ValueError: qr: mode must be 'full', 'r' or 'economic'; got 'raw'.
linalg.schur(A, "quaternions")
    ValueError: schur: output must be 'real' or 'complex'; got 'quaternions'.
linalg.eigh(A, type=4)
    ValueError: eigh: type must be 1, 2 or 3; got 4.
linalg.solve(A, B, assume_a="banded")
    ValueError: solve: assume_a must be 'gen', 'sym', 'her' or 'pos'; got 'banded'.
linalg.solve_triangular(A, B, 5)
    ValueError: solve_triangular: trans must be 0, 1, 2, 'N', 'T' or 'C'; got 5.
linalg.companion(V[:1])
    ValueError: companion: a must have two elements or more; got f32[1].
""",
    globals(),
)


@pytest.mark.parametrize(
    "name", [n for n in dir(linalg) if not n.startswith("_") and hasattr(theirs, n)]
)
def test_signatures_are_those_of_jax(name: str):
    ours, known = signature(getattr(linalg, name)), signature(getattr(theirs, name))
    if name == "dft":  # has a dtype since jax 0.11
        ours, known = [[p for p in found if p[0] != "dtype"] for found in (ours, known)]
    assert ours == known
