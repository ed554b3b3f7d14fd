"""Static types of transformed functions; nothing runs this."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, assert_type

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import Array, lax, named

x = jnp.ones(3)


def loss(w: Array, x: Array, scale: float = 1.0) -> Array:
    return jnp.sum(w * x) * scale


def pair(x: Array) -> tuple[Array, int]:
    return x, 1


assert_type(sw.jit(loss)(x, x, scale=2.0), Array)
assert_type(sw.vmap(loss)(x, x=x), Array)
assert_type(sw.checkpoint(loss)(x, x), Array)
assert_type(sw.value_and_grad(loss)(x, x), tuple[Array, Any])
assert_type(sw.jvp(jnp.sin, (x,), (x,)), tuple[Array, Array])
assert_type(sw.vjp(jnp.sin, x)[0], Array)
assert_type(sw.vjp(pair, x, has_aux=True)[2], int)
assert_type(sw.linearize(jnp.sin, x)[1](x), Array)

# Signatures are preserved.
sw.grad(loss)(x, x, scale=2.0)
sw.grad(loss)(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sw.vmap(loss)(x, x, size=1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sw.jit(loss)(x, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

named.checked(loss)(x, x, scale=2.0)
named.checked(loss)(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
assert_type(named.einsum("i j, j -> i", x, x), Array)
assert_type(named.axes({"x": x}, "i"), dict[str, Array])


# Control flow returns what its functions return.
def step(total: Array, row: Array) -> tuple[Array, Array]:
    return total + row, row


assert_type(lax.scan(step, x, x), tuple[Array, Array])
assert_type(lax.cond(True, jnp.sin, jnp.cos, x), Array)
assert_type(lax.fori_loop(0, 3, lambda i, y: y * 2, x), Array)
assert_type(lax.while_loop(lambda y: y[0] < 3, lambda y: y * 2, x), Array)
assert_type(lax.map(jnp.sin, x), Array)
