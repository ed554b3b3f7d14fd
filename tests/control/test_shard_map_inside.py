"""A collective over an axis of a mesh gives what it gives over a mapped axis, wherever it is."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.control.test_collectives_inside import (
    BY_ROW,
    FORWARD,
    NO_FORWARD,
    REVERSE,
    X,
)
from tests.helpers.same_as_jax import OURS, close
from tests.helpers.sampling import sampled

MESH = Mesh(np.array(sw.devices()[:4]), ("i",))


def over_devices(checked):
    """The map over a mesh in the form of `vmap(g, axis_name="i")`."""
    def mapped(g):
        def part(rows):
            return sw.tree.map(lambda y: jnp.asarray(y)[None], g(rows[0]))

        return sw.shard_map(
            part, mesh=MESH, in_specs=P("i"), out_specs=P("i"), check_vma=checked
        )

    return mapped


def over_rows(g):
    return sw.vmap(g, axis_name="i")


def forms(mapped, f):
    """Value and derivatives: per index, inside of the map, and of all, through it."""
    one = lambda x: f(OURS, x)  # noqa: E731
    loss = lambda x: jnp.sum(jnp.sin(one(x)))  # noqa: E731
    along = lambda g: lambda x: sw.jvp(g, (x,), (jnp.cos(x),))  # noqa: E731
    found = {"value": mapped(one)}
    if f not in NO_FORWARD:
        found |= {"jvp": mapped(along(one)), "jvp through": along(mapped(one))}
    if f in REVERSE or f in BY_ROW:
        total = lambda xs: jnp.sum(mapped(loss)(xs))  # noqa: E731
        found |= {"grad": mapped(sw.grad(loss)), "grad through": sw.grad(total)}
    return found


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("f", sampled([*REVERSE, *FORWARD, *BY_ROW], 1 / 2))
def test_like_over_a_mapped_axis(f, checked):
    wanted = sw.jit(lambda x: {n: g(x) for n, g in forms(over_rows, f).items()})(X)
    run = sw.jit(lambda x: {n: g(x) for n, g in forms(over_devices(checked), f).items()})
    check_program(run.trace(X).program)
    close(run(X), wanted, 2e-4)
