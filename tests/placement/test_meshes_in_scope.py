"""Staged code runs on the devices of the mesh that is in scope when it is called."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.maps import xmap
from shardwise.experimental.pjit import pjit
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    use_abstract_mesh,
)
from tests.helpers.errors import message
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


def test_programs_run_on_the_mesh_only():
    """As in JAX: jit and eager ops in `set_mesh`, and pjit in `with mesh`."""
    x, last = jnp.arange(4.0), NamedSharding(LAST, PartitionSpec("x"))
    there, one = sw.device_put(X, last), sw.device_put(x, LAST.flat_devices[0])
    calls = [
        lambda: sw.jit(lambda x, y: (x, y))(x, there),
        lambda: sw.jit(lambda x: x, in_shardings=last)(X),
        lambda: sw.jit(lambda x: x, out_shardings=last)(X),
        lambda: one * 2,
    ]
    with sw.set_mesh(FIRST):
        texts = [message(ValueError, call) for call in calls]
        assert texts[0] == (
            "<lambda> runs on the devices of the mesh in scope, Mesh('x': 4), which are devices "
            "[0, 1, 2, 3], but y of type f32[8] is on devices [4, 5, 6, 7]. Move it with "
            "`device_put(x, sharding)`, or call the function in the scope of its own mesh."
        )
        for made in jnp.ones_like(there), jnp.full(8, 2.0, device=last), sw.device_put(one, last):
            assert made.sharding == last
        assert np.asarray(there).tolist() == X.tolist()
    with FIRST:
        assert sw.jit(lambda x: x + 1)(there).sharding == last
        assert (there + 1).sharding == last
        assert message(ValueError, pjit(lambda y: y), there) == texts[0]
    with sw.set_mesh(LAST.update(devices=LAST.devices[::-1])):
        assert (there + 1).sharding.device_set == last.device_set


def test_reshard_over_auto_axes_moves_to_the_mesh():
    last = NamedSharding(LAST, PartitionSpec())
    rows = sw.device_put(X, last.update(spec=PartitionSpec("x")))
    for x in jnp.arange(8.0), X, sw.device_put(X, NamedSharding(FIRST, PartitionSpec("x"))):
        y = sw.sharding.reshard(x, last)
        assert (y.sharding, y.committed, y.tolist()) == (last, True, X.tolist())
    assert sw.sharding.reshard(rows, last) is rows  # which is there: the axes are the compiler's


def test_programs_of_uncommitted_arguments_run_on_the_mesh():
    x, here = jnp.arange(4.0), NamedSharding(FIRST, PartitionSpec())
    double = sw.jit(lambda x: x * 2)
    with sw.set_mesh(FIRST):
        for made in double(x), x + 1, sw.jit(lambda: 1)(), sw.grad(lambda x: (x * x).sum())(x):
            assert (made.sharding, made.committed) == (here, True)
    with FIRST:
        assert double(x).sharding == x.sharding
        assert pjit(lambda x: x * 2)(x).sharding == here
        assert pjit(lambda x: x * 2).lower(x).compile()(x).sharding == here
        rows = sw.device_put(X, NamedSharding(FIRST, PartitionSpec("x")))
        places = {"out_shardings": (None, PartitionSpec("x"))}
        for f, spec in (pjit, PartitionSpec()), (sw.jit, PartitionSpec("x")):  # JAX's meaning
            whole, parts = f(lambda x: (x, x + 1), **places)(rows)
            assert (whole.sharding.spec, parts.sharding.spec) == (spec, PartitionSpec("x"))
    assert double(x).sharding == x.sharding
    explicit = FIRST.update(axis_types=(AxisType.Explicit,))
    with sw.set_mesh(explicit):
        assert (x + 1).sharding == NamedSharding(explicit, PartitionSpec(None))


def test_another_arrangement_of_the_devices_in_scope():
    grid = AbstractMesh((2, 2), ("a", "b"), axis_types=AxisType.Auto)

    def f(x):
        with use_abstract_mesh(grid):
            return lax.with_sharding_constraint(x + 1, PartitionSpec(("a", "b"))) * 2

    with sw.set_mesh(FIRST):
        y = sw.jit(f)(jnp.asarray(X))
        with use_abstract_mesh(grid):
            assert (jnp.asarray(X) + 1).sharding.mesh.shape == {"a": 2, "b": 2}
    assert y.addressable_shards[1].data.tolist() == [6, 8] and y.devices() == {*FIRST.flat_devices}


def test_results_over_another_arrangement_name_its_axes():
    place = NamedSharding(FIRST, PartitionSpec("x"))
    grid = AbstractMesh((2, 2), ("a", "b"), axis_types=AxisType.Auto)
    halves = NamedSharding(grid, PartitionSpec("a"))
    y = sw.jit(lambda x: lax.with_sharding_constraint(x, halves))(sw.device_put(X, place))
    assert y.sharding.spec == PartitionSpec("a") and y.sharding.mesh.shape == {"a": 2, "b": 2}
    assert [s.data.tolist() for s in y.addressable_shards[1:3]] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_types_in_traced_functions_have_the_mesh_in_scope():
    seen = []
    f = sw.jit(lambda x: seen.append(sw.typeof(x).sharding) or x * 2)
    with sw.set_mesh(FIRST):
        f(jnp.ones((2, 3)))
    assert seen == [NamedSharding(FIRST.abstract_mesh, PartitionSpec(None, None))]
    assert sw.typeof(jnp.ones(2)).sharding.mesh.empty


def test_constraints_keep_explicit_axes():
    mesh = Mesh(DEVICES.reshape(4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
    f = sw.jit(lambda x: lax.with_sharding_constraint(x, PartitionSpec("y")))
    with sw.set_mesh(mesh):
        y = f(sw.device_put(X, PartitionSpec("x")))
    assert y.sharding.spec == PartitionSpec(("x", "y"))
