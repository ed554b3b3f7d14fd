"""Steps of the method of `odeint`, against jax's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import ode as theirs

import shardwise as sw
from shardwise.experimental import ode
from tests.helpers.everyday import everyday

Y, T, DT = np.array([1.0, -0.5, 2.0], np.float32), np.float32(0.3), np.float32(0.125)


def slope(y: Any, t: Any) -> Any:
    return y * t - y * y


F = slope(Y, T)


def results(module: Any, array: Any) -> dict[str, Any]:
    y, f, t, dt = map(array, (Y, F, T, DT))
    new, last, error, ks = module.runge_kutta_step(slope, y, f, t, dt)
    ratio = module.mean_error_ratio(error, 1e-4, 1e-5, y, new)
    return {
        "step": (new, last, error, ks),
        "ratio": ratio,
        "curve": module.interp_fit_dopri(y, new, ks, dt),
        "polynomial": module.fit_4th_order_polynomial(y, new, (y + new) / 2, f, last, dt),
        "first": [module.initial_step_size(slope, t, y, n, 1e-4, 1e-5, f) for n in (3, 4)],
        "next": [module.optimal_step_size(dt, array(np.float32(r))) for r in (0, 0.1, 1.5, 1e6)],
        "other": module.optimal_step_size(dt, ratio, safety=0.5, ifactor=2.0, order=3.0),
        "abs2": [module.abs2(y), module.abs2(y * array(np.complex64(1 + 2j)))],
    }


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", everyday(["step", "ratio", "curve", "polynomial", "first", "next", "other", "abs2"], 2)
)
def test_steps(name: str):
    ours, wanted = results(ode, sw.numpy.asarray)[name], results(theirs, jax.numpy.asarray)[name]
    for x, y in zip(sw.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-5)
        assert x.dtype == y.dtype


def test_a_polynomial_goes_through_the_ends():
    new, _, _, ks = ode.runge_kutta_step(slope, *map(sw.numpy.asarray, (Y, F, T, DT)))
    curve = np.asarray(ode.interp_fit_dopri(sw.numpy.asarray(Y), new, ks, sw.numpy.asarray(DT)))
    np.testing.assert_allclose(curve.sum(0), new, rtol=1e-5)
    np.testing.assert_array_equal(curve[-1], Y)
