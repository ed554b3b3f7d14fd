"""An equinox model sharded over eight devices by filtered transforms; state, ensembles, checks."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((32, 8)).astype(np.float32)
Y = np.sin(X.sum(1, keepdims=True)).astype(np.float32)
mesh = Mesh(np.array(jax.devices()), ("model",))
split, whole = NamedSharding(mesh, P("model")), NamedSharding(mesh, P())


class Net(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.first = eqx.nn.Linear(8, 32, key=a)
        self.norm = eqx.nn.BatchNorm(32, "batch", mode="batch")
        self.dropout = eqx.nn.Dropout(0.1)
        self.last = eqx.nn.Linear(32, 1, key=b)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.first(x), state)
        return self.last(self.dropout(jax.nn.relu(x), key=key, inference=key is None)), state


model, state = eqx.nn.make_with_state(Net)(jax.random.key(0))
model, state = eqx.filter_shard((model, state), whole)
first = eqx.filter_shard(model.first, split)
model = eqx.tree_at(lambda m: m.first, model, first)
optimizer = optax.adam(1e-2)
moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit(donate="none")
def step(model, state, moments, key):
    def loss(model):
        forward = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
        found, new = forward(X, state, jax.random.split(key, len(X)))
        return jnp.mean((found - Y) ** 2), new

    (value, new), grads = eqx.filter_value_and_grad(loss, has_aux=True)(model)
    updates, moments = optimizer.update(grads, moments, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), new, moments, value


for i, key in enumerate(jax.random.split(jax.random.key(1), 30)):
    model, state, moments, value = step(model, state, moments, key)
    value = float(value)
    if i % 10 == 0:
        print("loss", i, value)
print("place", model.first.weight.addressable_shards[0].data.shape)
inference = eqx.nn.inference_mode(model)
found, _ = eqx.filter_vmap(inference, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(
    X, state
)
print("found", float(jnp.abs(found).sum()))
file = io.BytesIO()
eqx.tree_serialise_leaves(file, (model, state))
file.seek(0)
blank = eqx.nn.make_with_state(Net)(jax.random.key(5))
again, _ = eqx.tree_deserialise_leaves(file, blank)
np.testing.assert_array_equal(again.last.weight, model.last.weight)
print("equal", bool(eqx.tree_equal(again.last, model.last)))

keys = jax.random.split(jax.random.key(2), 3)
ensemble = eqx.filter_vmap(lambda key: eqx.nn.MLP(8, 1, 16, 2, key=key))(keys)
each = eqx.filter_vmap(lambda m, x: m(x), in_axes=(eqx.if_array(0), None))(ensemble, X[0])
print("ensemble", each.shape, float(each.sum()))
dynamic, static = eqx.partition(ensemble, eqx.is_array)
print("parts", len(jax.tree.leaves(dynamic)), eqx.combine(dynamic, static).depth)
jacobian = eqx.filter_jacrev(lambda x: eqx.nn.MLP(8, 2, 4, 1, key=jax.random.key(3))(x))(X[0])
print("jacobian", jacobian.shape, float(jacobian.sum()))
closed = eqx.filter_closure_convert(lambda x: x * Y.sum(), X)
print("closure", float(closed(X).sum()))
a, b = (eqx.nn.Linear(8, 1, key=jax.random.key(i)) for i in (4, 5))
moved = eqx.filter_jvp(lambda m: m(X[0]).sum(), (a,), (b,))
print("jvp", float(moved[0]), float(moved[1]))


@eqx.filter_custom_jvp
def clipped(x):
    return jnp.clip(x, -1, 1)


@clipped.def_jvp
def clipped_jvp(primals, tangents):
    return clipped(*primals), tangents[0] * 2


print("custom", jax.vmap(eqx.filter_grad(clipped))(jnp.array([0.5, 3.0])).tolist())


@eqx.filter_custom_vjp
def doubled(x, scale):
    return x * scale


@doubled.def_fwd
def forward(perturbed, x, scale):
    return x * scale, None


@doubled.def_bwd
def backward(residuals, ct, perturbed, x, scale):
    return ct * 10


print("custom", float(eqx.filter_grad(lambda x: doubled(x, 3.0))(jnp.array(2.0))))


@eqx.filter_jit
def checked(x):
    x = eqx.error_if(x, x < 0, "negative")
    return jnp.sqrt(x)


print("sqrt", float(checked(jnp.array(4.0))))
try:
    checked(jnp.array(-4.0)).block_until_ready()
except Exception as error:
    print("refused", "negative" in str(error))
shape = eqx.filter_eval_shape(lambda k: eqx.nn.MultiheadAttention(2, 8, key=k), jax.random.key(0))
print("shapes", shape.query_proj.weight.shape, "f32[8,8]" in eqx.tree_pformat(shape))
cell = eqx.nn.GRUCell(8, 4, key=jax.random.key(6))
carry, _ = jax.lax.scan(lambda c, x: (cell(x, c), None), jnp.zeros(4), X)
print("scan", float(carry.sum()))


def power(x):
    body = lambda c: (c[0] + 1, c[1] * x)  # noqa: E731
    how = {"max_steps": 8, "kind": "checkpointed"}
    return eqx.internal.while_loop(lambda c: c[0] < 3, body, (0, x), **how)[1]


print("loop", float(power(2.0)), float(jax.grad(power)(2.0)))
