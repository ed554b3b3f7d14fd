"""Constructors, over meshes with several device orders."""

import re

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes
from tests.processes.running import agrees, cases


@cases("making")
def test_making(count, part):
    agrees("making", count, part)


DIFFERENT = """
import sys
import numpy as np
import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

sw.config.update("check_replicas", True)
mesh = Mesh(np.array(sw.devices()).reshape(2, 2), ("x", "y"))
same, parts = np.arange(4.0), np.arange(4.0) + sw.process_index()
sw.device_put(same, NamedSharding(mesh, P()))
sw.device_put(same, NamedSharding(mesh, P("y")))
sw.device_put(parts, NamedSharding(mesh, P("x")))  # nothing is replicated over processes
sw.make_array_from_callback((4,), NamedSharding(mesh, P("y")), same.__getitem__)
made = {
    "device_put": lambda s: sw.device_put(parts, s),
    "make_array_from_callback": lambda s: sw.make_array_from_callback((4,), s, parts.__getitem__),
    "make_array_from_process_local_data":
        lambda s: sw.make_array_from_process_local_data(s, parts, (4,)),
}[sys.argv[1]]
try:
    made(NamedSharding(mesh, P("y")))
except sw.errors.ProcessFailureError as error:
    print(error)
"""


MAKERS = ["device_put", "make_array_from_callback", "make_array_from_process_local_data"]
USED = """
import sys
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

sw.config.update("check_replicas", True)
me, s = sw.process_index(), NamedSharding(Mesh(sw.devices(), ("x",)), P("x"))
x = jnp.arange(4.0, device=s)
own = np.full(4, me, np.float32)
total = sw.jit(lambda x, y: (x * y).sum())
assert float(total(x, own * 0)) == 0 and float(x[1]) == 1  # the same in all
used = {
    "an argument": lambda: total(x, own),
    "a scalar": lambda: total(x, 2.0 + me),
    "an array of its own": lambda: total(x, jnp.asarray(own)),
    "an operand": lambda: x + own,
    "an index": lambda: x[2 + me],
    "a constant": lambda: sw.jit(lambda x: x + own)(x),
    "a large one": lambda: x[:, None] + np.full((4, 100_000), me, np.float32),
    "an array to put": lambda: sw.device_put(jnp.asarray(own), s.with_spec(P())),
}[sys.argv[1]]
try:
    used()
except sw.errors.ProcessFailureError as error:
    print(error)
"""
USES = {
    "an argument": "f32[4]",
    "a scalar": "~f32[]",
    "an array of its own": "f32[4]",
    "an operand": "f32[4]",
    "an index": "i32[]",
    "a constant": "f32[4]",
    "a large one": "f32[4,100000]",
    "an array to put": "f32[4]",
}


@pytest.mark.parametrize("what", everyday(MAKERS, 1))
def test_replicas_that_differ(what):
    for result in run_processes(DIFFERENT, 2, devices=2, args=[what], timeout=60):
        assert re.fullmatch(_differing(f"{what} of f32[4]"), result.out), result.out


@pytest.mark.parametrize("what", everyday(list(USES), 1))
def test_values_of_hosts_that_differ(what):
    for result in run_processes(USED, 2, args=[what], timeout=60):
        found = re.fullmatch(_differing(f"a value of {USES[what]}", "(?:[^\\n]+: )?"), result.out)
        assert found, result.out


def _differing(what, called=""):
    """The message about values that differ between processes."""
    comes = f"{re.escape(what)}, whose replicated parts have the digest [0-9a-f]{{12}}, at "
    return (
        rf"{called}the processes do not run the same program: process 0 \(host \S+, pid \d+\) "
        rf"reaches {comes}\S+:\d+ \(\S+\); process 1 \(host \S+, pid \d+\) reaches {comes}\S+:\d+ "
        r"\(\S+\)\. [^\n]*\n[^\n]*\n?"
    )
