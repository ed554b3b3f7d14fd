"""Constructors, over meshes whose devices are in several orders."""

import re

import pytest

from shardwise.testing import run_processes
from tests.helpers.sampling import sampled
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


@pytest.mark.parametrize("what", sampled(MAKERS, 1))
def test_replicas_that_differ(what):
    for result in run_processes(DIFFERENT, 2, devices=2, args=[what], timeout=60):
        assert re.fullmatch(
            r"the processes do not run the same program: "
            rf"process 0 \(host \S+, pid \d+\) comes to {what} of f32\[4\], whose replicated "
            r"parts have the digest [0-9a-f]{12}, at \S+:\d+ \(<lambda>\); "
            rf"process 1 \(host \S+, pid \d+\) to {what} of f32\[4\], whose replicated parts have "
            r"the digest [0-9a-f]{12}, at \S+:\d+ \(<lambda>\)\. [^\n]*\n[^\n]*\n?",
            result.out,
        ), result.out
