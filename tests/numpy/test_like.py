"""Arrays made like another one: they are on the same devices and sharded alike."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, MESH, PLACES

EXPLICIT = MESH.update(axis_types=(AxisType.Explicit, AxisType.Explicit))
MIXED = MESH.update(axis_types=(AxisType.Explicit, AxisType.Auto))
WHERE = {
    **PLACES,
    "columns": NamedSharding(MESH, P(None, "y")),
    "on the host": NamedSharding(MESH, P("x"), memory_kind="pinned_host"),
    "one, on the host": SingleDeviceSharding(DEVICES[2], memory_kind="pinned_host"),
    "explicit": NamedSharding(EXPLICIT, P("x")),
    "mixed": NamedSharding(MIXED, P("x", "y")),
}
LIKE = {
    "zeros_like": (snp.zeros_like, 0),
    "ones_like": (snp.ones_like, 1),
    "empty_like": (snp.empty_like, 0),
    "full_like": (lambda x: snp.full_like(x, 7), 7),
    "full_like, array": (lambda x: snp.full_like(x, snp.arange(2.0)), [0, 1]),
    "full_like, elsewhere": (
        lambda x: snp.full_like(x, sw.device_put(np.arange(2.0), DEVICES[7])),
        [0, 1],
    ),
    "lax.full_like": (lambda x: lax.full_like(x, 7), 7),
    "dtype": (lambda x: snp.zeros_like(x, dtype=int), 0),
    "shape": (lambda x: snp.ones_like(x, shape=x.shape), 1),
    "tree": (lambda x: sw.tree.map(snp.zeros_like, {"a": x})["a"], 0),
    "imag": (snp.imag, 0),
    "copy": (snp.copy, None),
    "array": (snp.array, None),
    "astype": (lambda x: x.astype(np.float16), None),
    "set": (lambda x: x.at[:].set(3), 3),
    "set all": (lambda x: x.at[...].set(snp.arange(2.0)), [0, 1]),
}


@pytest.mark.parametrize("name", everyday(LIKE, 2))
@pytest.mark.parametrize("where", WHERE)
def test_place(where, name):
    make, value = LIKE[name]
    for rows in (8, 9) if "mixed" != where != "explicit" else (8,):
        host = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
        x = sw.device_put(host, WHERE[where])
        y = make(x)
        assert y.sharding == x.sharding and y.committed
        assert [s.data.shape for s in y.addressable_shards] == [
            s.data.shape for s in x.addressable_shards
        ]
        expected = host if value is None else np.broadcast_to(value, (rows, 2))
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(snp.add(x, y), host + np.asarray(y))


@pytest.mark.parametrize("name", ["zeros_like", "full_like", "lax.full_like"])
def test_other_shapes(name):
    """If replication is the only possible sharding."""
    make = {
        "zeros_like": lambda x, s: snp.zeros_like(x, shape=s),
        "full_like": lambda x, s: snp.full_like(x, 0, shape=s),
        "lax.full_like": lambda x, s: lax.full_like(x, 0, shape=s),
    }[name]
    for where, committed in (("another", True), ("replicated", True), ("sharded", False)):
        x = sw.device_put(np.ones((8, 2), np.float32), PLACES[where])
        for shape in ((3,), (), (4, 4, 4)):
            y = make(x, shape)
            assert y.shape == shape and y.committed == committed
            assert y.sharding.device_set == (x.sharding.device_set if committed else {DEVICES[0]})
            np.testing.assert_array_equal(y, np.zeros(shape))


def test_what_nobody_placed():
    x = snp.ones((4, 2))
    for y in (snp.zeros_like(x), lax.full_like(x, 1), snp.zeros_like(np.ones(3)), snp.ones_like(2)):
        assert not y.committed and y.devices() == {DEVICES[0]}
    weak = sw.device_put(2.0, DEVICES[3])
    assert snp.zeros_like(2.0).weak_type and snp.full_like(weak, 1).weak_type
    wanted = sw.ShapeDtypeStruct((8, 2), np.float32, sharding=PLACES["sharded"])
    assert snp.zeros_like(wanted).sharding == PLACES["sharded"]
    free = sw.ShapeDtypeStruct((8, 2), np.float32)
    assert not snp.zeros_like(free).committed


def test_another_place_wins():
    x = sw.device_put(np.ones((8, 2), np.float32), PLACES["sharded"])
    for place in (DEVICES[6], NamedSharding(MESH, P("y"))):
        for make in (
            lambda to: snp.zeros_like(x, device=to),
            lambda to: snp.zeros((8, 2), device=to),
            lambda to: snp.full_like(x, 0, device=to),
            lambda to: snp.full((8, 2), 0.0, device=to),
        ):
            y = make(place)
            assert y.committed and (
                y.sharding == place if place is not DEVICES[6] else y.device is place
            )
            np.testing.assert_array_equal(y, np.zeros((8, 2)))
    for y in (
        lax.full_like(x, 0, sharding=NamedSharding(MESH, P("y"))),
        lax.full((8, 2), 0.0, sharding=NamedSharding(MESH, P("y"))),
    ):
        assert y.sharding == NamedSharding(MESH, P("y"))


def test_in_traced_functions_only_types_say_where():
    x = sw.device_put(np.ones((8, 2), np.float32), WHERE["explicit"])
    assert sw.jit(snp.zeros_like)(x).sharding.is_equivalent_to(x.sharding, 2)
    y = sw.device_put(np.ones((8, 2), np.float32), PLACES["sharded"])
    for f in (snp.zeros_like, lambda a: snp.zeros_like(y) + a, lambda a: a + lax.full_like(y, 0)):
        np.testing.assert_array_equal(sw.jit(f)(y), np.asarray(f(y)))
    there = sw.jit(lambda a: lax.full_like(a, 2, sharding=NamedSharding(MESH, P("y"))))(y)
    assert there.sharding == NamedSharding(MESH, P("y"))


def test_states_of_an_optimiser():
    params = {
        "w": sw.device_put(np.ones((16, 8), np.float32), NamedSharding(MESH, P("x", "y"))),
        "b": sw.device_put(np.ones(9, np.float32), NamedSharding(MESH, P("x"))),
    }
    m, v = sw.tree.map(snp.zeros_like, params), sw.tree.map(snp.ones_like, params)
    new = sw.jit(lambda *trees: sw.tree.map(lambda p, a, b: p - a / b, *trees))(params, m, v)
    for name, p in params.items():
        assert m[name].sharding == v[name].sharding == p.sharding
        np.testing.assert_array_equal(new[name], p)


def test_large_ones_are_made_in_their_place():
    """No device holds the full array in between."""
    mesh = Mesh(np.array(DEVICES), "d")
    x = sw.device_put(np.ones((1 << 10, 64), np.float32), NamedSharding(mesh, P("d")))
    before = {id(a) for a in sw.live_arrays()}
    y = snp.zeros_like(x)
    made = [a for a in sw.live_arrays() if id(a) not in before and a is not y]
    assert not [a for a in made if a.size > 1] and y.on_device_size_in_bytes() == x.nbytes
