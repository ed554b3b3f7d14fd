"""Static types of maps over meshes, of custom rules, and of stages."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Callable
from typing import Any, assert_type

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import Array, P, lax

x = jnp.ones(8)
mesh = sw.make_mesh((8,), ("x",))


def scaled(x: Array, by: float = 2.0) -> Array:
    return x * by


def parts(x: Array) -> tuple[Array, dict[str, Array]]:
    return x, {"sum": jnp.sum(x)}


# Maps over meshes.
mapped = sw.shard_map(parts, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P()))
assert_type(mapped(x), tuple[Array, dict[str, Array]])
assert_type(sw.pmap(scaled)(x), Array)
mapped("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@sw.jit
@sw.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
def total(x: Array) -> Array:
    return lax.psum(x, "x")


assert_type(total(x), Array)


# Custom rules.
@sw.custom_vjp
def twice(x: Array, by: float) -> Array:
    return x * 2 * by


def forward(x: Array, by: float) -> tuple[Array, float]:
    return twice(x, by), by


def backward(by: float, ct: Array) -> tuple[Array, None]:
    return ct * 2 * by, None


twice.defvjp(forward, backward)
assert_type(twice(x, 1.0), Array)
twice(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@sw.custom_jvp
def thrice(x: Array) -> Array:
    return x * 3


@thrice.defjvp
def thrice_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return thrice(*primals), tangents[0] * 3


assert_type(thrice(x), Array)


@sw.custom_gradient
def square(x: Array) -> tuple[Array, Callable[[Array], Array]]:
    return x**2, lambda ct: 2 * x * ct


assert_type(square(x), Array)


# Types preserved when a function is differentiated, compiled or staged.
@sw.jit
@sw.value_and_grad
def step(w: Array, x: Array) -> Array:
    return jnp.sum(w * x)


assert_type(step(x, x), tuple[Array, Any])
assert_type(sw.jit(sw.vmap(scaled))(x, by=1.0), Array)
assert_type(sw.jit(scaled, static_argnames="by")(x, by=1.0), Array)
assert_type(sw.vmap(sw.jit(parts))(x), tuple[Array, dict[str, Array]])
assert_type(sw.jit(scaled).lower(x).compile()(x), Any)
assert_type(sw.checkpoint(scaled)(x, by=1.0), Array)
leaves, tree = sw.tree.flatten({"x": x})
assert_type(leaves, list[Any])
program = sw.make_jaxpr(scaled)(x)
sw.jacrev(scaled)(x, by=1.0)
sw.hessian(scaled)(x)
sw.jacfwd(scaled)(x, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
