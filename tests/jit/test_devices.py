"""`jit`: the devices and meshes that programs run on, against jax."""

from __future__ import annotations

import itertools

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, ours, sharding
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday
from tests.helpers.jitted import ONE, V, X

# -- arguments on all kinds of devices and meshes --


def places(library, n):
    """Arguments on all kinds of devices and meshes, in either library."""
    kinds = sw.sharding if library is sw else jax.sharding
    devices = library.devices()

    def over(which, *spec):
        mesh = kinds.Mesh(np.array(devices[which]), ("x",))
        return kinds.NamedSharding(mesh, kinds.PartitionSpec(*spec))

    def put(where):
        return lambda: library.device_put(V, where)

    return {
        "host": lambda: V,
        "scalar": lambda: 2.0,
        "uncommitted": lambda: n.asarray(V),
        "device 0": put(devices[0]),
        "device 1": put(devices[1]),
        "mesh": put(over(slice(0, 4), "x")),
        "replicated": put(over(slice(0, 4))),
        "mesh of one": put(over(slice(0, 1))),
        "other mesh": put(over(slice(4, 8), "x")),
    }


MINE, THEIRS = places(sw, jnp), places(jax, jax.numpy)


FUNCTIONS = {
    "sum": lambda a, b: a + b,
    "both": lambda a, b: (a, b),
    "first": lambda a, b: a * 2,
    "argument": lambda a, b: b,
    "constant": lambda a, b: 1.0,
}


def placed(library, fun, args):
    """The result devices, what each holds, and whether results are committed; or the error."""
    try:
        out = library.jit(fun)(*args)
    except ValueError:
        return "ValueError"
    return [
        (x.committed, {d.id: i for d, i in x.sharding.devices_indices_map(x.shape).items()})
        for x in (out if isinstance(out, tuple) else (out,))
    ]


@pytest.mark.parametrize("name", everyday(FUNCTIONS, 1))
def test_where_programs_run_is_where_jax_runs_them(name):
    fun = FUNCTIONS[name]
    for one, two in itertools.product(MINE, MINE):
        got = placed(sw, fun, (MINE[one](), MINE[two]()))
        assert got == placed(jax, fun, (THEIRS[one](), THEIRS[two]())), (one, two)


def test_mismatches_name_both_arguments_and_the_way_out():
    def step(state, batch):
        return state["w"] + batch[1]

    batch = (V, sw.device_put(V, sw.devices()[5]))
    assert message(
        ValueError, sw.jit(step), {"w": ours(np.ones((8, 4), np.float32), "x")}, batch
    ) == (
        "step got arguments on different devices: state['w'] of type f32[8,4] is on devices [0, 1, "
        "2, 3, 4, 5, 6, 7], batch[1] of type f32[4] on device 5. Move one of them with "
        "`device_put(x, sharding)`."
    )
    moved = sw.device_put(batch[1], sharding())
    assert sw.jit(step)({"w": ours(X, "x")}, (V, moved)).sharding == sharding("x")


def test_results_over_a_mesh_of_one_device_stay_over_it():
    mesh = Mesh(np.array(sw.devices()[2:3]), ("x",))
    place = NamedSharding(mesh, P("x"))
    x = sw.device_put(V, place)
    double, total = sw.jit(lambda a: a * 2), sw.jit(lambda a, b: a + b)
    for y in (double(x), x * 2, x + 1, jnp.sin(x), total(x, V)):
        assert isinstance(y.sharding, NamedSharding) and y.sharding.mesh is mesh and y.committed
    other = jax.sharding.Mesh(np.array(jax.devices()[2:3]), ("x",))
    there = jax.sharding.NamedSharding(other, jax.sharding.PartitionSpec("x"))
    z = jax.jit(lambda a: a * 2)(jax.device_put(V, there))
    assert isinstance(z.sharding, jax.sharding.NamedSharding)
    assert sw.jit(lambda a: a, out_shardings=ONE)(V).sharding is ONE


def test_on_one_device_and_on_none_in_particular():
    on_three = sw.device_put(X, sw.devices()[3])
    y = sw.jit(lambda a, b: a * b)(on_three, 2.0)
    assert y.devices() == {sw.devices()[3]} and y.committed
    z = sw.jit(lambda a: a * 2)(X)
    assert z.devices() == {sw.devices()[0]} and not z.committed


def test_uncommitted_arguments_go_to_where_the_others_are():
    x = ours(X, "x")
    here = jnp.ones(4)
    for other in (here, np.ones(4, np.float32), 2.0):
        y = sw.jit(lambda a, b: a + b)(x, other)
        assert y.sharding == sharding("x") and y.committed


def test_out_shardings_decide_where_uncommitted_arguments_go():
    y = sw.jit(lambda a: a + 1, out_shardings=sharding("x"))(X)
    assert y.sharding is sharding("x") and y.committed


def test_meshes_over_the_same_devices_in_another_order_go_together():
    turned = Mesh(MESH.devices[::-1], ("x", "y"))
    a, b = ours(X, "x", "y"), sw.device_put(X, NamedSharding(turned, P("y", "x")))
    for first, second in ((a, b), (b, a)):
        y = sw.jit(lambda u, v: u + 2 * v)(first, second)
        np.testing.assert_array_equal(np.asarray(y), X * 3)
    asked = sw.jit(lambda u: u * 2, in_shardings=sharding("x", "y"))(X)
    np.testing.assert_array_equal(np.asarray(asked), X * 2)
    y = sw.jit(lambda u: u * 2, out_shardings=NamedSharding(turned, P("x")))(a)
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(y + a), X * 3)


def test_results_are_over_the_mesh_of_their_arguments():
    other = Mesh(MESH.devices.reshape(2, 4), ("a", "b"))
    a, b = ours(X, "x"), sw.device_put(X, NamedSharding(other, P("a", "b")))
    assert (2.5 - a).sharding == sharding("x")  # the scalar is cached, but not for the other mesh
    assert (2.5 - b).sharding == NamedSharding(other, P("a", "b"))
    into = sw.jit(lambda u: sw.with_sharding_constraint(u, b.sharding))(a)
    assert into.sharding == b.sharding


# -- device and backend --


def test_a_device_takes_what_is_elsewhere():
    there = sw.devices()[2]
    f = sw.jit(lambda a: a * 2, device=there)
    for x in (X, jnp.asarray(X), sw.device_put(X, sw.devices()[5]), ours(X, "x")):
        y = f(x)
        assert y.devices() == {there} and y.committed
        np.testing.assert_array_equal(np.asarray(y), X * 2)
    assert sw.jit(lambda: jnp.ones(3), device=there)().devices() == {there}
    assert sw.jit(lambda a: a * 2, backend="cpu")(X).devices() == {sw.devices()[0]}
    assert f.lower(X).compile()(X).devices() == {there}
    assert sw.jit(lambda a: f(a) + 1)(ours(X, "x")).sharding == sharding("x")


def f(a):
    return a


test_one_way_of_saying_where = messages(
    """
sw.jit(f, device=sw.devices()[0], backend="cpu")
    ValueError: jit of f: got device=cpu:0 and backend='cpu'; pass only one of them.
sw.jit(f, device=sw.devices()[0], in_shardings=ONE)
    ValueError: jit of f: got device together with in_shardings or out_shardings, which also
    determine where to run. Leave it out.
sw.jit(f, backend="cpu", out_shardings=ONE)
    ValueError: jit of f: got backend together with in_shardings or out_shardings, which also
    determine where to run. Leave it out.
""",
    globals(),
)
