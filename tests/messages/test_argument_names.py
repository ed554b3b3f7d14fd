"""Names of arguments that `*rest` and `**more` catch, in errors."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

V, M = np.ones(4, np.float32), np.ones((3, 2), np.float32)
MESH = sw.make_mesh((1,), ("i",))
WIDE = NamedSharding(MESH, P(None, "i"))


def f(x, *rest, **more):
    return x


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: sw.jit(f)(V, V, "a"), ": rest[1]:"),
        (lambda: sw.jit(f)(V, z=[V, "a"]), ": more['z'][1]:"),
        (lambda: sw.jit(f, static_argnums=1)(V, 2, "a"), ": rest[1]:"),
        (lambda: sw.jit(f, static_argnums=1)(V, [2]), "static argument rest[0] "),
        (lambda: sw.jit(f, static_argnames="n")(V, n=[2]), "static argument more['n'] "),
        (lambda: sw.jit(f, in_shardings=(None, WIDE))(V, V), "in_shardings: rest[0] "),
        (lambda: sw.jit(f).lower(V, V).compile()(V, M), "compiled f: rest[0] "),
        (lambda: sw.vmap(f)(V, M), "axis 0 of rest[0] "),
        (lambda: sw.vmap(f)(V, z=M), "axis 0 of more['z'] "),
        (lambda: sw.vmap(f, in_axes=(0, {"a": 0}))(V, V), " rest[0] is a dict "),
        (lambda: sw.pmap(f)(V[:1], "a"), ": rest[0]:"),
        (lambda: sw.shard_map(f, mesh=MESH, in_specs=P("i"), out_specs=P("i"))(V, "a"), "rest[0]:"),
        (lambda: sw.checkpoint(f)(V, "a"), ": rest[0] is "),
        (lambda: sw.grad(f, argnums=1)(V, 3), "; rest[0] is of type "),
        (lambda: sw.jit(sw.tree_util.Partial(f, V))(V, "a"), ": rest[1]:"),
    ],
)
def test_caught_arguments_are_named_after_their_parameter(call, name):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert name in str(caught.value)
