"""Optimisers, schedules and wrappers of optimisers, each on the same small regression."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

rng = np.random.default_rng(0)
X = rng.standard_normal((32, 4)).astype(np.float32)
Y = np.tanh(X @ rng.standard_normal((4, 2))).astype(np.float32)
START = {"dense": {"w": jnp.full((4, 2), 0.1), "b": jnp.zeros(2)}, "scale": jnp.ones(2)}


def loss(params):
    hidden = jnp.tanh(X @ params["dense"]["w"] + params["dense"]["b"])
    return jnp.mean((hidden * params["scale"] - Y) ** 2)


def labels(params):
    return {"dense": jax.tree.map(lambda _: "adam", params["dense"]), "scale": "sgd"}


KINDS = {
    "chain": optax.chain(optax.clip(0.5), optax.trace(0.9, nesterov=True), optax.scale(-0.05)),
    "masked": optax.chain(
        optax.masked(optax.add_decayed_weights(0.1), {"dense": True, "scale": False}),
        optax.sgd(0.1),
    ),
    "several": optax.multi_transform({"adam": optax.adam(0.05), "sgd": optax.sgd(0.1)}, labels),
    "steps": optax.MultiSteps(optax.adamw(0.05), every_k_schedule=3),
    "injected": optax.inject_hyperparams(optax.sgd)(optax.exponential_decay(0.1, 5, 0.9)),
    "adafactor": optax.adafactor(0.05, min_dim_size_to_factor=2),
    "rmsprop": optax.rmsprop(0.02, momentum=0.9),
    "muon": contrib.muon(0.05),
    "prodigy": contrib.prodigy(1.0),
    "cocob": contrib.cocob(),
    "sam": contrib.sam(optax.sgd(0.05), contrib.normalize(), sync_period=2),
    "mechanic": contrib.mechanize(optax.sgd(0.1)),
}  # fmt: skip


def trained(optimizer, count=20):
    @jax.jit
    def run(params):
        def step(carry, _):
            params, state = carry
            grads = jax.grad(loss)(params)
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), None, length=count)
        return loss(params)

    return float(run(START))


for name, optimizer in KINDS.items():
    print(name, trained(optimizer))

look = optax.lookahead(optax.sgd(0.1), sync_period=3, slow_step_size=0.5)
params = optax.LookaheadParams.init_synced(START)
state = look.init(params)
for _ in range(6):
    updates, state = look.update(jax.grad(loss)(params.fast), state, params)
    params = optax.apply_updates(params, updates)
print("lookahead", float(loss(params.slow)), float(loss(params.fast)))

search = optax.lbfgs()
params, state = START, search.init(START)
value_and_grad = optax.value_and_grad_from_state(loss)


@jax.jit
def lbfgs(params, state):
    value, grad = value_and_grad(params, state=state)
    updates, state = search.update(grad, state, params, value=value, grad=grad, value_fn=loss)
    return optax.apply_updates(params, updates), state


for _ in range(5):
    params, state = lbfgs(params, state)
print("lbfgs", float(loss(params)))
plateau = contrib.reduce_on_plateau(patience=1, factor=0.5)
state = plateau.init(START)
for value in (1.0, 1.0, 1.0, 1.0):
    _, state = plateau.update(START, state, value=value)
print("plateau", float(state.scale))

steps = jnp.arange(0, 100, 20)
cycle = {"init_value": 0.0, "peak_value": 1.0, "decay_steps": 40, "warmup_steps": 10}
parts = [optax.linear_schedule(0, 1, 30), optax.cosine_decay_schedule(1, 50)]
SCHEDULES = {
    "join": optax.join_schedules(parts, [30]),
    "pieces": optax.piecewise_constant_schedule(1.0, {25: 0.1, 60: 0.5}),
    "polynomial": optax.polynomial_schedule(1.0, 0.1, 2, 80),
    "restarts": optax.sgdr_schedule([cycle, cycle]),
    "cycle": optax.cosine_onecycle_schedule(90, 0.1),
}  # fmt: skip
for name, schedule in SCHEDULES.items():
    print(name, [float(schedule(i)) for i in steps])
logits = jnp.array(X[:6, :3])
ctc = optax.ctc_loss(logits[None], jnp.zeros((1, 6)), jnp.array([[1, 2]]), jnp.zeros((1, 2)))
print("losses", float(ctc[0]), float(optax.sigmoid_focal_loss(logits, (logits > 0) * 1.0).sum()))
tree = {"a": jnp.arange(3.0), "b": [jnp.ones(2)]}
print("trees", float(optax.tree.vdot(tree, tree)), float(optax.tree.norm(tree)))
print("random", float(optax.tree.sum(optax.tree.random_like(jax.random.PRNGKey(0), tree))))
per = jax.vmap(jax.grad(lambda w, x: jnp.sum((w * x) ** 2)), (None, 0))(jnp.ones(4), X)
private = contrib.differentially_private_aggregate(1.0, 0.0, key=0)
print("private", private.update(per, private.init(jnp.ones(4)))[0].tolist())
