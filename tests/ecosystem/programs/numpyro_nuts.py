"""NUTS on a regression with a known posterior, and a variational fit of it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

rng = np.random.default_rng(0)
x = rng.standard_normal(40).astype(np.float32)
y = (1.5 * x - 0.5 + 0.3 * rng.standard_normal(40)).astype(np.float32)


def model(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(slope * x + offset, 0.3), obs=y)


design = np.stack([x, np.ones_like(x)], 1) / 0.3
covariance = np.linalg.inv(design.T @ design + np.eye(2) / 4)
mean = covariance @ design.T @ (y / 0.3)

mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=1000, progress_bar=False)
mcmc.run(jax.random.PRNGKey(0), x, y)
samples = mcmc.get_samples()
found = np.stack([samples["slope"], samples["offset"]])
np.testing.assert_allclose(found.mean(1), mean, atol=0.02)
np.testing.assert_allclose(np.cov(found), covariance, atol=2e-3)

guide = AutoNormal(model)
svi = SVI(model, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
result = svi.run(jax.random.PRNGKey(1), 1500, x, y, progress_bar=False)
fitted = guide.median(result.params)
np.testing.assert_allclose([fitted["slope"], fitted["offset"]], mean, atol=0.05)
assert jnp.isfinite(result.losses).all()
print("shapes", found.shape)
