"""Arrays over several processes that are complete in each process: it reads them locally."""

import pytest

from shardwise.testing import run_processes

pytestmark = pytest.mark.processes
PROGRAM = """
import pickle, sys
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.experimental.multihost_utils import sync_global_devices
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

rank = sw.process_index()
mesh = Mesh(np.array(sw.devices()).reshape(2, 2), ("process", "local"))
local = Mesh(sw.local_devices(), ("local",))
value = np.arange(6, dtype=np.float32)

def put(x, spec, mesh=mesh):
    return sw.device_put(x, NamedSharding(mesh, spec))

arrays = {
    "replicated": put(value, P()), "sharded in each": put(value, P("local")),
    "a result": sw.jit(lambda x: x + 0, out_shardings=NamedSharding(mesh, P("local")))(
        put(value, P("process"))),
    "of parts": sw.make_array_from_process_local_data(NamedSharding(mesh, P("local")), value, (6,)),
    "of here": put(value, P("local"), local), "of one device": sw.device_put(value),
}
narrow = {name: arrays[name].astype(jnp.int4) for name in ("replicated", "sharded in each")}
rows = put(np.arange(8.0, dtype="f").reshape(2, 4), P(None, "local"))
large = put(np.ones((4, 1 << 16), "f"), P(None, "local"))
uneven = sw.jit(lambda x: x * 1, out_shardings=NamedSharding(mesh, P("local")))(value[:5])
key = put(sw.random.key(3), P())
keys = put(sw.random.split(sw.random.key(0), 4), P("local"))
scalars = [put(np.float32(3), P()), put(value, P("process")).sum()]
spread = put(value, P(("process",)))

sync_global_devices("all are made")
if rank == int(sys.argv[1]):  # alone: nothing that is read here is launched over all
    for name, x in arrays.items():
        assert (np.asarray(x) == value).all() and x.tolist() == value.tolist(), name
        assert str(x) == str(value) and f"{x}" == str(value), name
        assert repr(x) == "Array([0., 1., 2., 3., 4., 5.], dtype=float32)", name
        assert (pickle.loads(pickle.dumps(x)) == value).all(), name
        assert x.tobytes() == value.tobytes() and (np.array(x, copy=True) == value).all(), name
        x.copy_to_host_async()
        assert (sw.device_get(x) == value).all() and np.shares_memory(x, x), name
        assert name == "of one device" or np.asarray(x) is np.asarray(x), name
    for name, x in narrow.items():
        assert np.asarray(x).astype(int).tolist() == [0, 1, 2, 3, 4, 5], name
        assert str(x) == "[0 1 2 3 4 5]", name
    assert np.asarray(rows).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (np.asarray(large) == 1).all() and np.asarray(uneven).tolist() == [0, 1, 2, 3, 4]
    assert [float(x) for x in scalars] == [3, 15] and [int(x) for x in scalars] == [3, 15]
    assert [bool(scalars[0]), f"{scalars[1]:.1f}", scalars[0].item()] == [True, "15.0", 3.0]
    assert "overlaying" in repr(key) and "addressable shards" not in repr(keys)
    try:
        np.asarray(spread)
    except RuntimeError as error:
        print(error)
sync_global_devices("all is read")
print("done")
"""
REFUSED = (
    "array of type f32[6] spans devices of other processes, so this process cannot read its value. "
    "Options: `shardwise.experimental.multihost_utils.process_allgather(x, tiled=True)` gives all "
    "of it to each process, `shardwise.device_put(x, sharding)` with a replicated sharding over "
    "the same devices makes it readable, and `x.addressable_shards` are the shards of this "
    "process. The first two must be called in all of these processes.\n"
)


@pytest.mark.parametrize("reader", [1, pytest.param(0, marks=pytest.mark.sweep)])
def test_each_process_reads_what_it_holds(reader):
    results = run_processes(PROGRAM, 2, devices=2, args=[str(reader)])
    outs = ["done\n", "done\n"]
    outs[reader] = REFUSED + "done\n"
    assert [r.out for r in results] == outs
