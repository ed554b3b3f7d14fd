"""An nnx model with state, trained by optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int32)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, x, y):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


for i in range(60):
    value = float(step(model, optimizer, X, Y))
    if i % 20 == 0:
        print("loss", i, value)
model.eval()
accuracy = float((jnp.argmax(model(X), -1) == Y).mean())
assert accuracy > 0.85, accuracy
graph, state = nnx.split(model)
merged = nnx.merge(graph, state)
np.testing.assert_array_equal(merged(X), model(X))
print("shapes", sorted(str(jnp.shape(x)) for x in jax.tree.leaves(nnx.state(model, nnx.Param))))
