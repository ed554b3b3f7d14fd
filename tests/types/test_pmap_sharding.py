"""`PmapSharding`: made from a dimension, or from a `ShardingSpec`."""

import pickle

import numpy as np
import pytest

import shardwise as sw
from shardwise.compat import (
    Chunked,
    NoSharding,
    PmapSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)
from shardwise.interpreters import pxla
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from shardwise.sharding import PmapSharding as Public
from tests.helpers.errors import message as error_of

WHOLE = slice(None)


def test_default_gives_each_device_an_index():
    assert Public is PmapSharding
    devices = sw.devices()
    rows = PmapSharding.default((8, 3))
    assert rows.devices == tuple(devices)
    assert rows.sharding_spec == ShardingSpec((Unstacked(8), NoSharding()), (ShardedAxis(0),))
    assert rows.shard_shape((8, 3)) == (1, 3)
    assert rows.devices_indices_map((8, 3))[devices[5]] == (slice(5, 6), WHOLE)
    assert PmapSharding.default((8, 3), devices=devices) is rows
    columns = PmapSharding.default((3, 4), sharded_dim=1)
    assert columns.devices == tuple(devices[:4])
    assert columns.devices_indices_map((3, 4))[devices[2]] == (WHOLE, slice(2, 3))
    assert PmapSharding.default((3, 4), -1) is columns
    copies = PmapSharding.default((3, 4), None, devices[:2])
    assert copies.is_fully_replicated
    assert copies.devices == tuple(devices[:2])


def test_specs_of_cuts():
    """The axes of the device grid, in the order of the mapping, against named axes."""
    spec = ShardingSpec(
        [Chunked([2, 2]), NoSharding(), Unstacked(1)],
        [ShardedAxis(1), Replicated(2), ShardedAxis(2), ShardedAxis(0)],
    )
    grid = np.array(sw.devices()).reshape(2, 2, 1, 2)
    found = PmapSharding(grid, spec)
    mesh = Mesh(grid, ("minor", "copies", "one", "major"))
    named = NamedSharding(mesh, PartitionSpec(("major", "minor"), None, "one"))
    assert dict(found.devices_indices_map((8, 3, 1))) == dict(named.devices_indices_map((8, 3, 1)))
    assert found.replica_ids((8, 3, 1)) == named.replica_ids((8, 3, 1))
    assert found.is_equivalent_to(named, 3)


def test_arrays():
    x = np.arange(24, dtype="float32").reshape(8, 3)
    rows = PmapSharding.default(x.shape)
    placed = sw.device_put(x, rows)
    assert placed.sharding is rows
    np.testing.assert_array_equal(placed.addressable_shards[2].data, x[2:3])
    np.testing.assert_array_equal(sw.jit(lambda a: a + 1)(placed), x + 1)


def test_identity_and_repr():
    rows = PmapSharding.default((2,))
    assert pickle.loads(pickle.dumps(rows)) is rows
    assert rows.with_memory_kind(rows.memory_kind) is rows
    assert rows.with_memory_kind("unpinned_host").memory_kind == "unpinned_host"
    assert repr(rows) == (
        "PmapSharding(2 devices, ShardingSpec(sharding=(Unstacked(size=2),), "
        "mesh_mapping=(ShardedAxis(axis=0),)))"
    )


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: PmapSharding.default((3,), None), ValueError,
         "PmapSharding.default needs sharded_dim or devices; got neither."),
        (lambda: PmapSharding.default((3,), 1), ValueError,
         "PmapSharding.default: a shape (3,) has no dimension 1."),
        (lambda: PmapSharding.default((9,)), ValueError,
         "PmapSharding.default: dimension 0 of (9,) needs 9 devices, but this process has 8."),
        (lambda: PmapSharding.default((2,), devices=sw.devices()), ValueError,
         "PmapSharding.default: dimension 0 of (2,) needs 2 devices, but there are 8."),
        (lambda: PmapSharding(sw.devices(), 0), TypeError,
         "the second argument of PmapSharding must be a ShardingSpec, got int. "
         "PmapSharding.default(shape, sharded_dim) creates the default one."),
        (lambda: PmapSharding(sw.devices(), ShardingSpec([Chunked([8])], [ShardedAxis(1)])),
         ValueError,
         "ShardingSpec(sharding=(Chunked(chunks=(8,)),), mesh_mapping=(ShardedAxis(axis=1),)) "
         "makes 1 cut, but its mesh_mapping lists the cuts [1]; each, from 0 on, must occur "
         "once."),
        (lambda: PmapSharding(sw.devices(), ShardingSpec([Unstacked(4)], [ShardedAxis(0)])),
         ValueError,
         "PmapSharding got 8 devices, but a tiling of mesh sizes (4,) into (4,) tiles with "
         "1 replicas of each. Tiles × replicas and the product of the mesh sizes must both be "
         "the device count."),
    ],
)  # fmt: skip
def test_errors(make, kind, message):
    assert error_of(kind, make) == message


def test_indices_of_the_shards():
    s = slice
    spec = ShardingSpec(
        [Chunked([2]), Chunked([2])], [Replicated(2), ShardedAxis(1), ShardedAxis(0)]
    )
    by_columns = [(s(0, 2), s(0, 4)), (s(2, 4), s(0, 4)), (s(0, 2), s(4, 8)), (s(2, 4), s(4, 8))]
    assert pxla.spec_to_indices((4, 8), spec) == (*by_columns, *by_columns)
    spec = ShardingSpec([Unstacked(2), NoSharding()], [ShardedAxis(0), Replicated(2)])
    rows = [(0, s(None)), (0, s(None)), (1, s(None)), (1, s(None))]
    assert pxla.spec_to_indices((2, 8), spec) == tuple(rows)
    assert pxla.spec_to_indices((), ShardingSpec([], [Replicated(3)])) == ((), (), ())
    assert pxla.spec_to_indices((4,), ShardingSpec([NoSharding()], [])) == ((s(None),),)
