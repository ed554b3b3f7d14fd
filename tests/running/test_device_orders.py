"""One program with meshes over the same devices in different orders and over several axes."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.sharding import Mesh, NamedSharding, PositionalSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import holds

DEVICES = sw.devices()[:8]
MESH = Mesh(np.array(DEVICES).reshape(2, 4), ("x", "y"))
BACK = Mesh(np.array(DEVICES[::-1]).reshape(4, 2), ("a", "b"))
EXPLICIT = sw.make_mesh((4, 2), ("a", "b"), devices=DEVICES[::-1])


@pytest.mark.parametrize("size", [8, 5])
def test_a_constraint_over_a_mesh_in_another_order(size):
    host = np.arange(size, dtype=np.float32)
    x = sw.device_put(host, NamedSharding(MESH, P("x")))
    wanted = NamedSharding(BACK, P("b"))
    y = sw.jit(lambda v: sw.lax.with_sharding_constraint(v, wanted))(x)
    holds(y, host)
    assert dict(y.sharding.devices_indices_map((size,))) == wanted.devices_indices_map((size,))


@pytest.mark.parametrize("size", [8, 5])
def test_a_program_runs_in_the_order_of_the_mesh_in_types(size):
    host = np.arange(size, dtype=np.float32)
    x = sw.device_put(host, NamedSharding(MESH, P("x")))
    y = sw.device_put(host, NamedSharding(EXPLICIT, P("a")))
    for pair in ((x, y), (y, x)):
        for add in (snp.add, sw.jit(snp.add)):
            z = add(*pair)
            holds(z, host + host)
            assert z.sharding is NamedSharding(EXPLICIT, P("a"))


@pytest.mark.parametrize("size", [4, 12, 9])
@pytest.mark.parametrize("f", [lambda v: v[::-1], snp.cumsum, lambda v: v[:, None] * v])
def test_a_dimension_over_several_axes_that_do_not_divide_it_together(f, size):
    host = np.arange(size, dtype=np.float32)
    y = sw.jit(f)(sw.device_put(host, NamedSharding(MESH, P(("x", "y")))))
    assert y.sharding is NamedSharding(MESH, P(("x", "y")))
    holds(y, np.asarray(f(snp.asarray(host))))


@pytest.mark.parametrize("size", [8, 9])
def test_results_of_bare_constraints_are_over_the_mesh_in_scope(size):
    with MESH:
        y = sw.jit(lambda: sw.lax.with_sharding_constraint(snp.arange(size), P("x")))()
    assert y.sharding is NamedSharding(MESH, P("x"))
    holds(y, np.arange(size))


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_of_a_constraint_without_a_spec(axis):
    host = np.arange(40, dtype=np.float32).reshape(8, 5)
    place = PositionalSharding(DEVICES)
    x = sw.device_put(host, NamedSharding(MESH, P("x")))
    f = sw.vmap(lambda v: sw.lax.with_sharding_constraint(v * 2, place), axis, axis)
    holds(sw.jit(f)(x), host * 2)
