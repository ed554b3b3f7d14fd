"""NUTS to a known posterior: a normal of two correlated parameters."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

MEAN = jnp.array([1.0, -2.0])
COVARIANCE = jnp.array([[1.0, 0.6], [0.6, 2.0]])


def logdensity(x):
    return jax.scipy.stats.multivariate_normal.logpdf(x, MEAN, COVARIANCE)


key, warm = jax.random.split(jax.random.key(0))
warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
(state, parameters), _ = warmup.run(warm, jnp.zeros(2), num_steps=300)
kernel = jax.jit(blackjax.nuts(logdensity, **parameters).step)


def one(state, key):
    state, _ = kernel(key, state)
    return state, state.position


_, samples = jax.lax.scan(one, state, jax.random.split(key, 3000))
mean, covariance = np.mean(samples, 0), np.cov(np.asarray(samples).T)
np.testing.assert_allclose(mean, MEAN, atol=0.2)
np.testing.assert_allclose(covariance, COVARIANCE, atol=0.4)
print("samples", samples.shape)
