"""A regression by Adam with a schedule, clipping, decay; batch and weights over eight devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = np.tanh(X @ rng.standard_normal((8, 4))).astype(np.float32)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))
PLACES = {"w": P(None, "model"), "b": P("model"), "out": P("model", None)}
PLACES = {name: NamedSharding(mesh, spec) for name, spec in PLACES.items()}
params = jax.device_put(
    {
        "w": rng.standard_normal((8, 16)).astype(np.float32) * 0.3,
        "b": jnp.zeros(16),
        "out": rng.standard_normal((16, 4)).astype(np.float32) * 0.3,
    },
    PLACES,
)
schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-2, 20, 200)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
state = jax.jit(optimizer.init)(params)


def placed(when):
    """Asserts that every array is on all eight devices, and parameters are sharded as before."""
    for name, x in {"x": X, "y": Y, **params}.items():
        assert len(x.sharding.device_set) == len(x.addressable_shards) == 8, (when, name)
    for name, x in params.items():
        assert x.sharding.is_equivalent_to(PLACES[name], x.ndim), (when, name, x.sharding)
    print(when, {name: x.addressable_shards[0].data.shape for name, x in params.items()})


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return optax.losses.squared_error(hidden @ params["out"], y).mean()


@jax.jit
def step(params, state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


placed("before")
for i in range(200):
    params, state, value = step(params, state, X, Y)
    value = float(value)  # many programs in flight over CPU devices would block jax
    if i == 0:
        placed("after")
        for moment in jax.tree.leaves(state):
            assert len(moment.sharding.device_set) == 8, moment.sharding
    if i % 25 == 0 or i == 199:
        print("loss", i, value, float(optax.tree.norm(params)))
print("norms", {name: float(jnp.linalg.norm(x)) for name, x in params.items()})
print("moments", [float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(state)])
assert value < 0.1
