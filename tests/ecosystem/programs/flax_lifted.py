"""Lifted transforms of flax, logical axes, tables, and a trained model with a checkpoint."""

import tempfile

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import checkpoints, early_stopping, train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
RULES = (("batch", "data"), ("hidden", "model"), ("features", None), ("layers", None))
rng = np.random.default_rng(0)
X = rng.standard_normal((32, 8)).astype(np.float32)
Y = np.sin(X.sum(1, keepdims=True)).astype(np.float32)


class Block(nn.Module):
    size: int

    @nn.compact
    def __call__(self, x, _):
        up = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("features", "hidden"))
        down = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("hidden", "features"))
        h = nn.Dense(self.size, kernel_init=up, use_bias=False)(nn.LayerNorm()(x))
        h = nn.with_logical_constraint(nn.gelu(h), ("batch", "hidden"))
        return x + nn.Dense(x.shape[-1], kernel_init=down, use_bias=False)(h), None


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block, prevent_cse=False)
        stack = nn.scan(
            block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )  # fmt: skip
        x, _ = stack(16)(x, None)
        return nn.Dense(1)(x)


model = Net()
shapes = jax.eval_shape(model.init, jax.random.key(0), X)
specs = nn.logical_to_mesh(nn.get_partition_spec(shapes), RULES)
print("specs", sorted({str(s) for s in jax.tree.leaves(specs, is_leaf=lambda s: isinstance(s, P))}))
shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(shapes), mesh, RULES)
with mesh, nn.logical_axis_rules(RULES):
    variables = jax.jit(model.init, out_shardings=shardings)(jax.random.key(0), X)
    params = nn.unbox(variables)["params"]
    kernels = [k for k in jax.tree.leaves(params) if k.ndim == 3]
    print("kernels", sorted((k.shape, k.addressable_shards[0].data.shape) for k in kernels))
    x = jax.device_put(X, NamedSharding(mesh, P("data")))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-2))

    @jax.jit
    def step(state, x, y):
        def loss(params):
            return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    stop = early_stopping.EarlyStopping(min_delta=1e-6, patience=3)
    for i in range(30):
        state, value = step(state, x, Y)
        stop = stop.update(float(value))
        if i % 10 == 0:
            print("loss", i, float(value))
print("stopped", stop.should_stop, int(state.step))

with tempfile.TemporaryDirectory() as folder:
    flax.config.update("flax_use_orbax_checkpointing", False)
    checkpoints.save_checkpoint(folder, state, step=30, overwrite=True)
    empty = state.replace(params=jax.tree.map(jnp.zeros_like, state.params), step=0)
    read = checkpoints.restore_checkpoint(folder, empty)
    print("latest", checkpoints.latest_checkpoint(folder).rsplit("/")[-1])
for a, b in zip(jax.tree.leaves(read.params), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_array_equal(a, b)
print("again", int(read.step), float(step(read, x, Y)[1]) <= value)
flat = flax.traverse_util.flatten_dict(state.params, sep="/")
print("paths", sorted(flat)[:3], type(flax.core.freeze(state.params)).__name__)


class Many(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
        cell = nn.RNN(nn.GRUCell(4), return_carry=True)
        carry, ys = cell(dense(4)(x))
        attended = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=4)(ys)
        norm = nn.SpectralNorm(nn.Dense(3))(attended, update_stats=False)
        self.sow("intermediates", "carry", carry)
        return norm + self.perturb("noise", jnp.zeros((2, 5, 3)))


many = Many()
xs = jnp.asarray(rng.standard_normal((2, 5, 3)), jnp.float32)
variables = many.init(jax.random.key(1), xs)
found, extra = many.apply(variables, xs, mutable="intermediates")
print("many", found.shape, float(found.sum()), extra["intermediates"]["carry"][0].shape)
lines = many.tabulate(jax.random.key(1), xs, console_kwargs={"width": 110, "force_terminal": False})
print("table", "Total Parameters: " in lines, lines.count("float32"))


class Grad(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(2)
        dense(x)
        out, pull = nn.vjp(lambda m, x: m(x), dense, x)
        params, gx = pull(jnp.ones_like(out))
        chosen = nn.cond(out.sum() > 0, lambda m, x: m(x), lambda m, x: 2 * m(x), dense, x)
        return gx, jax.tree.map(jnp.shape, params), chosen


grad = Grad()
(gx, shapes, chosen), _ = grad.init_with_output(jax.random.key(2), X[:2])
print("lifted", float(gx.sum()), shapes, float(chosen.sum()))
