"""An equinox model over eight devices, trained by optax, saved and loaded."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = np.sin(X.sum(1, keepdims=True)).astype(np.float32)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))


class Net(eqx.Module):
    layers: list
    scale: jax.Array
    name: str = eqx.field(static=True)

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.layers = [eqx.nn.Linear(8, 32, key=a), jnp.tanh, eqx.nn.Linear(32, 1, key=b)]
        self.scale = jnp.ones(())
        self.name = "net"

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


def weights(model):
    first, _, last = model.layers
    return first.weight, first.bias, last.weight, last.bias, model.scale


SPECS = [P("model", None), P("model"), P(None, "model"), P(), P()]
PLACES = [NamedSharding(mesh, spec) for spec in SPECS]
model = Net(jax.random.PRNGKey(0))
model = eqx.tree_at(weights, model, jax.device_put(list(weights(model)), PLACES))
optimizer = optax.adam(1e-2)
state = eqx.filter_jit(optimizer.init)(eqx.filter(model, eqx.is_array))


def placed(when):
    """Asserts that all arrays are on eight devices, and parameters are sharded as before."""
    for x in jax.tree.leaves(eqx.filter((model, X, Y), eqx.is_array)):
        assert len(x.sharding.device_set) == len(x.addressable_shards) == 8, (when, x.shape)
    for x, wanted in zip(weights(model), PLACES, strict=True):
        assert x.sharding.is_equivalent_to(wanted, x.ndim), (when, x.shape, x.sharding)
    print(when, [x.addressable_shards[0].data.shape for x in weights(model)])


@eqx.filter_jit
def step(model, state, x, y):
    def loss(model):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    value, grads = eqx.filter_value_and_grad(loss)(model)
    updates, state = optimizer.update(grads, state, model)
    return eqx.apply_updates(model, updates), state, value


placed("before")
for i in range(60):
    model, state, value = step(model, state, X, Y)
    value = float(value)
    if i == 0:
        placed("after")
        for moment in jax.tree.leaves(state):
            assert len(moment.sharding.device_set) == 8, moment.sharding
    if i % 10 == 0:
        print("loss", i, value, [float(jnp.linalg.norm(x)) for x in weights(model)])
assert value < 0.3, value
file = io.BytesIO()
eqx.tree_serialise_leaves(file, model)
file.seek(0)
again = eqx.tree_deserialise_leaves(file, Net(jax.random.PRNGKey(1)))
for a, b in zip(weights(again), weights(model), strict=True):
    np.testing.assert_array_equal(a, b)
mlp = eqx.nn.MLP(8, 2, 16, 2, key=jax.random.PRNGKey(2))
jacobian = jax.jacrev(mlp)(X[0])
np.testing.assert_allclose(jacobian, jax.jacfwd(mlp)(X[0]), rtol=1e-5, atol=1e-6)
print("jacobian", jacobian.tolist())
print("checked", float(eqx.error_if(jnp.ones(()), jnp.array(False), "no error")))
