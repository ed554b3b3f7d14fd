"""Samplers of a posterior that has a closed form: a mean of normal data with a normal prior."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction

rng = np.random.default_rng(0)
NOISE = np.array([[1.0, 0.6], [0.6, 2.0]])
DATA = rng.multivariate_normal([1.0, -2.0], NOISE, 12).astype(np.float32)
PRIOR = np.array([[4.0, 0.0], [0.0, 1.0]])

# A normal prior of mean zero and normal noise of known covariance: the posterior is this normal.
covariance = np.linalg.inv(len(DATA) * np.linalg.inv(NOISE) + np.linalg.inv(PRIOR))
mean = covariance @ np.linalg.inv(NOISE) @ DATA.astype(np.float64).sum(0)


def logdensity(theta):
    normal = jax.scipy.stats.multivariate_normal.logpdf
    prior = normal(theta, jnp.zeros(2), jnp.asarray(PRIOR, jnp.float32))
    return prior + normal(DATA, theta, jnp.asarray(NOISE, jnp.float32)).sum()


def chain(kernel, state, key, count):
    def one(state, key):
        state, info = kernel(key, state)
        return state, (state.position, info.acceptance_rate)

    return jax.lax.scan(one, state, jax.random.split(key, count))[1]


# The first samples from where each sampler starts, with steps of one size.
plain = {"step_size": 0.3, "inverse_mass_matrix": jnp.ones(2)}
KINDS = {
    "hmc": blackjax.hmc(logdensity, num_integration_steps=5, **plain),
    "nuts": blackjax.nuts(logdensity, **plain),
    "mala": blackjax.mala(logdensity, 0.02),
}
for name, kind in KINDS.items():
    begin = kind.init(jnp.array([0.5, -1.0]))
    few, rates = jax.jit(lambda key, k=kind, s=begin: chain(k.step, s, key, 6))(jax.random.key(2))
    print(name, few.tolist(), rates.tolist())

key, warm = jax.random.split(jax.random.key(0))
warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
(state, parameters), _ = warmup.run(warm, jnp.zeros(2), num_steps=300)
kernel = blackjax.nuts(logdensity, **parameters).step
run = jax.jit(jax.vmap(lambda key: chain(kernel, state, key, 1500)[0]))
found = np.asarray(run(jax.random.split(key, 2)), np.float64)  # chain, draw, 2
drawn = found.reshape(-1, 2)
print("shapes", found.shape)
print("posterior", mean.tolist(), np.sqrt(np.diag(covariance)).tolist())
print("mean", drawn.mean(0).tolist())
print("deviation", drawn.std(0).tolist())
assert (potential_scale_reduction(found) < 1.02).all()

# Five standard errors of an average of as many independent draws as these are worth.
a, b = np.moveaxis(found - mean, -1, 0)
products = np.stack([a * a, a * b, b * b], -1)
for values, wanted in ((found, mean), (products, covariance[[0, 0, 1], [0, 1, 1]])):
    worth = np.asarray(effective_sample_size(values))
    assert (worth > 500).all(), worth
    off = np.abs(values.mean((0, 1)) - wanted) / (values.std((0, 1)) / np.sqrt(worth))
    assert (off < 5).all(), off
