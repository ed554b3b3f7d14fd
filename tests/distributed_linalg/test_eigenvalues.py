"""Eigenvalues of one sharded matrix: hard matrices, all methods, no gathering."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.numpy import linalg
from shardwise.sharding import AxisType
from tests.distributed_linalg.test_factors import EVEN, KINDS, WAYS, largest, matrix, placed
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(23)
DTYPES = ("float32", "float64", "complex64", "complex128")


def of_values(values: np.ndarray, dtype: str) -> np.ndarray:
    q = np.linalg.qr(matrix(len(values), len(values), "c16" if dtype[0] == "c" else "f8"))[0]
    return ((q * values) @ q.conj().T).astype(dtype)


def hard(n: int, dtype: str) -> dict[str, np.ndarray]:
    """Equal and almost equal values, no coupling, large and small elements."""
    around = np.abs(np.arange(n) - n // 2).astype(dtype)
    few = np.zeros(n)
    few[-4:] = 1, 1, 2, -1
    x = matrix(n, n, dtype)
    scale = 1e15 if float(np.finfo(dtype).max) < 1e40 else 1e150
    return {
        "any": x + x.conj().T,
        "large": (x + x.conj().T) * np.asarray(scale, dtype),
        "small": (x + x.conj().T) * np.asarray(1 / scale, dtype),
        "zero": np.zeros((n, n), dtype),
        "one": np.eye(n, dtype=dtype),
        "diagonal": np.diag(np.arange(n)[::-1]).astype(dtype),
        "clusters": of_values(np.arange(n) // 10 + 1.0, dtype),
        "low rank": of_values(few, dtype),
        "graded": of_values(10.0 ** -np.arange(n), dtype),
        "Wilkinson": np.diag(around)
        + np.diag(np.ones(n - 1, dtype), 1)
        + np.diag(np.ones(n - 1, dtype), -1),
        "ones": np.ones((n, n), dtype),
    }


def check(x: np.ndarray, v: np.ndarray, w: np.ndarray) -> None:
    n, near = len(x), 60 * np.finfo(w.dtype).eps
    x, v = [y.astype("complex128") for y in (x, v)]
    size = np.abs(x).max() or 1.0
    assert (np.diff(w) >= 0).all()
    assert np.abs(v.conj().T @ v - np.eye(n)).max() <= near
    assert np.abs((x / size) @ v - v * (w / size)).max() <= near * n
    assert np.abs(w / size - np.linalg.eigvalsh(x / size)).max() <= near * n


@pytest.mark.parametrize(
    ("way", "kind", "dtype"), everyday([(w, k, d) for w in WAYS for k in KINDS for d in DTYPES], 1)
)
def test_values_and_vectors(way: str, kind: AxisType, dtype: str):
    for x in hard(37 if kind is AxisType.Auto else EVEN, dtype).values():
        with sw.enable_x64(True):
            v, w = sw.lax.linalg.eigh(placed(x, way, kind), symmetrize_input=False)
        check(x, np.asarray(v), np.asarray(w))


def on(devices: int, x: np.ndarray):
    mesh = sw.sharding.Mesh(np.array(sw.devices()[:devices]), ("x",))
    return sw.device_put(x, sw.NamedSharding(mesh, sw.P(None, "x")))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("devices", "n", "lower"),
    [(3, 16, True), (5, 23, False), (6, 13, True), (7, 9, True), (8, 5, False), (2, 80, True)],
)
def test_other_numbers_of_devices(devices: int, n: int, lower: bool):
    x = matrix(n, n, "complex64")
    own = np.tril(x) if lower else np.triu(x)
    v, w = sw.lax.linalg.eigh(on(devices, x), lower=lower, symmetrize_input=False)
    own = own + own.conj().T - np.diag(np.diag(own).real)
    check(own, np.asarray(v), np.asarray(w))


def test_no_device_holds_the_matrix():
    n = 64
    x = placed(hard(n, "float32")["any"], "tiles")
    assert largest(sw.jit(linalg.eigh).lower(x).compile()) <= n * n // 4


@pytest.mark.sweep
def test_values_alone_and_what_is_not_finite():
    x = hard(EVEN, "float32")["any"]
    y = placed(x, "rows", AxisType.Explicit)
    np.testing.assert_allclose(linalg.eigvalsh(y), np.linalg.eigvalsh(x), 1e-4, 1e-4)
    x[7, 3] = x[3, 7] = np.nan
    assert np.isnan(linalg.eigvalsh(placed(x, "rows", AxisType.Explicit))).all()


@pytest.mark.sweep
def test_derivatives():
    x = hard(16, "float32")["any"]

    def f(x):
        w, v = linalg.eigh(x)
        return (w**3).sum() + (abs(v) * np.arange(16.0, dtype="f4")).sum()

    found, wanted = [np.asarray(sw.grad(f)(z)) for z in (on(2, x), x)]
    np.testing.assert_allclose(found, wanted, 1e-2, 1e-2 * np.abs(wanted).max())
