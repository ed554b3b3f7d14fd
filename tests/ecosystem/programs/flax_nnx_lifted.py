"""Transforms of nnx: over layers, batches and ensembles; sharded by annotations; checks."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

jax.set_mesh(Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model")))
x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), jnp.float32)


class Block(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
        self.linear = nnx.Linear(8, 8, kernel_init=init, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x):
        self.calls[...] += 1
        return x + self.dropout(nnx.gelu(self.linear(x)))


@nnx.split_rngs(splits=3)
@nnx.vmap(in_axes=(0,), out_axes=0, transform_metadata={nnx.PARTITION_NAME: None})
def stack(rngs):
    return Block(rngs)


blocks = stack(nnx.Rngs(0, dropout=1))


@nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry, transform_metadata={nnx.PARTITION_NAME: None})
@nnx.remat
def run(block, x):
    return block(x)


y = run(blocks, x)
print("scan", y.shape, float(y.sum()), blocks.calls[...].tolist())
blocks.eval()
print("eval", float(run(blocks, x).sum()))
specs = nnx.get_partition_spec(nnx.state(blocks, nnx.Param))
print("specs", sorted(str(s) for s in jax.tree.leaves(specs, is_leaf=lambda s: isinstance(s, P))))
grads = nnx.grad(lambda m: run(m, x).sum())(blocks)
print("grads", sorted(np.shape(g) for g in jax.tree.leaves(grads)))
last = nnx.DiffState(0, nnx.All(nnx.Param, nnx.PathContains("bias")))
some = nnx.grad(lambda m: run(m, x).sum(), argnums=last)(blocks)
print("some", len(jax.tree.leaves(some)))


@nnx.jit
def both(m, x):
    return nnx.cond(x.sum() > 0, lambda m, x: run(m, x), lambda m, x: -run(m, x), m, x)


print("cond", float(both(blocks, x).sum()), float(both(blocks, -x).sum()))
total = nnx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, 1.0))
print("while", float(total[1]), float(nnx.fori_loop(0, 4, lambda i, v: v + i, 0.0)))
print("switch", float(nnx.switch(1, [lambda v: v, lambda v: v * 3], jnp.array(2.0))))
shape = nnx.eval_shape(lambda: nnx.MultiHeadAttention(2, 8, 8, rngs=nnx.Rngs(0)))
print("shapes", shape.query.kernel.shape)
attention = nnx.MultiHeadAttention(2, 8, 8, decode=False, rngs=nnx.Rngs(0))
print("attention", float(attention(x[None]).sum()))
rnn = nnx.RNN(nnx.LSTMCell(8, 4, rngs=nnx.Rngs(0)))
print("rnn", float(rnn(x[None]).sum()))
lora = nnx.LoRA(8, 2, 8, rngs=nnx.Rngs(0))
print(
    "lora", sorted(type(v).__name__ for _, v in nnx.iter_graph(lora) if isinstance(v, nnx.Variable))
)
metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
metrics.update(logits=jnp.eye(4), labels=jnp.arange(4), loss=jnp.array([1.0, 2.0]))
print("metrics", {k: float(v) for k, v in metrics.compute().items()})
wrapped = nnx.bridge.ToNNX(nn.Dense(3), rngs=nnx.Rngs(0)).lazy_init(x)
print("bridge", float(wrapped(x).sum()))
print("linen", nnx.bridge.to_linen(nnx.Linear, 8, 2).init(jax.random.key(0), x)["params"].keys())
print(
    "table", "Linear" in nnx.tabulate(attention, x[None], console_kwargs={"force_terminal": False})
)
graph, params, rest = nnx.split(blocks, nnx.Param, ...)
print("state", len(jax.tree.leaves(params)), len(jax.tree.leaves(rest)))
pure = nnx.to_pure_dict(nnx.state(blocks, nnx.BatchStat))
print("pure", {k: v.tolist() for k, v in pure.items()})


def positive(m, x):
    from jax.experimental import checkify

    checkify.check(x.sum() > 0, "sum must be positive")
    return m(x)


error, _ = nnx.checkify(positive)(attention, -jnp.abs(x[None]))
print("check", "sum must be positive" in str(error.get()))
