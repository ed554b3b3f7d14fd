"""Second derivatives of gamma samples and of samplers based on them, in their parameters."""

from __future__ import annotations

import functools

import jax
import mpmath
import numpy as np
import pytest
import scipy.special

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax, random

F32 = np.float32
PAIRS = [(0.03, 0.01), (0.4, 0.2), (0.9, 2.5), (1.0, 1.0), (3.0, 0.1), (3.0, 9.0), (40.0, 37.0)]


@functools.cache
def second_of_gammainc(a, x):
    with mpmath.workdps(40):
        low = lambda a: mpmath.gammainc(a, 0, mpmath.mpf(x), regularized=True)  # noqa: E731
        return float(mpmath.diff(low, mpmath.mpf(a), 2))


@pytest.mark.parametrize("dtype, tolerance", [(F32, 3e-5), (np.float64, 1e-9)])
def test_of_igamma(dtype, tolerance):
    with sw.enable_x64(dtype != F32):
        a, x = np.array(PAIRS, dtype).T
        wanted = [second_of_gammainc(float(p), float(q)) for p, q in zip(a, x, strict=True)]
        got = sw.jit(sw.vmap(sw.grad(sw.grad(lax.igamma))))(a, x)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, tolerance)
        got = sw.jit(sw.vmap(sw.jacfwd(sw.grad(lax.igammac))))(a, x)
        np.testing.assert_allclose(got, np.negative(wanted), tolerance)


def test_of_quantiles():
    """A gamma sample is a quantile of its distribution: differences of quantiles, in 64 bits."""
    with sw.enable_x64():
        a, u = np.array([0.1, 0.7, 1.0, 2.5, 30.0]), np.array([0.5, 0.9, 0.3, 0.999, 0.5])
        x = scipy.special.gammaincinv(a, u)
        along = lambda a, x: sw.jvp(  # noqa: E731
            lambda a, x: lax.random_gamma_grad(a, x), (a, x), (1.0, lax.random_gamma_grad(a, x))
        )
        got = sw.vmap(along)(a, x)[1]
        h = 1e-3 * a
        ends = [scipy.special.gammaincinv(a + d, u) for d in (-h, 0, h)]
        wanted = (ends[0] - 2 * ends[1] + ends[2]) / h**2
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-7)


def test_at_the_edges():
    second = sw.vmap(sw.grad(lax.random_gamma_grad, (0, 1)))
    found = second(np.array([2.0, -1.0, 2.0], F32), np.array([0.0, 1.0, -1.0], F32))
    np.testing.assert_array_equal(found, [[0, np.nan, np.nan]] * 2)


KEY = 3
SAMPLES = {
    "gamma": lambda r, k, a: r.gamma(k, a),
    "loggamma": lambda r, k, a: r.loggamma(k, a),
    "beta": lambda r, k, a: r.beta(k, a, 2 * a),
    "chisquare": lambda r, k, a: r.chisquare(k, a),
    "t": lambda r, k, a: r.t(k, a),
    "f": lambda r, k, a: r.f(k, a, a + 1),
    "generalized_normal": lambda r, k, a: r.generalized_normal(k, a),
}
PARAMETERS = np.array([0.5, 1.5, 7.0], F32)


def test_hessian_of_beta_numbers():
    found = sw.jit(sw.hessian(lambda a: random.beta(random.key(KEY), a, 2 * a)))(F32(1.5))
    np.testing.assert_allclose(found, -0.0322355, 2e-4)  # jax's


@pytest.mark.sweep
def test_of_dirichlet_vectors():
    alpha = np.array([0.5, 1.0, 1.5], F32)

    def loss(r, a):
        return (r.dirichlet(r.key(KEY), a) * np.arange(1, 4, dtype=F32)).sum()

    found = sw.hessian(lambda a: loss(random, a))(alpha)
    np.testing.assert_allclose(
        found, jax.jacfwd(jax.jacfwd(lambda a: loss(jax.random, a)))(alpha), 1e-3, 1e-4
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", SAMPLES)
def test_second_derivatives_are_those_of_jax(name):
    f = SAMPLES[name]
    theirs = jax.jacfwd(jax.jacfwd(lambda a: f(jax.random, jax.random.key(KEY), a)))
    for ours in (sw.hessian, lambda g: sw.grad(sw.grad(g)), lambda g: sw.jacfwd(sw.jacfwd(g))):
        for a in (0.05, *map(float, PARAMETERS), 60.0):
            got = ours(lambda a: f(random, random.key(KEY), a))(snp.float32(a))
            np.testing.assert_allclose(got, theirs(F32(a)), 5e-3)
