"""Samples of ops that factor matrices: eigenvalues, singular values, orthogonal factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from shardwise.testing import Sample
from tests.ops.samples_matrices import HERMITIAN, POSITIVE, A, B, Z

ORDER = np.linspace(0.0, 3.0, 3).astype(np.float32)
SYMMETRIC = (POSITIVE[:2] + np.diag(ORDER * 4)).astype(np.float32)
TALL = np.concatenate([A[:2], A[2:]], axis=1).astype(np.float32)  # [2, 6, 3]
TALL = TALL[:, :4] + np.float32(0.5) * np.eye(4, 3, dtype=np.float32)
WIDE = TALL.mT.copy()
SINGULAR = A[:2].copy()
SINGULAR[:, :, 0] = 0
COMPLEX_TALL = (TALL + 0.3j * TALL[:, ::-1]).astype(np.complex64)
LINES = np.abs(A[:, 0]) + 1
SCALES = np.float32([[1.0, 1.5], [0.5, 1.2]])
NONE = "has no derivative"
FREE = "vectors have a free factor; tests/numpy/test_linalg_derivatives.py"


def each(fun: Any) -> Any:
    """Extends a function of single matrices to batches; it may have several results."""

    def batched(*args: Any) -> Any:
        leading = args[0].shape[:-2]
        flat = [a.reshape(-1, *a.shape[len(leading) :]) for a in args]
        found = [fun(*row) for row in zip(*flat, strict=True)]
        if not isinstance(found[0], tuple | list):
            return np.stack(found).reshape(*leading, *np.shape(found[0]))
        columns = zip(*found, strict=True)
        return [np.stack(c).reshape(*leading, *np.shape(c[0])) for c in columns]

    return batched


def _lu(x: Any) -> Any:
    (found, pivots, _) = scipy.linalg.get_lapack_funcs(("getrf",), (x,))[0](x)
    return found, pivots.astype(np.int32), _permutation(pivots, len(x))


def _permutation(pivots: Any, size: int) -> Any:
    order = np.arange(size, dtype=np.int32)
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    return order


def _lu_of(a: Any) -> Any:
    return each(_lu)(a)


def _raw(x: Any, pivoting: bool = False) -> Any:
    found = scipy.linalg.qr(x, mode="raw", pivoting=pivoting)
    (a, taus) = found[0]
    return (a, taus, found[2].astype(np.int32)) if pivoting else (a, taus)


def _qr(x: Any, full: bool, pivoting: bool) -> Any:
    q, r, *order = scipy.linalg.qr(x, mode="full" if full else "economic", pivoting=pivoting)
    return (q, r, *[p.astype(np.int32) for p in order])


def _adjugate(x: Any) -> Any:
    n = len(x)
    out = np.empty_like(x)
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(x, j, 0), i, 1)
            out[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


def _reflections(a: Any, taus: Any, columns: int | None = None) -> Any:
    m = len(a)
    q = np.eye(m, dtype=a.dtype)
    for i, tau in enumerate(taus):
        v = np.concatenate([np.zeros(i), [1], a[i + 1 :, i]]).astype(a.dtype)
        q = q @ (np.eye(m) - tau * np.outer(v, v.conj()))
    return q[:, : a.shape[1] if columns is None else columns].astype(a.dtype)


def _tridiagonal(a: Any, lower: bool) -> Any:
    (run,) = scipy.linalg.get_lapack_funcs(("hetrd" if np.iscomplexobj(a) else "sytrd",), (a,))
    return run(a, lower=lower)[:4]


def _hessenberg(a: Any) -> Any:
    (run,) = scipy.linalg.get_lapack_funcs(("gehrd",), (a,))
    return run(a)[:2]


def _dense(dl: Any, d: Any, du: Any) -> Any:
    return np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)


def _pinv(x: Any, rtol: Any) -> Any:
    return np.linalg.pinv(x, float(rtol))


def _scaled(i: int, x: Any, k: int) -> Any:
    return x * np.asarray(1 + 0.3 * k, x.dtype)


FACTORS, _, PERMUTATIONS = _lu_of(A)
Z_FACTORS, _, Z_PERMUTATIONS = _lu_of(Z)


def _solve(a: Any, b: Any, factors: Any, order: Any, form: str, **more: Any) -> Sample:
    matrix = {"N": a, "T": a.mT, "C": a.conj().mT}[form]
    return Sample(
        (a, factors, order, b),
        {"form": form},
        np.linalg.solve(matrix, b),
        tolerance=2e-3,
        order=0,
        why="factors are constants; see `solve` in tests/numpy",
        variants=lambda i, x, k: x,
        **more,
    )


def _eigh(x: Any, lower: bool, **more: Any) -> Sample:
    def reference(x: Any) -> Any:
        w, v = scipy.linalg.eigh(x, lower=lower, driver="evd")
        return v, w

    return Sample((x,), {"lower": lower, "vectors": True}, each(reference), tolerance=2e-3, **more)


def _svd(x: Any, full: bool, **more: Any) -> Sample:
    def reference(x: Any) -> Any:
        u, s, vh = scipy.linalg.svd(x, full_matrices=full)
        return s, u, vh

    return Sample(
        (x,), {"full_matrices": full, "vectors": True}, each(reference), tolerance=2e-3, **more
    )


def _near(args: Any, params: Any, reference: Any, placed: bool = False, **more: Any) -> Sample:
    """A sample whose results are less exact. args: one matrix, or a tuple."""
    args = args if isinstance(args, tuple) else (args,)
    return Sample(args, params, reference, tolerance=2e-3, placed=placed, **more)


def _grown(i: int, x: Any, k: int) -> Any:
    return x * np.float32(1 + k) if i == 0 else x


def _orthogonal(x: Any, full: bool, pivoting: bool, **more: Any) -> Sample:
    params = {"full_matrices": full, "pivoting": pivoting}
    return _near(x, params, each(lambda x: _qr(x, full, pivoting)), variants=_scaled, **more)


FREELY = {"order": 0, "placed": False, "why": FREE}
NEVER = {"order": 0, "why": NONE}

SAMPLES: dict[str, list[Sample]] = {
    "eigh": [
        _eigh(SYMMETRIC, True),
        _eigh(SYMMETRIC, False, placed=False),
        _eigh(HERMITIAN, True, **FREELY),
        _near(HERMITIAN, {"lower": True, "vectors": False}, np.linalg.eigvalsh, variants=_scaled),
        Sample(
            (SYMMETRIC[:0],),
            {"lower": True, "vectors": True},
            [SYMMETRIC[:0], SYMMETRIC[:0, 0]],
            order=0,
            placed=False,
            why="no elements",
        ),
    ],
    "svd": [
        _svd(TALL, False),
        _svd(WIDE, False, placed=False),
        _svd(A[:2], True, placed=False),
        _svd(TALL, True, order=0, placed=False, why="no derivative of a full basis"),
        _svd(COMPLEX_TALL, False, **FREELY),
        _near(
            COMPLEX_TALL,
            {"full_matrices": False, "vectors": False},
            each(lambda x: np.linalg.svd(x, compute_uv=False)),
        ),
        _near(
            WIDE,
            {"full_matrices": False, "vectors": False, "algorithm": "gesvd"},
            each(lambda x: np.linalg.svd(x, compute_uv=False)),
        ),
    ],
    "eig": [
        _near(
            A[:2],
            {"left": True, "right": True, "differentiable": True},
            each(lambda x: scipy.linalg.eig(x, left=True)),
            placed=True,
        ),
        _near(
            Z[:2], {"left": False, "right": True, "differentiable": True}, each(scipy.linalg.eig)
        ),
        _near(
            A[:2], {"left": False, "right": False, "differentiable": False}, each(np.linalg.eigvals)
        ),
    ],
    "lu": [
        _near(A[:2], {}, _lu_of, placed=True, variants=_scaled),
        _near(TALL, {}, _lu_of, variants=_scaled),
        _near(WIDE, {}, _lu_of, variants=_scaled),
        _near(Z[:2], {}, _lu_of, variants=_scaled),
    ],
    "lu_pivots_to_permutation": [
        Sample(
            (np.int32([[1, 3, 2], [0, 1, 4]]),),
            {"size": 5},
            lambda x: np.stack([_permutation(p, 5) for p in x]),
            variants=lambda i, x, k: x,
        ),
        Sample(
            (np.zeros((2, 0), np.int32),), {"size": 2}, np.int32([[0, 1], [0, 1]]), placed=False
        ),
    ],
    "lu_solve": [
        _solve(A, B, FACTORS, PERMUTATIONS, "N"),
        _solve(A, B, FACTORS, PERMUTATIONS, "T", placed=False),
        _solve(Z, B.astype(np.complex64), Z_FACTORS, Z_PERMUTATIONS, "C", placed=False),
    ],
    "det": [
        _near(A, {}, np.linalg.det, placed=True),
        _near(Z[:2], {}, np.linalg.det),
        _near(SINGULAR, {}, np.zeros(2, np.float32), order=1, why="equal singular values"),
        Sample((A[:, :0, :0],), {}, np.ones(4, np.float32), order=0, placed=False, why="empty"),
    ],
    "adjugate": [
        _near(A[:2], {}, each(_adjugate), placed=True),
        _near(Z[:2], {}, each(_adjugate)),
        _near(SINGULAR, {}, each(_adjugate), order=1, why="equal singular values"),
    ],
    "slogdet": [
        _near(A, {"method": "lu"}, lambda x: list(np.linalg.slogdet(x)), placed=True),
        *[_near(Z[:2], {"method": m}, lambda x: list(np.linalg.slogdet(x))) for m in ("lu", "qr")],
    ],
    "pinv": [
        _near((x, np.full(2, 1e-3, np.float32)), {}, each(_pinv), placed, variants=_grown)
        for x, placed in ((TALL, True), (COMPLEX_TALL.mT, False))
    ],
    "geqrf": [_near(TALL, {}, each(_raw), placed=True, **NEVER)],
    "geqp3": [_near(TALL, {}, each(lambda x: _raw(x, True)), placed=True, **NEVER)],
    "householder_product": [
        _near((TALL[:, :, :2].copy(), SCALES), {}, each(_reflections), placed=True, **NEVER),
        _near(
            (COMPLEX_TALL[:, :, :2].copy(), SCALES.astype(np.complex64)),
            {},
            each(_reflections),
            **NEVER,
        ),
    ],
    "ormqr": [
        _near(
            (TALL[:, :, :2].copy(), SCALES, TALL),
            {"left": True, "adjoint": True},
            each(lambda a, t, c: _reflections(a, t, 4).T @ c),
            placed=True,
            **NEVER,
        ),
        _near(
            (COMPLEX_TALL[:, :, :2].copy(), SCALES.astype(np.complex64), COMPLEX_TALL.mT.copy()),
            {"left": False, "adjoint": False},
            each(lambda a, t, c: c @ _reflections(a, t, 4)),
            **NEVER,
        ),
    ],
    "qr": [
        _orthogonal(TALL, False, False, placed=True),
        _orthogonal(TALL, True, False),
        _orthogonal(WIDE, False, True),
        _orthogonal(COMPLEX_TALL, True, False),
        Sample(
            (TALL[:, :, :0],),
            {"full_matrices": True, "pivoting": False},
            [np.stack([np.eye(4, dtype=np.float32)] * 2), np.zeros((2, 4, 0), np.float32)],
            order=0,
            placed=False,
            why="no elements",
        ),
    ],
    "schur": [
        _near(A, {"vectors": True}, each(scipy.linalg.schur), placed=True, **NEVER),
        _near(Z, {"vectors": True}, each(scipy.linalg.schur), **NEVER),
    ],
    "hessenberg": [
        _near(A, {}, each(_hessenberg), placed=True, **NEVER),
        Sample(
            (A[:, :1, :1],), {}, [A[:, :1, :1], np.zeros((4, 0), np.float32)], placed=False, **NEVER
        ),
    ],
    "tridiagonal": [
        _near(POSITIVE, {"lower": True}, each(lambda x: _tridiagonal(x, 1)), placed=True, **NEVER),
        Sample(
            (HERMITIAN[:, :1, :1],),
            {"lower": True},
            [
                HERMITIAN[:, :1, :1],
                HERMITIAN[:, :1, 0].real,
                np.zeros((4, 0), np.float32),
                np.zeros((4, 0), np.complex64),
            ],
            placed=False,
            **NEVER,
        ),
    ],
    "tridiagonal_solve": [
        _near(
            (A[:, 0], LINES + 3, A[:, 1], B),
            {"perturbed": False},
            np.stack(
                [
                    np.linalg.solve(_dense(*m), b)
                    for *m, b in zip(A[:, 0], LINES + 3, A[:, 1], B, strict=True)
                ]
            ),
            placed=True,
        ),
        _near(
            (Z[0, 0], Z[0, 1] + 5, Z[0, 2], B[0].astype(np.complex64)),
            {"perturbed": False},
            np.linalg.solve(_dense(Z[0, 0], Z[0, 1] + 5, Z[0, 2]), B[0]),
        ),
    ],
}
