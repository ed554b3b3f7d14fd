"""A haiku model with batch normalization and dropout; batch and weights over eight devices."""

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
    x = hk.Linear(32, with_bias=False)(x)  # which the normalization would remove
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    x = jax.nn.relu(x)
    if is_training:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.nets.MLP([32, 2])(x)


def place(x):
    """Each device stores an eighth of each divisible array, and contributes it to the full one."""
    dims = [d for d in range(x.ndim) if x.shape[d] % 8 == 0]
    spec = ["data" if d in dims[:1] else None for d in range(x.ndim)]
    return NamedSharding(mesh, P(*spec))


model = hk.transform_with_state(network)
params, state = model.init(jax.random.PRNGKey(0), X, True)
optimizer = optax.adam(1e-2)
everything = (params, state, optimizer.init(params))
where = jax.tree.map(place, everything)
everything = jax.device_put(everything, where)


def placed(when):
    """Asserts that every array is on all eight devices, and sharded as at first."""
    for x, wanted in zip(jax.tree.leaves(everything), jax.tree.leaves(where), strict=True):
        assert len(x.sharding.device_set) == len(x.addressable_shards) == 8, (when, x.shape)
        assert x.sharding.is_equivalent_to(wanted, x.ndim), (when, x.shape, x.sharding)
    assert len(X.sharding.device_set) == len(Y.sharding.device_set) == 8
    print(when, [x.addressable_shards[0].data.shape for x in jax.tree.leaves(everything[0])])


@jax.jit
def step(everything, key, x, y):
    params, state, moments = everything

    def loss(params):
        logits, new = model.apply(params, state, key, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = optimizer.update(grads, moments)
    new = (optax.apply_updates(params, updates), new, moments)
    return jax.lax.with_sharding_constraint(new, where), value


placed("before")
for i, key in enumerate(jax.random.split(jax.random.PRNGKey(1), 60)):
    everything, value = step(everything, key, X, Y)
    value = float(value)
    if i == 0:
        placed("after")
    if i % 10 == 0:
        print("loss", i, value, float(optax.tree.norm(everything[0])))
params, state, _ = everything
print("norms", {k: {n: float(jnp.linalg.norm(x)) for n, x in v.items()} for k, v in params.items()})
print("averages", [x.ravel()[:4].tolist() for x in jax.tree.leaves(state)])
logits, _ = model.apply(params, state, None, X, False)
accuracy = float((jnp.argmax(logits, -1) == Y).mean())
print("accuracy", accuracy)
assert accuracy > 0.85, accuracy
