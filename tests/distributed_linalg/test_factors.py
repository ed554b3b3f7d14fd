"""Factors of one sharded matrix: values, and no device holds all of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.linalg

import shardwise as sw
from shardwise import P
from shardwise.numpy import linalg
from shardwise.sharding import AxisType
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(17)
WAYS = {
    "rows": ((8,), P("x")),
    "columns": ((8,), P(None, "x")),
    "tiles": ((4, 2), P("x", "y")),
    "wide tiles": ((2, 4), P("x", "y")),
    "turned": ((2, 4), P("y", "x")),
    "some": ((2, 4), P("y")),
    "some columns": ((4, 2), P(None, "y")),
    "rows over two": ((4, 2), P(("x", "y"))),
    "turned rows": ((4, 2), P(("y", "x"))),
}
KINDS = [AxisType.Auto, AxisType.Explicit]


def matrix(n: int, m: int, dtype: str) -> np.ndarray:
    x = RNG.standard_normal((n, m))
    return (x + 1j * RNG.standard_normal((n, m)) if dtype[0] == "c" else x).astype(dtype)


def positive(n: int, dtype: str) -> np.ndarray:
    x = matrix(n, n, dtype)
    return (x @ x.conj().T / n + np.eye(n)).astype(dtype)


def placed(x: np.ndarray, way: str, kind: AxisType = AxisType.Auto):
    sizes, spec = WAYS[way]
    mesh = sw.make_mesh(sizes, ("x", "y")[: len(sizes)], axis_types=(kind,) * len(sizes))
    return sw.device_put(x, sw.NamedSharding(mesh, P(*spec[: x.ndim])))


def largest(compiled) -> int:
    """The largest number of elements of an array on any device."""
    shapes = re.findall(r"[sfc]\d+\[([\d,]+)\]", compiled.as_text())
    return max(np.prod([int(n) for n in shape.split(",")]) for shape in shapes)


B = matrix(64, 5, "float64")
FUNCTIONS = {
    "cholesky": (lambda x: linalg.cholesky(x), np.linalg.cholesky, positive),
    "upper": (
        lambda x: linalg.cholesky(x, upper=True, symmetrize_input=False),
        lambda x: np.linalg.cholesky(x).conj().T,
        positive,
    ),
    "lu": (lambda x: sw.lax.linalg.lu(x), lambda x: lu_of(x), lambda n, d: matrix(n, n, d)),
    "tall lu": (lambda x: sw.lax.linalg.lu(x), lambda x: lu_of(x), lambda n, d: matrix(n, 20, d)),
    "wide lu": (lambda x: sw.lax.linalg.lu(x), lambda x: lu_of(x), lambda n, d: matrix(20, n, d)),
    "solve": (
        lambda x: linalg.solve(x, right(x)),
        lambda x: np.linalg.solve(x, right(x)),
        lambda n, d: matrix(n, n, d),
    ),
    "solve of a vector": (
        lambda x: linalg.solve(x, right(x)[:, 0]),
        lambda x: np.linalg.solve(x, right(x)[:, 0]),
        lambda n, d: matrix(n, n, d),
    ),
    "inv": (linalg.inv, np.linalg.inv, lambda n, d: matrix(n, n, d) + np.eye(n, dtype=d)),
    "qr": (linalg.qr, np.linalg.qr, lambda n, d: matrix(n, n, d)),
    "tall qr": (linalg.qr, np.linalg.qr, lambda n, d: matrix(n, 16, d)),
    "full qr": (
        lambda x: linalg.qr(x, "complete"),
        lambda x: np.linalg.qr(x, "complete"),
        lambda n, d: matrix(n, 24, d),
    ),
    "wide qr": (linalg.qr, np.linalg.qr, lambda n, d: matrix(16, n, d)),
}


def right(x):
    return B[: x.shape[0]].astype(x.dtype)


def lu_of(x: np.ndarray):
    factors, pivots = scipy.linalg.lapack.get_lapack_funcs(("getrf",), (x,))[0](x)[:2]
    order = np.arange(x.shape[0])
    for i, k in enumerate(pivots):
        order[[i, k]] = order[[k, i]]
    return factors, pivots, order


EVEN = 40  # its type can express the sharding over 8 devices
CASES = [
    (f, w, k, d)
    for f in FUNCTIONS
    for w in WAYS
    for k in KINDS
    for d in ("float32", "float64", "complex64", "complex128")
]


def compared(found, wanted, near: float) -> None:
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, z, near, near)


@pytest.mark.parametrize(("name", "way", "kind", "dtype"), everyday(CASES, 2))
def test_values(name: str, way: str, kind: AxisType, dtype: str):
    """37 rows on 8 devices are uneven; types describe even shardings only."""
    ours, theirs, make = FUNCTIONS[name]
    x = make(37 if kind is AxisType.Auto else EVEN, dtype)
    with sw.enable_x64(True):
        found = ours(placed(x, way, kind))
    compared(found, theirs(x), 2e-3 if dtype in ("float32", "complex64") else 1e-9)


@pytest.mark.parametrize(
    ("name", "way"),
    everyday(
        [
            (f, w)
            for f in FUNCTIONS
            if f[-2:] != "lu" and f[-3:] != " qr"
            for w in WAYS
            if w[:4] != "some"
            # For these the partitioner replicates the identity, and so the result.
            and (f, w) not in (("inv", "columns"), ("inv", "wide tiles"))
        ],
        1,
    ),
)
def test_no_device_holds_the_matrix(name: str, way: str):
    """Also where the partitioner shards intermediate values on its own."""
    n = 64
    x = placed(FUNCTIONS[name][2](n, "float32"), way)
    compiled = sw.jit(FUNCTIONS[name][0]).lower(x).compile()
    assert largest(compiled) <= n * n // 4


@pytest.mark.sweep
def test_a_large_matrix():
    """4,096 rows, in tiles; with the memory per device in addition to operands and results."""
    n = 4096
    k = np.arange(n, dtype=np.float32)
    x = np.float32(0.5) ** np.abs(k[:, None] - k) + np.diag(1 + k / n)  # positive definite
    v = RNG.standard_normal((n, 4)).astype(np.float32)
    a = placed(x, "tiles")
    compiled = sw.jit(linalg.cholesky).lower(a).compile()
    assert largest(compiled) <= n * n // 4
    assert compiled.memory_analysis().temp_size_in_bytes < 1.5 * x.nbytes
    found = np.asarray(compiled(a))
    assert not np.triu(found, 1).any()
    np.testing.assert_allclose(found @ (found.T @ v), x @ v, 1e-4, 1e-4)


@pytest.mark.sweep
def test_what_fails_is_as_on_one_device():
    x = positive(40, "float32")
    for i, value in ((3, np.nan), (20, -5)):
        bad = x.copy()
        bad[i, i] = value
        found, wanted = [np.asarray(linalg.cholesky(y)) for y in (placed(bad, "tiles"), bad)]
        np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)
    singular = matrix(40, 40, "float32")
    singular[:, 7] = 0
    found = np.asarray(linalg.inv(placed(singular, "tiles")))
    assert not np.isfinite(found).all()
    compared(sw.lax.linalg.lu(placed(singular, "rows")), lu_of(singular), 2e-3)


SLOPES = {
    "cholesky": lambda x: linalg.cholesky(x @ x.T + 40 * np.eye(40, dtype="f4")),
    "solve": lambda x: linalg.solve(x + 40 * np.eye(40, dtype="f4"), x),
    "inv": lambda x: linalg.inv(x + 40 * np.eye(40, dtype="f4")),
    "qr": lambda x: linalg.qr(x)[0] * np.sqrt(np.arange(40, dtype="f4")) + linalg.qr(x)[1],
}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "way", "kind"),
    everyday(
        [(f, w, k) for f in SLOPES for w in ("rows", "wide tiles", "columns") for k in KINDS], 2
    ),
)
def test_gradients(name: str, way: str, kind: AxisType):
    x = matrix(40, 40, "float32")

    def f(x):
        return (SLOPES[name](x) ** 2).sum()

    if kind is AxisType.Explicit and name in ("cholesky", "solve"):
        # x @ x.T would contract a sharded dimension
        fun = linalg.cholesky if name == "cholesky" else (lambda x: linalg.solve(x, x * x))
        x = positive(40, "float32")

        def f(x):
            return (fun(x) ** 2).sum()

    compared(sw.grad(f)(placed(x, way, kind)), np.asarray(sw.grad(f)(x)), 1e-3)


@pytest.mark.parametrize(
    ("way", "left", "lower", "form"),
    everyday(
        [(w, i, j, f) for w in WAYS for i in (True, False) for j in (True, False) for f in "NTC"], 1
    ),
)
def test_triangular_systems(way: str, left: bool, lower: bool, form: str):
    a = (matrix(37, 37, "complex64") / 8 + 2 * np.eye(37)).astype("complex64")
    b = matrix(37, 7, "complex64")
    b = b if left else b.T.copy()
    flags = {"transpose_a": form != "N", "conjugate_a": form == "C"}
    own = np.tril(a) if lower else np.triu(a)
    own = {"N": own, "T": own.T, "C": own.conj().T}[form]
    fun = sw.jit(
        lambda a, b: sw.lax.linalg.triangular_solve(a, b, left_side=left, lower=lower, **flags)
    )
    for x, y in ((placed(a, way), b), (placed(a, way), placed(b, way))):
        found = fun(x, y)
        wanted = np.linalg.solve(own, b) if left else np.linalg.solve(own.T, b.T).T
        np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)
