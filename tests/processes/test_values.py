"""Host values, which must be the same in all processes: differences are reported."""

import re

import pytest

from tests.helpers.failures import last_line, plain
from tests.helpers.processes import REPORTS, run_processes

BEGIN = (
    REPORTS
    + """
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
one = np.zeros((300, 9), "i2")
one[-1, 4] = 7 * rank
large = np.zeros(1 << 20, "f4")
large[-1] = rank  # in a block that counts
"""
)
F = r"put at program\.py:\d+ \(<module>\)"
FIRST = "a value is 0{} in process 0, AT, and 1{} in process 1, AT"
WAYS = {
    "an index": ("x[rank]", "_row", FIRST.format("", "")),
    "an argument": ("f(x, np.float32(rank))", "_lambda_", FIRST.format(".0", ".0")),
    "a value": (
        "sw.device_put(own, NamedSharding(mesh, P())) + 1",
        "add",
        "element [0] of f32[4] is 0.0 in process 0, AT, and 1.0 in process 1, AT",
    ),
    "one element": (
        "sw.device_put(one, NamedSharding(mesh, P())) + 1",
        "add",
        "element [299, 4] of i16[300,9] is 0 in process 0, AT, and 7 in process 1, AT",
    ),
    "parts": (
        "sw.device_put(own, NamedSharding(mesh, P('x'))) + 1",
        "add",
        "element [0] of f32[4] is 0.0 in process 0, AT, and 1.0 in process 1, AT",
    ),
    "an array": (
        "sw.device_put(jnp.asarray(own), NamedSharding(mesh, P())) + 1",
        "add",
        "element [0] of f32[4] is 0.0 in process 0, AT, and 1.0 in process 1, AT",
    ),
    "a large array": (
        "sw.device_put(large, NamedSharding(mesh, P())) + 1",
        "add",
        "element [1048575] of f32[1048576] is 0.0 in process 0, AT, and 1.0 in process 1, AT",
    ),
    "a NaN": (
        "sw.device_put(np.float32('nan' if rank else 2), NamedSharding(mesh, P())) + 1",
        "add",
        "a value is 2.0 in process 0, AT, and nan in process 1, AT",
    ),
    "several": (
        "f(x, np.float32(3)) + f(x, np.float32(rank)) + x[rank]",
        "_lambda_",
        FIRST.format(".0", ".0"),
    ),
}
UNTIL_REPORTED = """
from shardwise._src.distributed.start import here
while not here().watch.failures:
    time.sleep(0.01)
"""
EVERY_DAY = ("one element", "a large array", "an index")


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=[pytest.mark.sweep] * (way not in EVERY_DAY)) for way in WAYS
])  # fmt: skip
def test_values_that_differ(way):
    expression, name, what = WAYS[way]
    results = run_processes(
        f"{BEGIN}\ny = {expression}\n{UNTIL_REPORTED}\nfloat(x.sum())", 2, devices=2, expect=None
    )
    number = 2 if way == "several" else 1
    says = (
        f"the processes put different values before program {name!r} (launch {number}): {what}. A "
        "host value must be the same in all processes: look for random numbers without a seed, an "
        "index or a file that depends on process_index(), or a value that only one process puts. "
        "`shardwise.experimental.multihost_utils.broadcast_one_to_all` sends the value of one "
        "process to all, `shardwise.make_array_from_process_local_data` makes a global array of "
        "process-local parts, and the option `check_replicas` raises at the line."
    )
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [1, 1], told
    for r in results:
        said = plain(r.err)
        assert says in re.sub(F, "AT", said), told
        assert "ProcessFailureError" in last_line(said)


def test_at_the_end():
    results = run_processes(f"{BEGIN}\nprint(float(x[rank]))", 2, devices=2, expect=None)
    told = "\n".join(r.err for r in results)
    assert 75 in [r.status for r in results], told
    assert "exits with status 75: its last results may be wrong." in told


def test_values_that_are_the_same():
    """Values of some processes, and of all; including NaN. They have few shapes, for few programs."""
    results = run_processes(
        BEGIN
        + """
some = sw.devices()[:3]
small = NamedSharding(Mesh(some, ("x",)), P())
for n in range(16):
    f(x, np.float32("nan")), f(x, n)
    if rank < 3:
        sw.device_put(np.arange(n % 3) + n, small) + 1
    y = sw.device_put(np.arange(n % 3) + n, sw.local_devices()[0]) + rank  # of one process alone
    z = x[n % 8]
reported()
multihost_utils.sync_global_devices("the coordinator has compared them")
print(float(z), float(f(x, 1)))
        """,
        4,
        expect=None,
    )
    told = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "7.0 28.0\n")] * 4, told
