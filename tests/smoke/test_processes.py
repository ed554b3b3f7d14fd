"""The exit of multi-process programs: what it waits for and finds, on every Python."""

import pytest

from shardwise.testing import run_processes

PROGRAM = """
import atexit, sys, threading
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

@atexit.register  # it is called first: Python 3.12 starts no threads from there on
def end():
    threading.Thread.start = refuse
    large = sw.device_put(np.ones((4, 1 << 20), np.float32), COLUMNS)
    print(np.asarray(large).sum() == 4 << 20)  # copied by several threads at other times

COLUMNS = NamedSharding(Mesh(sw.local_devices(), ("x",)), P(None, "x"))
if sys.argv[1] == "differ":
    print(float(x[sw.process_index()]))
elif sys.argv[1] == "fail":
    raise KeyError("bad")
else:
    print(float(x.sum()))
"""
DIFFER = "exits with status 75: its last results may be wrong."
ENDS = {
    "end": (0, "", "28.0\nTrue\n"),
    "differ": (75, DIFFER, None),
    "fail": (1, "KeyError: 'bad'", "True\n"),
}


@pytest.mark.processes
@pytest.mark.parametrize("case", ENDS)
def test_programs_end_as_they_should_where_no_threads_start(case):
    status, says, printed = ENDS[case]
    results = run_processes(PROGRAM, 2, devices=2, args=[case], expect=None)
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [status] * 2, told
    assert all(says in r.err and printed in (r.out, None) for r in results), told
