"""`GlobalDeviceArray`: an older spelling of the functions that make arrays."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.experimental.global_device_array as home
from shardwise import compat, experimental
from shardwise._src.compat.global_device_array import GlobalDeviceArray
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.meshes import MESH

VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)


def check(x, spec):
    assert x.__class__ is sw.Array and x.sharding is NamedSharding(MESH, spec)
    np.testing.assert_array_equal(np.asarray(x), VALUES)


def test_its_homes():
    assert home.GlobalDeviceArray is GlobalDeviceArray is compat.GlobalDeviceArray
    assert experimental.global_device_array.GlobalDeviceArray is GlobalDeviceArray


@pytest.mark.parametrize("axes", [P("x", "y"), ["x", "y"], ("x", None), [("x", "y")], []])
def test_it_returns_arrays(axes):
    spec = P(*axes)
    index = NamedSharding(MESH, spec).devices_indices_map((8, 8))
    buffers = [sw.device_put(VALUES[i], d) for d, i in index.items()]
    x = GlobalDeviceArray((8, 8), MESH, axes, buffers)
    check(x, spec)
    assert isinstance(x, GlobalDeviceArray) and not isinstance(VALUES, GlobalDeviceArray)
    assert [s.data.unsafe_buffer_pointer() for s in x.addressable_shards] == [
        b.unsafe_buffer_pointer() for b in buffers
    ]


def test_from_callbacks():
    check(GlobalDeviceArray.from_callback((8, 8), MESH, ["x"], lambda i: VALUES[i]), P("x"))
    batched = GlobalDeviceArray.from_batched_callback
    check(batched((8, 8), MESH, P("x", "y"), lambda all: [VALUES[i] for i in all]), P("x", "y"))

    def with_devices(groups):
        return [sw.device_put(VALUES[i], d) for i, devices in groups for d in devices]

    make = GlobalDeviceArray.from_batched_callback_with_devices
    check(make((8, 8), MESH, P(None, "y"), with_devices), P(None, "y"))


def test_shards_by_their_older_names():
    x = GlobalDeviceArray.from_callback((8, 8), MESH, ["x"], lambda i: VALUES[i])
    assert [s.device for s in x.global_shards] == list(MESH.flat_devices)
    assert [s.index for s in x.local_shards] == [s.index for s in x.addressable_shards]
    np.testing.assert_array_equal(x.local_data(2), x.addressable_data(2))


def test_what_shards_are():
    x = GlobalDeviceArray.from_callback((8, 8), MESH, ["x"], lambda i: VALUES[i])
    assert x.mesh_axes == P("x")
    indices = home.get_shard_indices([8, 8], MESH, ["x"])
    assert indices == {s.device: s.index for s in x.global_shards}
    assert home.get_shard_shape((8, 8), MESH, [("x", "y"), None]) == (1, 8)
    assert (x == VALUES).all() and not (x != VALUES).any() and (x < VALUES + 1).all()
    assert repr(x) == repr(sw.numpy.array(VALUES))
    with pytest.raises(AttributeError) as caught:
        _ = sw.numpy.ones(3).mesh_axes
    assert str(caught.value).startswith("array of type f32[3] has no mesh_axes: its sharding, ")


def test_axes_are_a_sequence():
    assert message(
        TypeError, GlobalDeviceArray.from_callback, (8, 8), MESH, "x", lambda i: VALUES[i]
    ) == (
        "GlobalDeviceArray: mesh_axes must be a PartitionSpec or a sequence of its entries, got "
        "'x' of type str."
    )
