"""`scipy.interpolate` and `experimental.ode`: SciPy's values, derivatives, shardings, errors."""

from __future__ import annotations

import jax.experimental.ode
import jax.scipy.interpolate
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate

import shardwise as sw
import shardwise.numpy as snp
from shardwise.experimental.ode import odeint
from shardwise.scipy.interpolate import RegularGridInterpolator
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.placed import MESH

RNG = np.random.default_rng(9)
GRID = np.array([0, 1, 3.0]), np.array([5, 4, 2, 1.0])
VALUES = RNG.standard_normal((3, 4, 2))
POINTS = RNG.uniform(-1, 6, (5, 7, 2))
POINTS[0, 0, 0] = np.nan
SIGNS = np.float32([1, -1])


@pytest.mark.parametrize("fill", everyday([np.nan, 7.0, None], 1))
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_interpolation(method, fill):
    with sw.enable_x64(True):
        ours = RegularGridInterpolator(GRID, VALUES, method, False, fill)
        wanted = scipy.interpolate.RegularGridInterpolator(GRID, VALUES, method, False, fill)
        close(ours(POINTS), wanted(POINTS))
        pair = np.array([0.5, 1.25]), np.array([3.5, 2])
        close(ours(pair), wanted(pair))
        close(ours(GRID[0][:2]), wanted(GRID[0][:2]))
        close(sw.jit(lambda f, x: f(x, "linear"))(ours, POINTS), wanted(POINTS, "linear"))


def test_interpolation_in_places():
    inside = np.stack([RNG.uniform(0.1, 2.9, 7), RNG.uniform(1.1, 4.9, 7)], -1)
    everywhere(lambda x, v: RegularGridInterpolator(GRID, v)(x), inside, VALUES)
    line = RegularGridInterpolator((np.arange(3),), np.arange(3))
    assert line(np.float32([0.5, 1.5])).tolist() == [0.5, 1.5]


def swing(y, t, a, b):
    return snp.stack([y[1], -a * y[0] + b * snp.sin(t)])


def test_solutions():
    times = np.linspace(0, 3, 7)
    with sw.enable_x64(True):
        found = odeint(swing, np.array([1.0, 0.5]), times, 2.0, 0.5)
        wanted = scipy.integrate.solve_ivp(
            lambda t, y: np.asarray(swing(y, t, 2.0, 0.5)),
            (0, 3),
            [1, 0.5],
            t_eval=times,
            rtol=1e-10,
            atol=1e-12,
        )
        close(found, wanted.y.T, 1e-7)
        z = odeint(lambda y, t: 2j * y, np.array([1 + 0j]), times)
        close(z[:, 0], np.exp(2j * times), 1e-6)


@pytest.mark.sweep
def test_trees_that_are_split_and_single_precision():
    x = sw.device_put(np.ones((8, 3), np.float32), NamedSharding(MESH, P("x")))
    found = odeint(
        lambda y, t, k: {"a": -k * y["a"], "b": y["a"].sum()},
        {"a": x, "b": np.float32(0)},
        np.float32([0, 1, 2]),
        np.float32(0.5),
    )
    np.testing.assert_allclose(found["a"][:, 3, 1], np.exp([0, -0.5, -1]), 1e-4)
    np.testing.assert_allclose(found["b"], 48 * (1 - np.exp([0, -0.5, -1])), 1e-4, 1e-4)
    assert found["a"].shape == (3, 8, 3)
    stopped = odeint(lambda y, t: y, np.float32([1]), np.float32([0, 5]), mxstep=1, hmax=0.01)
    assert stopped.shape == (2, 1)


@pytest.mark.sweep
@pytest.mark.parametrize("case", range(3))
def test_derivatives(case):
    """In the value, the times, arguments, and closed-over values of the function."""
    times, y0 = np.array([0, 0.5, 1.2]), np.array([1.0, 0.5])
    tight = {"rtol": 1e-10, "atol": 1e-12}
    with sw.enable_x64(True):
        if case == 0:
            grad = sw.jit(sw.grad(lambda *a: (odeint(swing, *a, **tight) ** 2).sum(), (0, 1, 2, 3)))
            found = grad(y0, times, 2.0, 0.5)
            for i, x in enumerate((y0, times, 2.0, 0.5)):
                given = [y0, times, 2.0, 0.5]
                move = np.ones(np.shape(x))

                def f(s, i=i, given=given, move=move):
                    shifted = [*given]
                    shifted[i] = given[i] + s * move
                    return float((odeint(swing, *shifted, **tight) ** 2).sum())

                slope = (f(1e-5) - f(-1e-5)) / 2e-5
                np.testing.assert_allclose(np.sum(found[i]), slope, 1e-5, 1e-5)
        elif case == 1:

            def loss(k, n):
                return (odeint(lambda y, t, n: -k * y * n, y0, times, n, **tight)[-1] ** 2).sum()

            wanted = -2 * 2 * 1.2 * (y0**2).sum() * np.exp(-2 * 0.7 * 2 * 1.2)
            np.testing.assert_allclose(sw.grad(loss)(0.7, np.int32(2)), wanted, 1e-7)
        else:
            ys = sw.vmap(lambda y: odeint(swing, y, times, 2.0, 0.5))(np.stack([y0, 2 * y0]))
            close(ys[1], odeint(swing, 2 * y0, times, 2.0, 0.5), 1e-7)


def test_orders_of_derivatives():
    """Of 1 / (1 / y + k): -1 / (…)² and 2 / (…)³, by nested transforms in any mode."""

    def end(k):
        return odeint(lambda y, t, k: -k * y * y, 1.0, np.float32([0, 1]), k)[-1]

    with sw.numpy_dtype_promotion("strict"):
        for first, second in ((sw.grad, sw.grad), (sw.jacfwd, sw.grad), (sw.jacfwd, sw.jacfwd)):
            np.testing.assert_allclose(second(end)(0.5), -1 / 1.5**2, 1e-4)
            np.testing.assert_allclose(first(second(end))(0.5), 2 / 1.5**3, 1e-3)


test_messages = messages(
    """
RegularGridInterpolator(GRID, VALUES, "cubic")
    ValueError: RegularGridInterpolator: method must be one of ('linear', 'nearest'); got 'cubic'.
RegularGridInterpolator(GRID, VALUES, bounds_error=True)
    NotImplementedError: RegularGridInterpolator: bounds_error must be False; points outside get
    the fill_value.
RegularGridInterpolator(GRID, VALUES[0])
    ValueError: RegularGridInterpolator: points must be vectors with the sizes of values, at least
    2 each; got shapes ((3,), (4,)) for values of shape (4, 2).
RegularGridInterpolator(GRID, VALUES)(np.ones((2, 3)))
    ValueError: RegularGridInterpolator takes points of 2 coordinates along the last dimension; got
    shape (2, 3).
odeint(swing, np.ones(2), np.arange(3), 1.0, 1.0)
    TypeError: odeint: t must be a vector of floats; got i32[3].
odeint(lambda y, t: np.ones(3, "f4"), np.ones(2, "f4"), np.arange(3.0))
    TypeError: odeint: func must return an array or pytree of arrays like y0, f32[2]; it returned
    f32[3].
""",
    globals(),
)


@pytest.mark.parametrize(
    "slope",
    everyday(
        [
            lambda y, t: [y[1], -y[0]],
            lambda y, t: (y[1], -y[0][None]),
            lambda y, t: {"a": y[::-1] * SIGNS},
        ],
        1,
    ),
)
def test_slopes_are_of_as_many_elements(slope):
    times = np.linspace(0, 1, 4, dtype=np.float32)
    found = odeint(slope, np.float32([1, 0]), times)
    close(found, np.stack([np.cos(times), -np.sin(times)], 1), 1e-5)
    close(found, jax.experimental.ode.odeint(slope, np.float32([1, 0]), times), 1e-5)


def test_signatures_are_those_of_jax():
    assert signature(odeint) == signature(jax.experimental.ode.odeint)
    theirs = jax.scipy.interpolate.RegularGridInterpolator
    assert str(signature(RegularGridInterpolator)) == str(signature(theirs))
