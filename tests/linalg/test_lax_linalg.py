"""`lax.linalg`: values, arguments, and the options that are rejected."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.linalg
from jax.lax import linalg as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.lax import linalg
from tests.helpers.composed import differentiated, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(14)
A = RNG.standard_normal((3, 4, 4)).astype(np.float32)
Z = (A + 1j * A[::-1]).astype(np.complex64)
TALL = RNG.standard_normal((3, 5, 2)).astype(np.float32)
POSITIVE = (A @ A.mT + np.eye(4)).astype(np.float32)
B = RNG.standard_normal((3, 4, 2)).astype(np.float32)
W = RNG.standard_normal((3, 4)).astype(np.float32)
UPPER = np.triu(A) + 3 * np.eye(4, dtype=np.float32)
close = lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-4)  # noqa: E731


def test_as_jax():
    """Results in the order of jax, where they are unique or LAPACK's."""
    for name, args, options in (
        ("cholesky", (POSITIVE,), {}),
        ("cholesky", (np.tril(POSITIVE),), {"symmetrize_input": False}),
        ("eigh", (POSITIVE,), {}),
        ("eigh", (np.triu(POSITIVE),), {"lower": False, "symmetrize_input": False}),
        ("svd", (TALL,), {}),
        ("svd", (TALL,), {"full_matrices": False}),
        ("svd", (TALL,), {"compute_uv": False}),
        ("qr", (TALL,), {}),
        ("qr", (TALL,), {"full_matrices": False}),
        ("qr", (TALL,), {"pivoting": True}),
        ("lu", (TALL,), {}),
        ("lu", (Z,), {}),
        ("schur", (Z,), {}),
        ("hessenberg", (A,), {}),
        ("schur", (A,), {"compute_schur_vectors": False}),
        ("tridiagonal", (POSITIVE,), {}),
        ("tridiagonal", (POSITIVE,), {"lower": False}),
        ("householder_product", (TALL, W[:, :2]), {}),
        ("eig", (A,), {}),
        ("eig", (A,), {"compute_left_eigenvectors": False}),
        ("ormqr", (TALL, W[:, :2], TALL), {"transpose": True}),
        ("ormqr", (TALL, W[:, :2], TALL.mT), {"left": False}),
        ("cholesky_update", (np.linalg.cholesky(POSITIVE[0]).mT, W[0]), {}),
        ("tridiagonal_solve", (W, W + 4, W[::-1], B), {}),
        ("tridiagonal_solve", (W, W * 0, W * 0, B), {"perturb_singular": True}),
        (
            "symmetric_product",
            (TALL, RNG.standard_normal((3, 5, 5)).astype(np.float32)),
            {"alpha": 2.0, "beta": 0.5, "symmetrize_output": True},
        ),
        ("lu_pivots_to_permutation", (np.int32([[1, 3, 2]]), 5), {}),
    ):
        ours, wanted = [
            jax.tree.leaves(f(*args, **options))
            for f in (getattr(linalg, name), getattr(theirs, name))
        ]
        assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in wanted], name
        for x, y in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(x, y, 2e-3, 2e-3, err_msg=f"{name} {options}")


@pytest.mark.parametrize("left_side", everyday([True, False], 1))
@pytest.mark.parametrize("transpose_a", [True, False])
@pytest.mark.parametrize("conjugate_a", [True, False])
def test_triangular_solve(left_side, transpose_a, conjugate_a):
    a = UPPER + 0.5j * np.triu(A[::-1])
    options = {"left_side": left_side, "transpose_a": transpose_a, "conjugate_a": conjugate_a}
    for b in (B if left_side else B.mT, W):
        b = b.astype(a.dtype)
        close(linalg.triangular_solve(a, b, **options), theirs.triangular_solve(a, b, **options))


def test_ranges_of_eigenvalues_and_singular_values():
    v, w = linalg.eigh(POSITIVE, subset_by_index=(1, 3))
    wanted = np.linalg.eigvalsh(POSITIVE)[:, 1:3]
    close(w, wanted)
    close(POSITIVE @ np.asarray(v), np.asarray(v) * wanted[:, None])
    u, s, vh = linalg.svd(A, full_matrices=False, subset_by_index=(0, 2))
    close(s, np.linalg.svd(A, compute_uv=False)[:, :2])
    assert (u.shape, vh.shape) == ((3, 4, 2), (3, 2, 4))


def test_algorithms():
    for kind in (linalg.SvdAlgorithm.QR, theirs.SvdAlgorithm.QR, linalg.SvdAlgorithm.DEFAULT):
        found = linalg.svd(A, compute_uv=False, algorithm=kind)
        close(found, np.linalg.svd(A, compute_uv=False))


@pytest.mark.sweep
def test_eigenvectors_have_derivatives_where_they_are_asked_for():
    def f(x):
        found = linalg.eig(x, enable_eigvec_derivs=True)
        return [(jnp.abs(y) ** 3, y.real) for y in found]

    with sw.enable_x64(True):
        differentiated(f, A.astype(np.float64))


def test_updates_and_systems_have_gradients():
    r = np.linalg.cholesky(POSITIVE).mT.astype(np.float64)
    with sw.enable_x64(True):

        def f(w):
            return jnp.sin(linalg.cholesky_update(r, w)).sum()

        def g(w):
            whole = jnp.asarray(r.mT @ r) + w[:, :, None] * w[:, None]
            return jnp.sin(linalg.cholesky(whole).mT).sum()

        w = W.astype(np.float64)
        np.testing.assert_allclose(sw.grad(f)(w), sw.grad(g)(w), 1e-9, 1e-9)


def test_schur_is_that_of_scipy():
    t, z = linalg.schur(A[0])
    for x, y in zip((t, z), scipy.linalg.schur(A[0]), strict=True):
        close(x, y)


test_messages = messages(
    """
linalg.svd(A, algorithm=linalg.SvdAlgorithm.JACOBI)
    NotImplementedError: svd: algorithm SvdAlgorithm.JACOBI is not implemented; the options are
    SvdAlgorithm.DEFAULT and SvdAlgorithm.QR and SvdAlgorithm.DIVIDE_AND_CONQUER, or None.
linalg.eigh(A, implementation="qr")
    TypeError: eigh: implementation must be one of EighImplementation, or None; got 'qr'.
linalg.qr(A, use_magma=True)
    NotImplementedError: qr: MAGMA is not available; leave out `use_magma`.
linalg.schur(A, sort_eig_vals=True)
    NotImplementedError: schur: eigenvalues cannot be sorted; leave out sort_eig_vals and
    select_callable.
linalg.eigh(A, subset_by_index=(3, 2))
    ValueError: eigh: subset_by_index must be a range between 0 and 4; got (3, 2).
linalg.cholesky(A[0, 0])
    ValueError: cholesky: takes a square matrix, or a batch of them; got f32[4].
linalg.householder_product(TALL.mT, W[:, :2])
    ValueError: householder_product: takes reflectors in the columns of a matrix with at least as
    many rows as columns, and at most one scale for each; got f32[2,5] and f32[2].
linalg.cholesky_update(Z, W)
    TypeError: cholesky_update takes real operands; got complex ones.
""",
    globals(),
)


@pytest.mark.parametrize("name", [n for n in dir(linalg) if n[0].islower() and n[-2:] != "_p"])
def test_signatures_are_those_of_jax(name: str):
    assert signature(getattr(linalg, name)) == signature(getattr(theirs, name))
