"""Samples of ops on matrices: triangular systems, factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from shardwise.testing import Sample

RNG = np.random.default_rng(6)
A = (RNG.standard_normal((4, 3, 3)) + 3 * np.eye(3)).astype(np.float32)
B = RNG.standard_normal((4, 3, 2)).astype(np.float32)
Z = (A + 1j * RNG.standard_normal(A.shape)).astype(np.complex64)
POSITIVE = (A @ A.mT + np.eye(3)).astype(np.float32)
HERMITIAN = (Z @ Z.conj().mT + np.eye(3)).astype(np.complex64)
NOT_POSITIVE = np.stack([POSITIVE[0], -POSITIVE[1]])


def _solve(a: Any, b: Any, left: bool, lower: bool, form: str, unit: bool, **more: Any) -> Sample:
    def one(a: Any, b: Any) -> Any:
        trans = {"N": 0, "T": 1, "C": 2}[form]
        if left:
            return scipy.linalg.solve_triangular(a, b, trans, lower, unit)
        if form == "C":  # x aᴴ = b is ā xᵀ = bᵀ
            return scipy.linalg.solve_triangular(a.conj(), b.T, 0, lower, unit).T
        return scipy.linalg.solve_triangular(a, b.T, 1 - trans, lower, unit).T

    def reference(a: Any, b: Any) -> Any:
        rows = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True)
        return np.array([one(*row) for row in rows], b.dtype).reshape(b.shape)

    params = {"left_side": left, "lower": lower, "form": form, "unit_diagonal": unit}
    return Sample((a, b), params, reference, tolerance=2e-3, **more)


def _cholesky(x: Any) -> Any:
    found = [
        np.full_like(m, np.nan) if np.linalg.eigvalsh(m)[0] < 0 else np.linalg.cholesky(m)
        for m in x.reshape(-1, *x.shape[-2:])
    ]
    return np.tril(np.array(found, x.dtype).reshape(x.shape))


SAMPLES: dict[str, list[Sample]] = {
    "triangular_solve": [
        _solve(A, B, True, True, "N", False),
        _solve(A, B.mT.copy(), False, False, "T", False, placed=False),
        _solve(A[0], B[0], True, False, "N", True),
        _solve(A[0], B[0].T.copy(), False, True, "T", False),
        _solve(Z, B.astype(np.complex64), True, False, "C", False, placed=False),
        _solve(Z, B.mT.astype(np.complex64), False, True, "C", True, placed=False),
        _solve(A[:0], B[:0], True, True, "N", False, order=0, placed=False, why="no elements"),
    ],
    "hermitian_part": [
        Sample((A,), {}, lambda x: (x + x.mT) / 2),
        Sample((A[0],), {}, lambda x: (x + x.T) / 2),
        Sample((HERMITIAN + Z,), {}, lambda x: (x + x.mT.conj()) / 2, placed=False),
    ],
    "cholesky": [
        Sample((POSITIVE,), {}, _cholesky, tolerance=2e-3, variants=lambda i, x, k: x * (1 + k)),
        Sample((POSITIVE[0],), {}, _cholesky, tolerance=2e-3, variants=lambda i, x, k: x * (1 + k)),
        Sample(
            (HERMITIAN,),
            {},
            _cholesky,
            tolerance=2e-3,
            placed=False,
            variants=lambda i, x, k: x * (1 + k),
        ),
        Sample(
            (NOT_POSITIVE,),
            {},
            _cholesky,
            order=0,
            placed=False,
            why="NaN",
            variants=lambda i, x, k: x * (1 + k),
        ),
    ],
}
