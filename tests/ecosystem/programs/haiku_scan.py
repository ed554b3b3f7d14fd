"""A haiku model whose layers are a scan and whose weights are sharded over eight devices."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((32, 6, 16)).astype(np.float32)
Y = np.cumsum(X, 1)[:, :, :4].astype(np.float32) / 3
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


class Block(hk.Module):
    def __call__(self, x):
        h = hk.LayerNorm(-1, True, True)(x)
        h = hk.Linear(32, name="up")(h)
        return x + hk.Linear(x.shape[-1], name="down")(jax.nn.gelu(h))


def network(x, is_training):
    x = hk.Linear(16)(x)
    x = hk.experimental.layer_stack(2)(lambda x: Block("block")(x))(x)
    gru = hk.GRU(16)
    x, _ = hk.dynamic_unroll(gru, x, gru.initial_state(len(x)), time_major=False)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    shared = hk.Linear(4, name="shared")
    shared(x[:, 0])
    start = jnp.zeros((len(x), 4))
    total, _ = hk.scan(lambda c, a: (c + shared(a), None), start, x.swapaxes(0, 1))
    return hk.Linear(4)(x) + 0.01 * total[:, None]


def place(path, name, x):
    if x.ndim >= 2 and x.shape[-1] % 4 == 0 and "up" in path:
        return NamedSharding(mesh, P(*[None] * (x.ndim - 1), "model"))
    return NamedSharding(mesh, P())


model = hk.without_apply_rng(hk.transform_with_state(network))
params, state = model.init(jax.random.PRNGKey(0), X, True)
where = hk.data_structures.map(place, params)
params = jax.device_put(params, where)
state = jax.device_put(state, NamedSharding(mesh, P()))
x, y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))
optimizer = optax.adam(1e-2)
moments = jax.jit(optimizer.init)(params)


@jax.jit
def step(params, state, moments, x, y):
    def loss(params):
        found, new = model.apply(params, state, x, True)
        return jnp.mean((found - y) ** 2), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = optimizer.update(grads, moments)
    params = jax.lax.with_sharding_constraint(optax.apply_updates(params, updates), where)
    return params, new, moments, value


for i in range(20):
    params, state, moments, value = step(params, state, moments, x, y)
    value = float(value)
    if i % 5 == 0:
        print("loss", i, value)
split = [n for n, p in params.items() if "w" in p and "model" in str(p["w"].sharding.spec)]
print("split", split, params[split[0]]["w"].addressable_shards[0].data.shape)
print("state", sorted(state), hk.data_structures.tree_size(params))
drawn = hk.experimental.abstract_to_dot(hk.transform(lambda x: hk.nets.MLP([3, 2])(x)).init)
print("drawn", "dot_general" in drawn(jax.random.PRNGKey(0), X[0]))
kept, rest = hk.data_structures.partition(lambda path, name, _: name == "w", params)
print("parts", len(kept), len(rest), len(hk.data_structures.merge(kept, rest)))
summary = hk.experimental.tabulate(lambda x: network(x, True))(X)
print("table", "batch_norm" in summary, "block" in summary)
shapes = jax.eval_shape(lambda k: model.init(k, X, True), jax.random.PRNGKey(0))
print("shapes", hk.data_structures.tree_size(shapes[0]))


def lifted(x):
    inner = hk.transform(lambda x: hk.Linear(3)(x))
    params = hk.lift(inner.init, name="inner")(hk.next_rng_key(), x) if hk.running_init() else None
    del params
    f = hk.remat(lambda x: hk.nets.MLP([4, 1])(x))
    value, grad = hk.value_and_grad(lambda x: f(x).sum())(x)
    mapped = hk.vmap(hk.Linear(2), split_rng=False)(x)
    picked = hk.cond(value > 0, lambda x: x, lambda x: -x, mapped)
    return value, grad, picked


lifting = hk.transform(lifted)
weights = lifting.init(jax.random.PRNGKey(1), X[:2, 0])
value, grad, picked = lifting.apply(weights, jax.random.PRNGKey(2), X[:2, 0])
print("lifted", float(value), float(grad.sum()), float(picked.sum()))
half = jmp.get_policy("params=float32,compute=bfloat16,output=float32")


class Half(hk.Module):
    def __call__(self, x):
        print("compute", x.dtype)
        return hk.Linear(2)(x)


hk.mixed_precision.set_policy(Half, half)
mixed = hk.without_apply_rng(hk.transform(lambda x: Half()(x)))
weights = mixed.init(jax.random.PRNGKey(3), X[0])
print("mixed", mixed.apply(weights, X[0]).dtype, jax.tree.leaves(weights)[0].dtype)
