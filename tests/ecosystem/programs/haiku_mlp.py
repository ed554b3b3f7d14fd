"""A haiku model with batch normalisation and dropout, its batch split over devices."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int32)
mesh = Mesh(np.array(jax.devices()), ("data",))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))


def network(x, is_training):
    x = hk.Linear(32)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    x = jax.nn.relu(x)
    if is_training:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.nets.MLP([32, 2])(x)


model = hk.transform_with_state(network)
params, state = model.init(jax.random.PRNGKey(0), X, True)
optimizer = optax.adam(1e-2)
moments = optimizer.init(params)


@jax.jit
def step(params, state, moments, key):
    def loss(params):
        logits, new = model.apply(params, state, key, X, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, Y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = optimizer.update(grads, moments)
    return optax.apply_updates(params, updates), new, moments, value


for i, key in enumerate(jax.random.split(jax.random.PRNGKey(1), 60)):
    params, state, moments, value = step(params, state, moments, key)
    if i % 20 == 0:
        print("loss", i, float(value))
logits, _ = model.apply(params, state, None, X, False)
accuracy = float((jnp.argmax(logits, -1) == Y).mean())
print("shapes", sorted((k, sorted(v)) for k, v in params.items()))
assert accuracy > 0.85, accuracy
