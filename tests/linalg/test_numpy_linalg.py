"""Matrix decompositions and linear systems: values, empty ones, shardings, derivatives, errors."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain
from shardwise.numpy import linalg
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.composed import as_peer, close
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases
from tests.helpers.placed import MESH

RNG = np.random.default_rng(13)
A = RNG.standard_normal((3, 4, 4))
Z = A + 1j * A[::-1]
H = A + A.mT
POSITIVE = A @ A.mT + np.eye(4)
TALL, WIDE = RNG.standard_normal((3, 5, 2)), RNG.standard_normal((3, 2, 5))
B, V = RNG.standard_normal((3, 4, 2)), RNG.standard_normal(4)
T3, B3 = RNG.standard_normal((2, 3, 6)), RNG.standard_normal((2, 3))
SCOPE = {
    "np": np,
    "A": A,
    "Z": Z,
    "H": H,
    "POSITIVE": POSITIVE,
    "TALL": TALL,
    "WIDE": WIDE,
    "B": B,
    "V": V,
    "T3": T3,
    "B3": B3,
    "INTEGERS": np.array([[2, 1], [1, 4]]),
}

EXPRESSIONS = """
m.cholesky(POSITIVE); m.cholesky(POSITIVE, upper=True); m.cholesky(POSITIVE + 0.1j * (A - A.mT))
m.cholesky(INTEGERS); m.det(INTEGERS); m.inv(INTEGERS); m.solve(INTEGERS, np.array([1, 2]))
m.eigh(H); m.eigvalsh(H); m.eigvalsh(H, "U"); m.eigvalsh(Z + Z.conj().mT)
m.svd(TALL, False); m.svd(WIDE, False); m.svd(A); m.svd(A, compute_uv=False); m.svdvals(Z)
m.svd(H, False, False, True); m.svdvals(WIDE)
m.qr(A); m.qr(TALL, "complete"); m.qr(WIDE); m.qr(TALL, "r"); m.qr(A[0], "raw"); m.qr(Z)
m.det(A); m.det(Z); m.det(A[0]); m.slogdet(A); m.slogdet(Z); m.slogdet(A * 0); m.det(A[:, :1, :1])
m.inv(A); m.inv(Z); m.solve(A, B); m.solve(A, V); m.solve(A[0], B); m.solve(A, B[0]); m.solve(Z, B)
m.pinv(TALL); m.pinv(WIDE); m.pinv(Z); m.pinv(TALL, 0.5); m.pinv(TALL, rtol=np.array([.1, .5, .9]))
m.pinv(H, hermitian=True); m.pinv(TALL @ WIDE, 1e-6)
m.lstsq(TALL[0], V[[0, 1, 2, 3, 0]]); m.lstsq(TALL[0], WIDE[0].T)
m.matrix_rank(A); m.matrix_rank(TALL @ WIDE, 1e-5); m.matrix_rank(V)
m.matrix_rank(H, hermitian=True)
m.matrix_rank(POSITIVE, rtol=0.5); m.matrix_rank(POSITIVE, tol=1.0); m.matrix_rank(A * 0)
m.cond(A); m.cond(TALL); m.cond(A, 1); m.cond(A, -2); m.cond(A, "fro"); m.cond(A, np.inf)
m.cond(A, "nuc"); m.cond(Z, -1)
m.norm(A[0], 2); m.norm(A, -2, (1, 2)); m.norm(A, "nuc", (2, 0), True); m.norm(TALL, 2, (-1, 0))
m.matrix_norm(A, ord=2); m.matrix_norm(TALL, ord="nuc", keepdims=True)
m.matrix_power(A, -1); m.matrix_power(Z, -3)
m.tensorinv(T3); m.tensorinv(T3.reshape(6, 2, 3), 1); m.tensorsolve(T3, B3)
m.tensorsolve(T3.transpose(0, 2, 1), B3, (1,)); m.diagonal(A); m.diagonal(WIDE, offset=1)
m.det(np.zeros((2, 0, 0))); m.inv(np.zeros((0, 0))); m.slogdet(np.zeros((0, 0)))
m.svd(np.zeros((0, 3))); m.svdvals(np.zeros((2, 3, 0))); m.qr(np.zeros((3, 0)), "complete")
m.solve(np.zeros((0, 0)), np.zeros((0, 2))); m.pinv(np.zeros((3, 0))); m.eigvalsh(np.zeros((0, 0)))
m.solve(np.zeros((0, 3, 3)), np.zeros((0, 3, 2))); m.cholesky(np.zeros((0, 2, 2)))
"""


@pytest.mark.parametrize("expression", everyday(cases(EXPRESSIONS), 7))
def test_values(expression: str):
    """Against NumPy, in doubles and singles, eager and compiled."""
    as_peer(expression, linalg, np.linalg, SCOPE)
    with sw.enable_x64(True):
        wanted = eval(expression, SCOPE, {"m": np.linalg})
        close(sw.jit(lambda: eval(expression, SCOPE, {"m": linalg}))(), wanted)
    found = sw.tree.leaves(eval(expression, SCOPE, {"m": linalg}))
    for x, y in zip(found, map(np.asarray, sw.tree.leaves(wanted)), strict=True):
        assert x.shape == y.shape and x.dtype.itemsize == (8 if y.dtype.kind == "c" else 4)


def test_named_tuples():
    assert linalg.eigh(H)._fields == np.linalg.eigh(H)._fields
    assert linalg.eig(H)._fields == np.linalg.eig(H)._fields
    assert linalg.svd(H)._fields == np.linalg.svd(H)._fields
    assert linalg.qr(H)._fields == np.linalg.qr(H)._fields
    assert linalg.slogdet(H)._fields == np.linalg.slogdet(H)._fields


@pytest.mark.parametrize("x", [A, Z])
def test_eigenvalues_in_any_order(x):
    with sw.enable_x64(True):
        w, v = linalg.eig(x)
        np.testing.assert_allclose(x @ np.asarray(v), np.asarray(v * w[:, None]), atol=1e-12)
        np.testing.assert_allclose(np.sort(linalg.eigvals(x)), np.sort(np.linalg.eigvals(x)), 1e-9)


def test_failures_are_nan():
    assert np.isnan(linalg.cholesky(-POSITIVE)).any(axis=(1, 2)).all()
    bad = np.where(np.arange(3)[:, None, None] == 1, np.nan, A).astype(np.float32)
    for found in (
        linalg.svdvals(bad),
        linalg.eigvals(bad),
        linalg.eigvalsh(bad),
        linalg.det(bad),
        linalg.pinv(bad),
        linalg.eigvalsh(bad * np.inf)[:2],
    ):
        rows = np.isnan(np.asarray(found)).reshape(found.shape[0], -1)
        assert rows[1].all()
    assert not np.isnan(linalg.svdvals(bad)[jnp.array([0, 2])]).any()
    assert not np.isfinite(linalg.inv(A * 0)).any()


def test_infinite_matrices_end():
    """LAPACK's iterations may not terminate on infinities and NaN."""
    x = np.float32([[np.inf, 1, np.nan], [1, np.inf, 2], [np.nan, 2, -np.inf]])
    for fun in (
        linalg.svdvals,
        linalg.eigvals,
        linalg.eigvalsh,
        linalg.pinv,
        lambda x: linalg.svd(x)[0],
        sw.grad(linalg.det),
    ):
        assert np.isnan(np.asarray(fun(x))).all()


ONE = {
    "cholesky": (linalg.cholesky, POSITIVE),
    "eigvalsh": (linalg.eigvalsh, H),
    "svdvals": (linalg.svdvals, TALL),
    "qr": (lambda x: linalg.qr(x).R, TALL),
    "eigvals": (lambda x: jnp.sort(linalg.eigvals(x)), Z),
    "det": (linalg.det, A),
    "inv": (linalg.inv, A),
    "pinv": (linalg.pinv, WIDE),
    "slogdet": (lambda x: linalg.slogdet(x)[1], A),
}


@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("name", everyday(sorted(ONE), 2))
def test_batches_are_split_without_communication(name: str, rows: int):
    fun, x = ONE[name]
    dtype = np.complex64 if x.dtype.kind == "c" else np.float32
    x = np.resize(x, (rows, *x.shape[1:])).astype(dtype)
    wanted = np.asarray(fun(x))
    placed = (
        sw.device_put(x, NamedSharding(MESH, P("x")))
        if rows % 4 == 0
        else sw.jit(lambda y: y, out_shardings=NamedSharding(MESH, P("x")))(x)
    )
    compiled = sw.jit(fun).lower(placed).compile()
    found = compiled(placed)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
    if rows % 4 == 0:
        assert not explain.collectives(compiled.as_text())
        assert found.sharding.spec[0] == "x"


def test_under_vmap():
    for name, (fun, x) in ONE.items():
        x = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
        np.testing.assert_allclose(sw.vmap(fun)(x), fun(x), 1e-4, 1e-4, err_msg=name)
    one = np.asarray(A[0], np.float32)
    b = np.asarray(B, np.float32)
    np.testing.assert_allclose(
        sw.vmap(linalg.solve, (None, 0))(one, b), np.linalg.solve(one, b), 1e-3, 1e-3
    )


GRADIENTS = {
    "det": (lambda m, x: m.linalg.det(x).sum(), A),
    "slogdet": (lambda m, x: m.linalg.slogdet(x)[1].sum(), A),
    "inv": (lambda m, x: (m.linalg.inv(x) ** 2).sum(), A),
    "solve": (lambda m, x: (m.linalg.solve(x, B) ** 2).sum(), A),
    "complex solve": (lambda m, x: m.abs(m.linalg.solve(x + 1j * x.mT, B)).sum(), A),
    "cholesky": (lambda m, x: m.sin(m.linalg.cholesky(x @ x.mT)).sum(), A),
    "eigvalsh": (lambda m, x: m.sin(m.linalg.eigvalsh(x)).sum(), A),
    "eigh": (lambda m, x: (m.linalg.eigh(x)[1] ** 3).sum(), A),
    "complex eigh": (
        lambda m, x: (m.abs(m.linalg.eigh(x + x.mT + 1j * (x - x.mT))[1]) ** 3).sum(),
        A,
    ),
    "eigvals": (lambda m, x: (m.abs(m.linalg.eigvals(x)) ** 3).sum(), A),
    "svdvals": (lambda m, x: m.sin(m.linalg.svdvals(x)).sum(), TALL),
    "svd": (lambda m, x: sum((y**3).sum() for y in m.linalg.svd(x, False)), TALL),
    "complex svd": (
        lambda m, x: sum((m.abs(y) ** 3).sum() for y in m.linalg.svd(x * (1 + 1j), False)),
        WIDE,
    ),
    "qr": (lambda m, x: sum((y**3).sum() for y in m.linalg.qr(x)), TALL),
    "wide qr": (lambda m, x: sum((y**3).sum() for y in m.linalg.qr(x)), WIDE),
    "pinv": (lambda m, x: m.sin(m.linalg.pinv(x)).sum(), WIDE),
    "norm 2": (lambda m, x: m.linalg.norm(x, 2, (-2, -1)).sum(), TALL),
    "nuc": (lambda m, x: m.linalg.norm(x, "nuc", (-2, -1)).sum(), WIDE),
    "cond": (lambda m, x: m.linalg.cond(x).sum(), A),
    "lstsq": (lambda m, x: (m.linalg.lstsq(x[0], x[1])[0] ** 2).sum(), TALL),
    "matrix_power": (lambda m, x: m.linalg.matrix_power(x, -2).sum(), A),
}


def test_first_derivatives_of_all_in_one_program():
    """Against finite differences; `test_gradients` has second ones too, each day of one."""
    rng, step = np.random.default_rng(0), 1e-6
    given = {name: x for name, (_, x) in GRADIENTS.items()}
    along = {name: rng.standard_normal(x.shape) for name, x in given.items()}
    with sw.enable_x64(True):
        value = sw.jit(lambda xs: {name: GRADIENTS[name][0](jnp, x) for name, x in xs.items()})
        found = sw.jit(sw.grad(lambda xs: sum(value(xs).values())))(given)
        ahead, behind = [
            value({name: x + sign * step * along[name] for name, x in given.items()})
            for sign in (1, -1)
        ]
    for name in GRADIENTS:
        wanted = (float(ahead[name]) - float(behind[name])) / (2 * step)
        slope = (np.asarray(found[name]) * along[name]).sum()
        np.testing.assert_allclose(slope, wanted, 1e-5, err_msg=name)


@pytest.mark.parametrize("name", everyday(sorted(GRADIENTS), 1))
def test_gradients(name: str):
    """Against finite differences along a direction, second ones against those of the first."""
    fun, x = GRADIENTS[name]
    along = RNG.standard_normal(x.shape)

    def slope(x):
        return (sw.grad(lambda x: fun(jnp, x))(x) * along).sum()

    with sw.enable_x64(True):

        def value(x):
            return float(fun(jnp, x))

        step = 1e-6
        ahead, behind = x + step * along, x - step * along
        np.testing.assert_allclose(slope(x), (value(ahead) - value(behind)) / (2 * step), 1e-5)
        second = (sw.grad(slope)(x) * along).sum()
        differences = (float(slope(ahead)) - float(slope(behind))) / (2 * step)
        np.testing.assert_allclose(second, differences, 1e-4, 1e-4)


@pytest.mark.parametrize("columns", [[0], [1], [3], [0, 2]])
def test_determinants_of_singular_matrices_have_derivatives(columns):
    """Also where an early pivot is zero, and where the rank is lower by two."""
    x = A[0].copy()
    x[:, columns] = 0
    with sw.enable_x64(True):
        found = np.asarray(sw.grad(linalg.det)(x))
        minors = [
            [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(4)]
            for i in range(4)
        ]
        np.testing.assert_allclose(found, minors, atol=1e-10)


def test_eigenvectors_of_general_matrices_have_no_derivatives_by_default():
    with pytest.raises(NotImplementedError) as caught:
        sw.grad(lambda x: jnp.abs(linalg.eig(x)[1]).sum())(A[0])
    assert "enable_eigvec_derivs=True" in str(caught.value)


test_messages = messages(
    """
linalg.solve(A, np.zeros(3))
    ValueError: solve: b must be a vector or matrices with as many rows as a; got f32[3,4,4] and
    f32[3].
linalg.qr(A, "all")
    ValueError: qr: mode must be 'reduced', 'complete', 'r' or 'raw'; got 'all'.
linalg.eigh(A, "X")
    ValueError: eigh: UPLO must be 'L', 'U' or None; got 'X'.
linalg.slogdet(A, method="svd")
    ValueError: slogdet: method must be 'lu', 'qr' or None; got 'svd'.
linalg.svd(A, subset_by_index=(0, 2))
    ValueError: svd: subset_by_index requires full_matrices=False.
linalg.svd(A, False, subset_by_index=(2, 9))
    ValueError: svd: subset_by_index must be a range between 0 and 4; got (2, 9).
linalg.pinv(A, 0.1, rcond=0.1)
    ValueError: pinv: rtol and rcond are aliases; pass one of them.
linalg.tensorinv(T3, 0)
    ValueError: tensorinv: ind must be positive; got 0.
linalg.tensorinv(T3, 1)
    ValueError: tensorinv: the product of the first 1 sizes of shape (2, 3, 6) must equal that of
    the others.
linalg.cond(V)
    ValueError: cond takes nonempty matrices; got f32[4].
linalg.lstsq(A, B)
    ValueError: lstsq takes a matrix, and a vector or matrix with as many rows; got f32[3,4,4] and
    f32[3,4,2].
""",
    globals(),
)


@pytest.mark.parametrize("x64", [False, True])
def test_ranks_are_whole_numbers(x64: bool):
    """With an integer dtype, as for counts elsewhere."""
    with sw.enable_x64(x64):
        ranks = [
            linalg.lstsq(TALL[0], V[[0, 1, 2, 3, 0]])[2],
            linalg.matrix_rank(TALL),
            linalg.matrix_rank(V),
            linalg.matrix_rank(TALL[..., :0]),
            linalg.lstsq(TALL[0, :, :0], V[[0, 1, 2, 3, 0]])[2],
        ]
    assert [r.dtype for r in ranks] == ["int64" if x64 else "int32"] * 5
    assert not any(r.weak_type for r in ranks)


@pytest.mark.parametrize("name", [n for n in dir(jax.numpy.linalg) if not n.startswith("_")])
def test_signatures_are_those_of_jax(name: str):
    theirs, ours = [inspect.signature(getattr(m, name)) for m in (jax.numpy.linalg, linalg)]
    assert [(p.name, p.kind) for p in ours.parameters.values()] == [
        (p.name, p.kind) for p in theirs.parameters.values()
    ]
