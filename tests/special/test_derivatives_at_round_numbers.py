"""Second derivatives where code branches on rounded arguments: quarters, integers, 0.

Random arguments hit none of these.
"""

from __future__ import annotations

import jax
import jax.numpy as jnumpy
import jax.scipy.stats.norm
import numpy as np
import pytest
from jax.scipy import special as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.scipy import special
from shardwise.scipy.stats import norm
from tests.helpers.everyday import everyday

QUARTERS = np.arange(-12, 13, dtype=np.float32) / 4
INSIDE = np.arange(1, 4, dtype=np.float32) / 4  # for functions on (0, 1)
ABOVE = np.arange(1, 17, dtype=np.float32) / 4  # for functions of positive numbers
CASES = {
    **{name: (special, theirs, QUARTERS) for name in "erf erfc expit i0e log_ndtr ndtr".split()},
    **{name: (special, theirs, INSIDE) for name in "erfinv logit ndtri".split()},
    **{name: (special, theirs, ABOVE) for name in "digamma entr gammaln gamma".split()},
    **{
        name: (norm, jax.scipy.stats.norm, QUARTERS)
        for name in "cdf logcdf logpdf logsf sf".split()
    },
    **{name: (jnp, jnumpy, QUARTERS) for name in "exp2 expm1 sinc tanh square logaddexp".split()},
}


@pytest.mark.parametrize("name", everyday(CASES, 8))
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_beside_jax(name, order):
    ours, others, at = CASES[name]

    def derivative(lib, module):
        f = getattr(module, name)
        g = (lambda x: f(x, 0.5)) if name == "logaddexp" else f
        for _ in range(order):
            g = lib.grad(g)
        return np.asarray(lib.vmap(g)(at))

    np.testing.assert_allclose(derivative(sw, ours), derivative(jax, others), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("x", [np.inf, -np.inf])
def test_second_derivatives_of_ndtr_vanish_at_infinity(x):
    assert sw.grad(sw.grad(special.ndtr))(x) == 0


@pytest.mark.parametrize("name", ["rel_entr", "kl_div"])
@pytest.mark.parametrize("argument", [0, 1])
def test_divergences_have_the_derivatives_of_jax_at_the_boundary(name, argument):
    p, q = np.array([0, 1, 0.3, -1, 0.5, 0], "f"), np.array([0.5, 0.5, 0, 0.2, 0.5, 0], "f")

    def derivatives(lib, module):
        total = lambda p, q: getattr(module, name)(p, q).sum()  # noqa: E731
        first = lib.grad(total, argument)
        second = lib.grad(lambda p, q: first(p, q).sum(), argument)
        return np.asarray(first(p, q)), np.asarray(second(p, q))

    np.testing.assert_allclose(
        derivatives(sw, special), derivatives(jax, theirs), rtol=1e-5, atol=1e-6
    )


def test_fractions_have_the_derivative_1_and_the_sign_of_their_number():
    x = np.array([0.0, -0.0, 1, -1, 1.5, -1.5, np.inf, -np.inf, np.nan, -3.25, 1e10], "f")
    for found, want in zip(jnp.modf(x), np.modf(x), strict=True):
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(want))
    finite, fraction = x[np.isfinite(x)], lambda x: jnp.modf(x)[0]
    ones = np.ones_like(finite)
    np.testing.assert_array_equal(sw.grad(lambda x: fraction(x).sum())(finite), ones)
    np.testing.assert_array_equal(sw.jvp(fraction, (finite,), (ones,))[1], ones)
