"""`scipy.sparse.linalg` and `scipy.optimize`: solutions, trees, derivatives, shardings, errors."""

from __future__ import annotations

import itertools

import jax.scipy.optimize
import jax.scipy.sparse.linalg
import numpy as np
import pytest
import scipy.optimize

import shardwise as sw
import shardwise.numpy as snp
from shardwise.scipy.optimize import OptimizeResults, minimize
from shardwise.scipy.sparse import linalg
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.placed import MESH

RNG = np.random.default_rng(7)
A = RNG.standard_normal((9, 9))
POSITIVE, GENERAL, B = A @ A.T + np.eye(9), A + 6 * np.eye(9), RNG.standard_normal(9)
WAYS = [
    (linalg.cg, POSITIVE, {}),
    (linalg.bicgstab, GENERAL, {}),
    (linalg.gmres, GENERAL, {}),
    (linalg.gmres, GENERAL, {"solve_method": "incremental"}),
    (linalg.gmres, GENERAL, {"restart": 4}),
    (linalg.gmres, GENERAL, {"restart": 4, "solve_method": "incremental"}),
]
LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


@pytest.mark.parametrize(
    ("way", "conditioned"), everyday([*itertools.product(range(len(WAYS)), (False, True))], 1 / 6)
)
def test_solutions(way, conditioned):
    fun, a, p = WAYS[way]
    b, M = B, None
    if conditioned:
        a, b, M = a + 0.25j * (A - A.T), B + 1j * A[0], np.diag(1 / np.diag(a))
    with sw.enable_x64(True):
        close(fun(a, b, b * 0.5, tol=1e-12, M=M, **p)[0], np.linalg.solve(a, b))


@pytest.mark.parametrize("way", everyday(range(len(WAYS)), 3))
def test_complex_under_strict_promotion(way):
    fun, a, p = WAYS[way]
    a, b = (a + 0.25j * (A - A.T)).astype(np.complex64), (B + 1j * A[0]).astype(np.complex64)
    with sw.numpy_dtype_promotion("strict"):
        close(fun(a, b, tol=1e-6, **p)[0], np.linalg.solve(a, b), 1e-3)


@pytest.mark.parametrize("way", everyday(range(len(WAYS)), 1))
def test_places_and_derivatives(way):
    fun, a, p = WAYS[way]
    everywhere(lambda a, b: fun(lambda x: a @ x + a.T @ x, b, tol=1e-13, **p)[0], a, B)


@pytest.mark.parametrize("way", everyday(range(len(WAYS)), 1))
def test_trees_that_are_split(way):
    """A field and its border, with an operator that preserves the field's sharding."""
    fun, _, p = WAYS[way]
    with sw.enable_x64(True):
        field = sw.device_put(RNG.standard_normal((9, 8)), NamedSharding(MESH, P("x", "y")))

        def operator(t):
            u = 5 * t["u"] - snp.roll(t["u"], 1, 0) - snp.roll(t["u"], -1, 0) + t["v"].sum()
            return {"u": u, "v": 9 * t["v"] + t["u"].sum()}

        b = {"u": field, "v": field[0, :2]}
        p = {**p, "restart": 10} if "restart" in p else p
        x, _ = sw.jit(lambda b: fun(operator, b, tol=1e-11, **p))(b)
        close(operator(x), sw.tree.map(np.asarray, b), 1e-8)


@pytest.mark.parametrize("way", everyday(range(len(WAYS)), 1))
def test_two_explicit_axes(way):
    """Derivatives, too; the solution is sharded like the right-hand side."""
    fun, _, p = WAYS[way]
    mesh = Mesh(MESH.devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    place = NamedSharding(mesh, P("x", "y"))
    d = np.linspace(1, 3, 32, dtype=np.float32).reshape(8, 4)
    with sw.set_mesh(mesh):
        scale, b = sw.device_put((d, d * d - 2), place)
        p = {**p, "restart": 10} if "restart" in p else p
        solve = sw.jit(lambda b: fun(lambda v: scale * v, b, tol=1e-6, **p)[0])
        x = solve(b)
        assert x.sharding.is_equivalent_to(place, 2)
        np.testing.assert_allclose(x, (d * d - 2) / d, 1e-4, 1e-4)
        slope = sw.grad(lambda b: (solve(b) ** 2).sum())(b)
        np.testing.assert_allclose(slope, 2 * (d * d - 2) / d**2, 1e-4, 1e-4)


@pytest.mark.parametrize("way", everyday(range(3), 1))
def test_ends(way):
    fun, a, p = WAYS[way]
    with sw.enable_x64(True):
        close(fun(a, B * 0, **p)[0], B * 0)
        close(fun(a, B, B, maxiter=0, **p)[0], B)
        assert fun(a * np.nan, B, maxiter=1, **p)[1] == (-1 if fun is linalg.gmres else None)
    assert fun(a, B, **p)[1] == (0 if fun is linalg.gmres else None)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("method", everyday(["BFGS", LIMITED], 1))
def test_minima(method):
    starts = np.array([[-1.2, 1, 0.5, 2], [0, 0, 0, 0.0]])
    with sw.enable_x64(True):
        options = {"ftol": -1.0} if method == LIMITED else None
        found = sw.jit(
            sw.vmap(lambda x: minimize(rosenbrock, x, method=method, tol=1e-7, options=options))
        )(starts)
        assert found.success.all() and (found.status == 0).all()
        assert (abs(found.jac) < 1e-7).all() and (found.nfev == found.njev).all()
        for x, start in zip(found.x, starts, strict=True):
            wanted = scipy.optimize.minimize(
                lambda v: float(rosenbrock(v)),
                start,
                method="BFGS",
                jac=lambda v: np.asarray(sw.grad(rosenbrock)(v)),
                tol=1e-7,
            )
            close(x, wanted.x, 1e-6)
        if method == "BFGS":
            exact = np.linalg.inv(sw.hessian(rosenbrock)(found.x[1]))
            np.testing.assert_allclose(found.hess_inv[1], exact, 0.2, 0.05)


@pytest.mark.sweep
def test_minimum_of_a_quadratic_form_and_its_arguments():
    x0 = np.ones(9, np.float32)
    for method in everyday(("bfgs", LIMITED), 1):
        found = minimize(
            lambda x, b: 0.5 * x @ POSITIVE.astype("f4") @ x - b @ x,
            x0,
            (B.astype("f4"),),
            method=method,
            options={"gtol": 1e-3},
        )
        np.testing.assert_allclose(found.x, np.linalg.solve(POSITIVE, B), 0.02, 0.02)
    stopped = minimize(rosenbrock, x0[:3] * 3, method="BFGS", options={"maxiter": 2})
    assert (stopped.status, stopped.nit, stopped.success) == (1, 2, False)
    theirs = jax.scipy.optimize.minimize(rosenbrock, jax.numpy.asarray(x0[:3]), method="BFGS")
    for name in ("status", "nfev", "njev", "nit"):
        ours = getattr(stopped, name)
        assert (ours.dtype, ours.weak_type) == (np.int32, getattr(theirs, name).weak_type)
    assert OptimizeResults._fields == jax.scipy.optimize.OptimizeResults._fields


test_messages = messages(
    """
linalg.cg(A[:2], B)
    ValueError: cg: A must be a square matrix; got shape (2, 9).
linalg.cg(3, B)
    TypeError: cg: A must be a function or a matrix; got int.
linalg.gmres(A, B, M=B)
    ValueError: gmres: M must be a square matrix; got shape (9,).
linalg.cg(A, B, B[:2])
    ValueError: cg: x0 must have the shapes of b; got (2,) for (9,).
linalg.gmres(A, B, solve_method="whole")
    ValueError: gmres: solve_method must be 'batched' or 'incremental'; got 'whole'.
minimize(rosenbrock, B, [1], method="BFGS")
    TypeError: minimize: args must be a tuple; got list.
minimize(rosenbrock, B, method="CG")
    ValueError: minimize: method must be one of ['bfgs',
    'l-bfgs-experimental-do-not-rely-on-this']; got 'CG'.
minimize(rosenbrock, A, method="BFGS")
    ValueError: minimize: x0 must be a vector, and for BFGS of real values; got shape (9, 9) of
    float32.
minimize(rosenbrock, {"a": B}, method="BFGS")
    TypeError: minimize: x0 must be a vector of real values; got a dict.
    `shardwise.flatten_util.ravel_pytree` converts a pytree to a vector, and the vector back.
minimize(rosenbrock, B, method="BFGS", options={"eps": 1})
    ValueError: minimize: bfgs has no option 'eps'; its options are maxiter, norm, gtol,
    line_search_maxiter.
""",
    globals(),
)


def test_signatures_are_those_of_jax():
    for name in ("bicgstab", "cg", "gmres"):
        theirs = getattr(jax.scipy.sparse.linalg, name)
        assert signature(getattr(linalg, name)) == signature(theirs)
    assert signature(minimize) == signature(jax.scipy.optimize.minimize)


@pytest.mark.parametrize("fun", [linalg.cg, linalg.bicgstab, linalg.gmres])
def test_solutions_are_as_weakly_typed_as_the_right_hand_side(fun):
    assert fun(lambda x: 2 * x, 1.0)[0].weak_type
    assert not fun(lambda x: 2 * x, np.float32(1))[0].weak_type


def test_curvature_far_from_the_initial_one():
    found = minimize(lambda x: 1e8 * (x * x).mean(), np.ones(2, np.float32), method="BFGS")
    np.testing.assert_allclose(found.x, 0, atol=1e-6)


def test_complex_variables():
    goal = np.array([1, 2 - 3j], np.complex64)
    with sw.numpy_dtype_promotion("strict"):
        found = minimize(lambda z: (snp.abs(z - goal) ** 2).sum(), goal * 0 + 1j, method=LIMITED)
    np.testing.assert_allclose(found.x, goal, 1e-5)
    assert found.jac.dtype == np.complex64 and found.success
