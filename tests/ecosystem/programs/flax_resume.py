"""Training with flax that is stopped in the middle and resumes from a checkpoint.

Parameters, averages of batch normalization, moments of the optimizer, its count of steps and the
key of dropout are written by orbax and by `flax.serialization`, read into states that were
initialized differently, and trained on. The result is equal, bit for bit, to that of training
without a stop.
"""

import tempfile
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import serialization
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = np.sin(X.sum(1, keepdims=True)).astype(np.float32)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
X, Y = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (X, Y))
SPLIT = {"up": P(None, "model"), "down": P("model", None)}
HALF, WHOLE = 7, 16


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(32, use_bias=False, name="up")(x)  # which the next layer would remove
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(0.2, deterministic=not train)(nn.tanh(x))
        return nn.Dense(1, name="down")(x)


class State(train_state.TrainState):
    statistics: dict
    key: jax.Array


model = Net()
schedule = optax.cosine_decay_schedule(3e-2, WHOLE)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))


def place(path, x):
    path = jax.tree_util.keystr(path)
    found = [spec for name, spec in SPLIT.items() if name in path and x.ndim == 2]
    return NamedSharding(mesh, *found or [P()])


def fresh(seed):
    """A state at its first step, over the devices of the mesh."""
    variables = model.init(jax.random.key(seed), X, False)
    state = State.create(
        apply_fn=model.apply, params=variables["params"], tx=optimizer,
        statistics=variables["batch_stats"], key=jax.random.PRNGKey(seed + 1),
    )  # fmt: skip
    state = jax.tree.map(jnp.asarray, state)
    return jax.device_put(state, jax.tree_util.tree_map_with_path(place, state))


first = fresh(0)
where = jax.tree.map(lambda x: x.sharding, first)


@jax.jit
def step(state, x, y):
    key, mine = jax.random.split(state.key)

    def loss(params):
        found, new = state.apply_fn(
            {"params": params, "batch_stats": state.statistics}, x, True,
            rngs={"dropout": mine}, mutable=["batch_stats"],
        )  # fmt: skip
        return jnp.mean((found - y) ** 2), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, statistics=new["batch_stats"], key=key)
    return jax.lax.with_sharding_constraint(state, where), value


def trained(state, steps):
    losses = []
    for _ in range(steps):
        state, value = step(state, X, Y)
        losses.append(float(value))
    return state, losses


def equal(found, wanted):
    """Asserts that states are the same, bit for bit, with the same shardings."""
    assert jax.tree.structure(found.opt_state) == jax.tree.structure(wanted.opt_state)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for x, y in pairs:
        assert x.dtype == y.dtype and x.sharding.is_equivalent_to(y.sharding, x.ndim)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


half, before = trained(first, HALF)
whole, after = trained(half, WHOLE - HALF)
print("losses", before, after)
print("norms", jax.tree.map(lambda x: float(jnp.linalg.norm(x)), whole.params))
print("moments", [float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(whole.opt_state)])

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "state.msgpack"
    file.write_bytes(serialization.to_bytes(half))
    read = serialization.from_bytes(fresh(5), file.read_bytes())
    kept = serialization.msgpack_restore(file.read_bytes())
    print("kept", sorted(kept), sorted(kept["opt_state"]))
    by_bytes = jax.tree.map(jax.device_put, read, where)
    equal(by_bytes, half)
    with ocp.StandardCheckpointer() as writer:
        writer.save(Path(folder) / "state", half)
        writer.wait_until_finished()
        like = jax.tree.map(ocp.utils.to_shape_dtype_struct, fresh(6))
        by_orbax = writer.restore(Path(folder) / "state", like)
    equal(by_orbax, half)
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=True)
    with ocp.CheckpointManager(Path(folder) / "steps", options=options) as manager:
        state = first
        for i in range(1, WHOLE + 1):  # writes during training
            state, _ = step(state, X, Y)
            float(state.step)
            if i in (3, HALF):
                assert manager.save(i, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        print("steps", manager.all_steps())
        by_manager = manager.restore(HALF, args=ocp.args.StandardRestore(like))
    equal(by_manager, half)
    equal(state, whole)

for name, read in {"bytes": by_bytes, "orbax": by_orbax, "manager": by_manager}.items():
    assert int(read.step) == HALF
    again, losses = trained(read, WHOLE - HALF)
    assert losses == after, (name, losses, after)
    equal(again, whole)
    print(name, int(again.step), losses[-1])
# Without the optimizer's moments training diverges: the state above includes them.
other, losses = trained(fresh(0).replace(params=half.params), WHOLE - HALF)
assert losses != after and int(other.step) == WHOLE - HALF
