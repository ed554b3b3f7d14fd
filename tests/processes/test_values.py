"""Values of the host, which are one for all processes: where they differ, it is told."""

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.failures import last_line, plain
from tests.helpers.processes import REPORTS, run_processes

BEGIN = REPORTS + """
import sys, time
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.experimental import multihost_utils
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh, rank = Mesh(sw.devices(), ("x",)), sw.process_index()
x = jnp.arange(8.0, device=NamedSharding(mesh, P("x")))
f = sw.jit(lambda x, y: (x * y).sum())
own = np.full(4, rank, "f4")
def reported():
    sent = reports()
    while len(sent) < 2:
        time.sleep(0.01)
"""
WAYS = {
    "an index": ("x[rank]", "_row", 1),
    "an argument": ("f(x, np.float32(rank))", "_lambda_", 1),
    "a value": ("sw.device_put(own, NamedSharding(mesh, P())) + 1", "add", 1),
    "parts": ("sw.device_put(own, NamedSharding(mesh, P('x'))) + 1", "add", 1),
    "an array": ("sw.device_put(jnp.asarray(own), NamedSharding(mesh, P())) + 1", "add", 1),
    "a large array": ("sw.device_put(np.full((1 << 20), rank, 'f4'), NamedSharding(mesh, P())) + 1",
                      "add", 1),
}


UNTIL_TOLD = """
from shardwise._src.distributed.start import here
while not here().watch.failures:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("way", everyday(WAYS, 1))
def test_values_that_differ(way):
    expression, name, number = WAYS[way]
    results = run_processes(
        f"{BEGIN}\ny = {expression}\n{UNTIL_TOLD}\nfloat(x.sum())", 2, devices=2, expect=None
    )
    says = (
        f"the processes put different values before program {name!r} (launch {number}): process 0 "
        "others than process 1. A value of the host is one for all processes: look for random "
        "numbers without a seed, an index or a file by process_index(), a value that one puts "
        "alone. "
        "`shardwise.experimental.multihost_utils.broadcast_one_to_all` gives all the value of "
        "one, `shardwise.make_array_from_process_local_data` makes an array of the parts that each "
        "has, and the option `check_replicas` shows the line."
    )
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [1, 1], told
    for r in results:
        said = plain(r.err)
        other = says.replace("0 others than process 1", "1 others than process 0")
        assert says in said or other in said, told
        assert "ProcessFailureError" in last_line(said)


def test_at_the_end():
    results = run_processes(f"{BEGIN}\nprint(float(x[rank]))", 2, devices=2, expect=None)
    told = "\n".join(r.err for r in results)
    assert 75 in [r.status for r in results], told
    assert "ends with status 75: what it computed last may be wrong." in told


def test_values_that_are_the_same():
    """Of some processes, and of all; NaN, too."""
    results = run_processes(
        BEGIN + """
some = sw.devices()[:3]
small = NamedSharding(Mesh(some, ("x",)), P())
for n in range(16):
    f(x, np.float32("nan")), f(x, n)
    if rank < 3:
        sw.device_put(np.arange(n), small) + 1
    y = sw.device_put(np.arange(n), sw.local_devices()[0]) + rank  # of one process alone
    z = x[n % 8]
reported()
multihost_utils.sync_global_devices("the coordinator has compared them")
print(float(z), float(f(x, 1)))
        """, 4, expect=None,
    )
    told = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "7.0 28.0\n")] * 4, told
