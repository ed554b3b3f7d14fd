"""Factors of a matrix of 4,096 rows in 4 × 2 tiles: errors by LAPACK's test ratios, and memory.

Only in a sweep: the largest takes a minute or two of CPU.

A ratio is an error over n ε |A|. LAPACK's own tests require it to be below 30; here it is below 1.
Norms are Frobenius norms: the norm of E is the mean of |E v| over random vectors v.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import P
from shardwise.numpy import linalg

N = 4096
RNG = np.random.default_rng(3)
V = RNG.standard_normal((N, 64))
WHOLE = N * N * 4  # bytes
MIB = 2**20


def size(error: np.ndarray) -> float:
    """The norm of E from E V."""
    return float(np.linalg.norm(error) / np.sqrt(V.shape[1]))


def off_unit(q: np.ndarray) -> float:
    return size(q.T @ (q @ V) - V) / (N * float(np.finfo(np.float32).eps))


def ratio(error: np.ndarray, x: np.ndarray) -> float:
    return size(error) / (N * float(np.finfo(np.float32).eps) * float(np.linalg.norm(x)))


def random() -> np.ndarray:
    return RNG.standard_normal((N, N)).astype(np.float32)


def positive() -> np.ndarray:
    k = np.arange(N, dtype=np.float32)
    return np.float32(0.5) ** np.abs(k[:, None] - k) + np.diag(1 + k / N)


def symmetric() -> np.ndarray:
    x = random()
    return (x + x.T) / 2


def of_cholesky(x: np.ndarray, found: list[np.ndarray]) -> dict[str, float]:
    (lower,) = found
    assert not np.triu(lower, 1).any()
    return {"l lᵀ": ratio(lower @ (lower.T @ V) - x @ V, x)}


def of_solve(x: np.ndarray, found: list[np.ndarray]) -> dict[str, float]:
    """For x y = xᵀ; relative to |y|, the effect of rounding a solution."""
    (y,) = found
    (y,) = found
    return {"x y": ratio(x @ (y @ V) - x.T @ V, x) / float(np.linalg.norm(y))}


def of_qr(x: np.ndarray, found: list[np.ndarray]) -> dict[str, float]:
    q, r = found
    assert not np.tril(r, -1).any()
    return {"qᵀ q": off_unit(q), "q r": ratio(q @ (r @ V) - x @ V, x)}


def of_eigh(x: np.ndarray, found: list[np.ndarray]) -> dict[str, float]:
    w, v = found
    assert (np.diff(w) >= 0).all()
    return {"vᵀ v": off_unit(v), "v w vᵀ": ratio(v @ (w[:, None] * (v.T @ V)) - x @ V, x)}


# function, matrix, ratios, MiB per device for intermediate values
CASES: dict[str, tuple[Callable[..., Any], Callable[[], np.ndarray], Callable[..., Any], int]]
CASES = {
    "cholesky": (linalg.cholesky, positive, of_cholesky, 80),
    "solve": (lambda x: linalg.solve(x, x.T), random, of_solve, 160),
    "qr": (linalg.qr, random, of_qr, 120),
    "eigh": (linalg.eigh, symmetric, of_eigh, 84),
}


def largest(text: str) -> int:
    """The largest number of elements of an array on any device."""
    shapes = re.findall(r"[sfc]\d+\[([\d,]+)\]", text)
    return max(int(np.prod([int(n) for n in shape.split(",")])) for shape in shapes)


@pytest.mark.timeout(1200)
@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_a_large_matrix(name: str):
    function, make, ratios, most = CASES[name]
    x = make()
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    a = sw.device_put(x, sw.NamedSharding(mesh, P("x", "y")))
    compiled = sw.jit(function).lower(a).compile()
    assert largest(compiled.as_text()) <= N * N // 4
    assert compiled.memory_analysis().temp_size_in_bytes <= most * MIB
    found = sw.tree.leaves(compiled(a))
    for y in found:
        held = max(shard.data.nbytes for shard in y.addressable_shards)
        assert y.ndim < 2 or held <= WHOLE // 4, f"{held} bytes of {y.sharding} on a device"
    wide = [np.asarray(y).astype(np.float64) for y in found]
    seen = ratios(x.astype(np.float64), wide)
    assert all(r < 1 for r in seen.values()), seen
