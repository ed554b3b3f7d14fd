"""A regression by Adam with a schedule, clipping and decay, its state split over devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = np.tanh(X @ rng.standard_normal((8, 4))).astype(np.float32)
mesh = Mesh(np.array(jax.devices()), ("data",))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))
params = jax.device_put(
    {
        "w": rng.standard_normal((8, 16)).astype(np.float32) * 0.3,
        "b": jnp.zeros(16),
        "out": rng.standard_normal((16, 4)).astype(np.float32) * 0.3,
    },
    NamedSharding(mesh, P()),
)
schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-2, 20, 200)
optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(schedule, weight_decay=1e-4),
)
state = optimizer.init(params)


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return optax.losses.squared_error(hidden @ params["out"], y).mean()


@jax.jit
def step(params, state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


for i in range(200):
    params, state, value = step(params, state, X, Y)
    value = float(value)  # many programs in flight over CPU devices would block jax
    if i % 50 == 0 or i == 199:
        print("loss", i, value)
print("norm", float(optax.tree.norm(params)))
assert value < 0.1
