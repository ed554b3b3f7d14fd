"""A flax model with batch normalisation and dropout, trained by optax, written and read again."""

import tempfile

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8, 8, 1)).astype(np.float32)
Y = (X.mean((1, 2, 3)) > 0).astype(np.int32)
mesh = Mesh(np.array(jax.devices()), ("data",))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3))(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(2)(nn.gelu(nn.Dense(32)(x)))


class State(train_state.TrainState):
    statistics: dict


model = Net()
variables = model.init(jax.random.key(0), X, False)
state = State.create(
    apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2),
    statistics=variables["batch_stats"],
)  # fmt: skip


@jax.jit
def step(state, key):
    def loss(params):
        logits, new = state.apply_fn(
            {"params": params, "batch_stats": state.statistics}, X, True,
            rngs={"dropout": key}, mutable=["batch_stats"],
        )  # fmt: skip
        return optax.softmax_cross_entropy_with_integer_labels(logits, Y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, statistics=new["batch_stats"]), value


for i, key in enumerate(jax.random.split(jax.random.key(1), 40)):
    state, value = step(state, key)
    value = float(value)
    if i % 10 == 0:
        print("loss", i, value)
logits = model.apply({"params": state.params, "batch_stats": state.statistics}, X, False)
assert float((jnp.argmax(logits, -1) == Y).mean()) > 0.9

with tempfile.TemporaryFile() as file:
    file.write(serialization.to_bytes(state.params))
    file.seek(0)
    read = serialization.from_bytes(state.params, file.read())
again = model.apply({"params": read, "batch_stats": state.statistics}, X, False)
np.testing.assert_array_equal(again, logits)


class Cell(nn.Module):
    @nn.compact
    def __call__(self, carry, x):
        carry = nn.tanh(nn.Dense(4)(carry) + x)
        return carry, carry


scanned = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False})
xs = jnp.ones((5, 4))
variables = scanned().init(jax.random.key(2), jnp.zeros(4), xs)
carry, ys = scanned().apply(variables, jnp.zeros(4), xs)
print("scan", ys.shape, float(carry.sum()))
print("shapes", jax.tree.map(jnp.shape, state.params))
