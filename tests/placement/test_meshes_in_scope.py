"""Staged code runs on the devices of the mesh that is in scope when it is called."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.everyday import everyday

DEVICES = np.array(sw.devices())
X = np.arange(8, dtype=np.float32)
FIRST, LAST = Mesh(DEVICES[:4], ("x",)), Mesh(DEVICES[4:], ("x",))

share = sw.shard_map(
    lambda x: x / lax.psum(x.sum(), "x"), in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x")
)
divided = xmap(lambda x: x / lax.psum(x, "a"), ["a"], ["a"], axis_resources={"a": "x"})
RUNS = {
    "shard_map": share,
    "jit": sw.jit(share),
    "vmap": lambda x: sw.vmap(share)(x[None])[0],
    "jvp": lambda x: sw.jvp(share, (x,), (x,))[0],
    "vjp": lambda x: sw.vjp(share, x)[0],
    "scan": lambda x: lax.scan(lambda c, _: (share(c), None), x, None, length=1)[0],
    "xmap": divided,
    "jit of xmap": sw.jit(divided),
}


def is_right(y, mesh):
    np.testing.assert_allclose(y, X / 28, rtol=1e-6)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("x")), 1)


@pytest.mark.parametrize("name", everyday(RUNS, 2))
def test_another_mesh_of_the_same_shape(name):
    for mesh in FIRST, LAST, FIRST:
        with sw.set_mesh(mesh):
            is_right(RUNS[name](X), mesh)
        with mesh:
            is_right(RUNS[name](X), mesh)


@pytest.mark.parametrize("name", everyday(RUNS, 3))
def test_a_mesh_that_is_entered_inside_of_a_trace(name):
    def within(mesh):
        def run(x):
            with mesh:
                return RUNS[name](x)

        return sw.jit(run)

    for mesh in FIRST, LAST, FIRST:
        is_right(within(mesh)(X), mesh)
    with FIRST:
        is_right(within(LAST)(X), LAST)


def test_a_constraint_over_a_mesh_that_is_entered_inside_of_a_trace():
    for mesh in FIRST, LAST:

        @sw.jit
        def run(x, mesh=mesh):
            with mesh:
                return lax.with_sharding_constraint(x, PartitionSpec("x")) / 28

        is_right(run(X), mesh)
