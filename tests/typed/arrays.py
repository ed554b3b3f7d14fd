"""Static types of arrays and of functions that create them; nothing runs this."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, assert_type

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import Array, lax, nn, random

x = jnp.arange(6.0).reshape(2, 3)

# Results are arrays.
assert_type(x, Array)
assert_type(jnp.sin(x), Array)
assert_type(jnp.where(x > 0, x, 0.0), Array)
assert_type(jnp.where(x > 0), tuple[Array, ...])
assert_type(jnp.linspace(0.0, 1.0, retstep=True), tuple[Array, Array])
assert_type(jnp.unique(x), Array)
assert_type(jnp.einsum("ij,kj->ik", x, x), Array)
assert_type(jnp.linalg.norm(x), Array)
assert_type(jnp.divmod(x, 2), tuple[Array, Array])
assert_type(jnp.array_equal(x, x), Array)
assert_type(lax.top_k(x, 2), tuple[Array, Array])
assert_type(nn.softmax(x), Array)
assert_type(random.normal(random.key(0), (3,)), Array)
assert_type(jnp.shape(x), tuple[int, ...])

# So are the results of operators and methods.
assert_type(x + 1, Array)
assert_type(2.0 * x, Array)
assert_type(-x, Array)
assert_type(x @ x.T, Array)
assert_type(x == x, Array)
assert_type(x < 1, Array)
assert_type(x[0, 1:], Array)
assert_type(x.sum(axis=0, keepdims=True), Array)
assert_type(x.at[0].set(1.0), Array)
assert_type(x.astype(jnp.float32), Array)
assert_type(x.shape, tuple[int, ...])
assert_type([row for row in x], list[Array])
assert_type(float(x[0, 0]), float)

# Arguments of functions.
jnp.sin(np.ones(3))
jnp.zeros((2, 3), dtype=jnp.bfloat16)
jnp.zeros(3, dtype="int32")
jnp.sum(x, axis=(0, 1))
jnp.sin([1.0])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
jnp.sin("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
jnp.zeros("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
x.sum(axes=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# Missing names, in modules whose names are loaded on first use.
jnp.sine(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
nn.sotfmax(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
sw.devise_put(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
x.reshap(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

# Pytrees keep their types.
params: dict[str, Array] = {"w": x}
assert_type(sw.device_put(params), dict[str, Array])
assert_type(sw.device_put(np.ones(3)), Array)
assert_type(sw.block_until_ready(params), dict[str, Array])
assert_type(lax.stop_gradient(params), dict[str, Array])
leaf: Any = sw.tree.map(jnp.sin, params)
