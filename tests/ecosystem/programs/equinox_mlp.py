"""An equinox model over eight devices, trained by optax, written and read again."""

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
mesh = Mesh(np.array(jax.devices()), ("data",))
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


model = Net(jax.random.PRNGKey(0))
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit
def step(model, state):
    def loss(model):
        return jnp.mean((jax.vmap(model)(X) - Y) ** 2)

    value, grads = eqx.filter_value_and_grad(loss)(model)
    updates, state = optimizer.update(grads, state, model)
    return eqx.apply_updates(model, updates), state, value


for i in range(60):
    model, state, value = step(model, state)
    value = float(value)
    if i % 20 == 0:
        print("loss", i, value)
assert value < 0.3, value
file = io.BytesIO()
eqx.tree_serialise_leaves(file, model)
file.seek(0)
again = eqx.tree_deserialise_leaves(file, Net(jax.random.PRNGKey(1)))
np.testing.assert_array_equal(jax.vmap(again)(X), jax.vmap(model)(X))
mlp = eqx.nn.MLP(8, 2, 16, 2, key=jax.random.PRNGKey(2))
print("jacobian", float(jnp.abs(jax.jacrev(mlp)(X[0])).sum()))
print("checked", float(eqx.error_if(jnp.ones(()), jnp.array(False), "no error")))
