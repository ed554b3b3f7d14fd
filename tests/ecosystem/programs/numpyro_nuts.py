"""NUTS on a regression whose posterior has a closed form, and a variational fit of it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, log_likelihood
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

rng = np.random.default_rng(0)
x = rng.standard_normal(40).astype(np.float32)
y = (1.5 * x - 0.5 + 0.3 * rng.standard_normal(40)).astype(np.float32)


def model(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(slope * x + offset, 0.3), obs=y)


# Normal prior, normal noise of known size: the posterior is this normal.
design = np.stack([x, np.ones_like(x)], 1).astype(np.float64)
covariance = np.linalg.inv(design.T @ design / 0.3**2 + np.eye(2) / 2**2)
mean = covariance @ design.T @ y / 0.3**2
deviation = np.sqrt(np.diag(covariance))

# The first samples from where the sampler starts, with steps of one size.
fixed = NUTS(model, step_size=0.05, adapt_step_size=False, adapt_mass_matrix=False)
start = {"slope": jnp.array(1.0), "offset": jnp.array(0.0)}
few = MCMC(fixed, num_warmup=0, num_samples=8, progress_bar=False)
few.run(jax.random.PRNGKey(3), x, y, init_params=start)
print("first", few.get_samples()["slope"].tolist(), few.get_samples()["offset"].tolist())

mcmc = MCMC(
    NUTS(model), num_warmup=300, num_samples=1000, num_chains=2, chain_method="vectorized",
    progress_bar=False,
)  # fmt: skip
mcmc.run(jax.random.PRNGKey(0), x, y)
chains = mcmc.get_samples(group_by_chain=True)
found = np.stack([chains["slope"], chains["offset"]], -1).astype(np.float64)  # chain, draw, 2
drawn = found.reshape(-1, 2)
print("shapes", found.shape, int(mcmc.get_extra_fields()["diverging"].sum()))
print("posterior", mean.tolist(), deviation.tolist())
print("mean", drawn.mean(0).tolist())
print("deviation", drawn.std(0).tolist())
assert (split_gelman_rubin(found) < 1.02).all()

# Five standard errors of an average of as many independent draws as these are worth.
a, b = np.moveaxis(found - mean, -1, 0)
products = np.stack([a * a, a * b, b * b], -1)
for values, wanted in ((found, mean), (products, covariance[[0, 0, 1], [0, 1, 1]])):
    worth = effective_sample_size(values)
    assert (worth > 300).all(), worth
    error = values.std((0, 1)) / np.sqrt(worth)
    off = np.abs(values.mean((0, 1)) - wanted) / error
    assert (off < 5).all(), off

# The model's predictions for new data, and for these.
new = np.array([-1.0, 0.0, 2.0], np.float32)
predicted = Predictive(model, mcmc.get_samples())(jax.random.PRNGKey(2), new)["y"]
at = np.stack([new, np.ones(3)], 1)
spread = np.sqrt(0.3**2 + np.einsum("ni,ij,nj->n", at, covariance, at))
np.testing.assert_allclose(predicted.mean(0), at @ mean, atol=5 * 0.35 / np.sqrt(1000))
np.testing.assert_allclose(predicted.std(0), spread, rtol=5 / np.sqrt(2 * 1000))
given = log_likelihood(model, {"slope": jnp.ones(1), "offset": jnp.zeros(1)}, x, y)["y"][0]
wanted = -0.5 * ((y - x) / 0.3) ** 2 - np.log(0.3 * np.sqrt(2 * np.pi))
np.testing.assert_allclose(given, wanted, rtol=1e-4)
print("likelihood", float(given.sum()))

# The best normal of independent parts has the inverse diagonal of the inverse; the other is exact.
for guide, wanted in (
    (AutoNormal(model), 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))),
    (AutoMultivariateNormal(model), deviation),
):
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.PRNGKey(1), 1500, x, y, progress_bar=False)
    low, mid, high = (
        np.array([q["slope"], q["offset"]]).reshape(2)
        for q in (guide.quantiles(result.params, p) for p in (0.15865525, 0.5, 0.84134475))
    )
    np.testing.assert_allclose(mid, mean, atol=0.5 * deviation.max())
    np.testing.assert_allclose((high - low) / 2, wanted, rtol=0.15)
    assert np.isfinite(result.losses).all()
    print(type(guide).__name__, result.losses[:3].tolist(), mid.tolist(), (high - low).tolist())
