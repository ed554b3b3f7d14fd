"""Distributions, bijectors, a fitted flow, a hidden Markov model and divergences."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

key = jax.random.PRNGKey(0)
mean, scale = jnp.array([1.0, -1.0]), jnp.array([0.5, 2.0])
KINDS = {
    "normal": distrax.Normal(mean, scale),
    "full": distrax.MultivariateNormalFullCovariance(mean, jnp.array([[1.0, 0.3], [0.3, 2.0]])),
    "categorical": distrax.Categorical(logits=jnp.array([[0.1, 2.0, -1.0], [0.0, 0.0, 1.0]])),
    "beta": distrax.Beta(2.0, 3.0),
    "gamma": distrax.Gamma(2.0, 3.0),
    "multinomial": distrax.Multinomial(5, probs=jnp.array([0.2, 0.3, 0.5])),
    "mises": distrax.VonMises(0.5, 2.0),
    "mixture": distrax.MixtureSameFamily(
        distrax.Categorical(logits=jnp.zeros(2)), distrax.Normal(mean, scale)
    ),
    "squashed": distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Tanh()),
}
for name, kind in KINDS.items():
    sample, logp = jax.jit(lambda key, d=kind: d.sample_and_log_prob(seed=key, sample_shape=4))(key)
    print(name, np.asarray(sample, np.float32).ravel()[:3].round(3).tolist(), float(jnp.sum(logp)))
    again = jax.tree.unflatten(*jax.tree.flatten(kind)[::-1])
    np.testing.assert_allclose(again.log_prob(sample), logp, rtol=1e-3, atol=1e-4)
print("entropy", float(KINDS["normal"].entropy().sum()), float(KINDS["beta"].mean()))
print("divergence", KINDS["normal"].kl_divergence(distrax.Normal(0.0, 1.0)).tolist())
batch = jax.vmap(lambda m: distrax.Normal(m, 1.0))(jnp.arange(3.0))
print("vmap", batch.batch_shape, batch.log_prob(0.0).tolist())


def flow(params):
    spline = distrax.RationalQuadraticSpline(params["spline"], -4.0, 4.0)
    affine = distrax.ScalarAffine(params["shift"], log_scale=params["scale"])
    chain = distrax.Chain([affine, spline])
    return distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Inverse(distrax.Inverse(chain)))


noise = jax.random.normal(key, (256,))
data = jnp.concatenate([noise * 0.3 - 1, noise + 2])
params = {"spline": jnp.zeros(16), "shift": jnp.zeros(()), "scale": jnp.zeros(())}
optimizer = optax.adam(3e-2)
state = optimizer.init(params)


@jax.jit
def step(params, state):
    value, grads = jax.value_and_grad(lambda p: -flow(p).log_prob(data).mean())(params)
    updates, state = optimizer.update(grads, state)
    return optax.apply_updates(params, updates), state, value


for i in range(60):
    params, state, value = step(params, state)
    if i % 20 == 0:
        print("loss", i, float(value))

model = distrax.HMM(
    init_dist=distrax.Categorical(probs=jnp.array([0.6, 0.4])),
    trans_dist=distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])),
    obs_dist=distrax.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 1.0])),
)
states, seen = model.sample(seed=key, seq_len=12)
print("states", states.tolist(), model.viterbi(seen).tolist())
alphas, betas, marginals, logp = model.forward_backward(seen)
print("marginals", marginals[:, 0].tolist(), float(logp))
kl = distrax.mc_estimate_kl(KINDS["normal"], distrax.Normal(0.0, 1.0), key, num_samples=64)
print("sampled", float(kl.sum()))

# Interpreters of programs derive the inverses and derivatives.
inverse = distrax.Lambda(lambda x: jnp.exp(2 * x) + 1)
print("inverted", float(inverse.inverse(3.0)), float(inverse.forward_log_det_jacobian(0.5)))
line = distrax.Lambda(lambda x: 3 * x - 1)
print("line", inverse.is_constant_jacobian, line.is_constant_jacobian, float(line.inverse(2.0)))
squashed = distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Lambda(jnp.tanh))
jitted = distrax.Lambda(jax.jit(lambda x: 2 * jnp.sinh(x)))
print("squashed", float(squashed.log_prob(0.5)), float(jitted.inverse(0.5)))
