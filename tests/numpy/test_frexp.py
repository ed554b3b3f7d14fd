"""The mantissa of `frexp` moves with its argument, at the rate of 2 to the -exponent."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.everyday import everyday


@pytest.mark.parametrize("dtype", everyday([np.float32, np.float16, "float64"], 1))
def test_derivative_of_the_mantissa(dtype):
    with sw.enable_x64(dtype == "float64"):
        x = np.array([1, -1, 3.3, 0.5, 255, -0.01], dtype)
        mantissa, exponent = np.frexp(x)
        found, slope = sw.jvp(lambda v: jnp.frexp(v)[0], (x,), (np.ones_like(x),))
        np.testing.assert_array_equal(found, mantissa)
        np.testing.assert_array_equal(slope, np.exp2(-exponent).astype(dtype))


def test_of_what_has_no_mantissa():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38], np.float32)
    mantissa, exponent = jnp.frexp(x)
    wanted = np.frexp(x)
    np.testing.assert_array_equal(mantissa, wanted[0])
    assert (np.signbit(mantissa) == np.signbit(wanted[0])).all()
    np.testing.assert_array_equal(np.asarray(exponent)[[0, 1, 5]], wanted[1][[0, 1, 5]])
    slope = sw.vmap(sw.grad(lambda v: jnp.frexp(v)[0]))(x)
    np.testing.assert_array_equal(slope, np.float32([1, 1, 1, 1, 1, 0]))
