"""A collective over a mesh axis returns the same as over a mapped axis, wherever it is used."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.control.test_collectives_inside import BY_ROW, FORWARD, NO_FORWARD, REVERSE, X
from tests.helpers.comparing import close
from tests.helpers.errors import message as message_of
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import OURS

MESH = Mesh(np.array(sw.devices()[:4]), ("i",))


def over_devices(checked):
    """The map over a mesh in the form of `vmap(g, axis_name="i")`."""

    def mapped(g):
        def part(rows):
            return sw.tree.map(lambda y: jnp.asarray(y)[None], g(rows[0]))

        return sw.shard_map(part, mesh=MESH, in_specs=P("i"), out_specs=P("i"), check_vma=checked)

    return mapped


def over_rows(g):
    return sw.vmap(g, axis_name="i")


def forms(mapped, f):
    """Values and derivatives: per index inside the map, and of the total through the map."""
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
@pytest.mark.parametrize("f", everyday([*REVERSE, *FORWARD, *BY_ROW], 3))
def test_like_over_a_mapped_axis(f, checked):
    wanted = sw.jit(lambda x: {n: g(x) for n, g in forms(over_rows, f).items()})(X)
    run = sw.jit(lambda x: {n: g(x) for n, g in forms(over_devices(checked), f).items()})
    check_program(run.trace(X).program)
    close(run(X), wanted, 2e-4)


def test_cotangents_differ_where_results_are_the_same():
    """Results that are the same on all devices may be concatenated."""
    weights = np.arange(4, dtype=np.float32)
    run = sw.shard_map(lambda x: sw.lax.psum(x, "i"), mesh=MESH, in_specs=P("i"), out_specs=P("i"))
    slopes = sw.grad(lambda x: jnp.sum(run(x) * weights))(weights)
    np.testing.assert_array_equal(slopes, [6, 6, 6, 6])


@pytest.mark.parametrize("groups", [[[0, 3], [1, 2]], [[0], [1, 2, 3]]], ids=str)
@pytest.mark.parametrize("checked", [True, False])
def test_sums_of_groups_differ(groups, checked):
    weights = np.array([1, -2, 3, 5], np.float32)
    of = np.array([[any(i in g and j in g for g in groups) for j in range(4)] for i in range(4)])
    kinds = []

    def f(x):
        found = sw.lax.psum(x * x, "i", axis_index_groups=groups)
        kinds.append(sw.typeof(found).varying)
        return found

    def run(out_specs):
        return sw.shard_map(f, mesh=MESH, in_specs=P("i"), out_specs=out_specs, check_vma=checked)

    slopes = sw.grad(lambda x: jnp.sum(run(P("i"))(x) * weights))(weights)
    np.testing.assert_array_equal(slopes, 2 * weights * (of @ weights))
    assert {*kinds} == {frozenset("i" if checked else "")}
    if checked:
        message = message_of(ValueError, run(P()), weights)
        assert message.startswith(
            "shard_map of f: result, of type f32[1]{V:i}, may vary along 'i', which its spec P() "
            "does not name."
        )


def test_what_is_gathered_over_a_mesh_and_a_mapped_axis():
    """By its type the value is the same along one of the two axes."""

    def one(x, w):
        def loss(x):
            every = sw.lax.all_gather_invariant(x, ("m", "i"))
            return jnp.sum(every * jnp.reshape(w, ()))

        return sw.grad(loss)(x)

    run = sw.shard_map(
        sw.vmap(one, axis_name="m"), mesh=MESH, in_specs=P(None, "i"), out_specs=P(None, "i")
    )
    x = np.ones((2, 4), np.float32)
    weights = np.arange(8, dtype=np.float32).reshape(2, 4)
    slopes = run(x[:, :, None], weights)
    np.testing.assert_array_equal(slopes[..., 0], np.full((2, 4), 28))


def test_what_loops_of_different_lengths_give_varies():
    def count():
        last = sw.lax.axis_index("i")
        turns = sw.lax.while_loop(lambda k: k < last, lambda k: k + 1, jnp.int32(0))
        assert sw.typeof(turns).str_short(True) == "i32[]{V:i}"
        return turns[None]

    run = sw.shard_map(count, mesh=MESH, in_specs=(), out_specs=P("i"))
    np.testing.assert_array_equal(run(), np.arange(4))


def test_rows_of_a_device_may_loop_as_often_as_they_like():
    def one(x):
        last = x + sw.lax.axis_index("i")
        return sw.lax.while_loop(lambda s: s[0] < last, lambda s: (s[0] + 1, 2 * s[1]), (0, 1))[1]

    run = sw.shard_map(sw.vmap(one), mesh=MESH, in_specs=P(), out_specs=P("i"))
    wanted = 2 ** np.add.outer(np.arange(4), np.arange(2)).ravel()
    np.testing.assert_array_equal(run(np.arange(2)), wanted)
