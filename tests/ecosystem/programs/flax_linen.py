"""A flax model with batch normalization and dropout, over eight devices, trained by optax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8, 8, 1)).astype(np.float32)
Y = (X.mean((1, 2, 3)) > 0).astype(np.int32)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3), use_bias=False)(x)  # batch normalization removes means
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(2, name="last")(nn.gelu(nn.Dense(32, name="first")(x)))


class State(train_state.TrainState):
    statistics: dict


def place(path, x):
    """The dense layers' hidden dimension over "model"; the rest replicated."""
    path = jax.tree_util.keystr(path)
    split = {"first": P(None, "model"), "last": P("model", None)}
    found = [spec for name, spec in split.items() if name in path and x.ndim == 2]
    return NamedSharding(mesh, *found or [P()])


model = Net()
variables = model.init(jax.random.key(0), X, False)
state = State.create(
    apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2),
    statistics=variables["batch_stats"],
)  # fmt: skip
where = jax.tree_util.tree_map_with_path(place, jax.tree.map(jnp.asarray, state))
state = jax.device_put(state, where)


def placed(when):
    """Asserts that every array is on all eight devices, and sharded as at first."""
    for x, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(where), strict=True):
        assert len(x.sharding.device_set) == len(x.addressable_shards) == 8, (when, x.shape)
        assert x.sharding.is_equivalent_to(wanted, x.ndim), (when, x.shape, x.sharding)
    assert len(X.sharding.device_set) == len(Y.sharding.device_set) == 8
    print(when, jax.tree.map(lambda x: x.addressable_shards[0].data.shape, state.params))


@jax.jit
def step(state, key, x, y):
    def loss(params):
        logits, new = state.apply_fn(
            {"params": params, "batch_stats": state.statistics}, x, True,
            rngs={"dropout": key}, mutable=["batch_stats"],
        )  # fmt: skip
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, statistics=new["batch_stats"])
    return jax.lax.with_sharding_constraint(state, where), value


placed("before")
for i, key in enumerate(jax.random.split(jax.random.key(1), 40)):
    state, value = step(state, key, X, Y)
    value = float(value)
    if i == 0:
        placed("after")
    if i % 10 == 0:
        print("loss", i, value, float(optax.tree.norm(state.params)))
print("norms", jax.tree.map(lambda x: float(jnp.linalg.norm(x)), state.params))
print("averages", jax.tree.map(lambda x: x.tolist(), state.statistics))
logits = model.apply({"params": state.params, "batch_stats": state.statistics}, X, False)
accuracy = float((jnp.argmax(logits, -1) == Y).mean())
print("accuracy", accuracy, int(state.step))
assert accuracy > 0.9, accuracy


class Cell(nn.Module):
    @nn.compact
    def __call__(self, carry, x):
        carry = nn.tanh(nn.Dense(4)(carry) + x)
        return carry, carry


scanned = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False})
xs = jnp.linspace(-1, 1, 20).reshape(5, 4)
variables = scanned().init(jax.random.key(2), jnp.zeros(4), xs)
carry, ys = scanned().apply(variables, jnp.zeros(4), xs)
(dense,) = variables["params"].values()
wanted = np.zeros(4)
for row, y in zip(np.asarray(xs), np.asarray(ys), strict=True):
    wanted = np.tanh(wanted @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]) + row)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
print("scan", ys.shape, carry.tolist())
