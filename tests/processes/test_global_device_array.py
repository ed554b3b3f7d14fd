"""`GlobalDeviceArray` over the devices of several processes."""

from tests.helpers.processes import run_processes

PROGRAM = """
    import numpy as np

    import shardwise as sw
    from shardwise.experimental.global_device_array import (
        GlobalDeviceArray as GDA, get_shard_indices, get_shard_shape,
    )
    from shardwise.experimental.multihost_utils import process_allgather
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(sw.devices()).reshape(2, 2), ("x", "y"))
    values = np.arange(64.0, dtype="f").reshape(8, 8)
    me = sw.process_index()
    for axes in (P("x", "y"), ["y"], [("x", "y")], []):
        indices = get_shard_indices((8, 8), mesh, axes)
        buffers = [sw.device_put(values[indices[d]], d) for d in mesh.local_devices]

        def with_devices(groups):
            return [sw.device_put(values[i], d) for i, devices in groups for d in devices]

        for x in (
            GDA((8, 8), mesh, axes, buffers),
            GDA.from_callback((8, 8), mesh, axes, lambda i: values[i]),
            GDA.from_batched_callback((8, 8), mesh, axes, lambda all: [values[i] for i in all]),
            GDA.from_batched_callback_with_devices((8, 8), mesh, axes, with_devices),
        ):
            assert isinstance(x, GDA) and x.mesh_axes == P(*axes)
            assert x.sharding == NamedSharding(mesh, P(*axes)) and x.shape == (8, 8)
            assert [s.index for s in x.global_shards] == list(indices.values())
            assert [s.data is not None for s in x.global_shards] == [
                d.process_index == me for d in indices]
            for i, shard in enumerate(x.local_shards):
                assert shard.data.shape == get_shard_shape((8, 8), mesh, axes)
                np.testing.assert_array_equal(x.local_data(i), values[shard.index])
            np.testing.assert_array_equal(process_allgather(x, tiled=True), values)
            assert bool((x == x).all()) and not bool((x != x).any()) and bool((x < x + 1).all())
            assert repr(x)
    print("done")
"""


def test_over_processes():
    results = run_processes(PROGRAM, 2, devices=2)
    assert [r.out for r in results] == ["done\n"] * 2
