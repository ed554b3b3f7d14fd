"""Functions whose per-shard code the user writes, on devices of several processes."""

from tests.helpers.processes import run_processes

PROGRAM = """
import numpy as np
import shardwise as sw
from shardwise import lax
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

@custom_partitioning
def product(x, y):
    return x @ y

def partition(mesh, arg_shapes, result_shape):
    rows, axes = arg_shapes[0].sharding.spec
    def lower_fn(x, y):
        return lax.psum(x @ y, axes) if axes else x @ y
    places = NamedSharding(mesh, P(rows, axes)), NamedSharding(mesh, P(axes, None))
    return mesh, lower_fn, NamedSharding(mesh, P(rows, None)), places

product.def_partition(partition, sharding_rule="b i, i o -> b o", reduction_factors=("i",))
x, y = np.arange(35.0, dtype="f").reshape(7, 5), np.arange(15.0, dtype="f").reshape(5, 3)
if sw.process_index() == 0:  # one of its own, before: the names of calls differ then
    own = Mesh(sw.local_devices(), ("x",))
    mine = product(*[sw.device_put(v, NamedSharding(own, P("x"))) for v in (x, y)])
    assert np.allclose(np.asarray(mine), x @ y)
mesh = Mesh(np.array(sw.devices()).reshape(2, 2), ("x", "y"))
for spec in (P("x", "y"), P("y", "x"), P(None, ("x", "y"))):
    args = sw.device_put(x, NamedSharding(mesh, spec)), sw.device_put(y, NamedSharding(mesh, P()))
    found = product(*args)
    for shard in found.addressable_shards:
        assert np.allclose(np.asarray(shard.data), (x @ y)[shard.index])
    print(found.sharding.spec)
"""


def test_of_two_processes():
    results = run_processes(PROGRAM, 2, devices=2)
    assert [r.out for r in results] == ["P('x')\nP('y')\nP()\n"] * 2
