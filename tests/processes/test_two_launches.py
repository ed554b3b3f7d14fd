"""Launches at the same time on one machine, and addresses that are in use."""

import re

import pytest

from tests.helpers.joining import free_port
from tests.helpers.launching import Launch

pytestmark = pytest.mark.processes
PROGRAM = """
import sys, time
from pathlib import Path
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
x = jnp.full(4, int(sys.argv[1]), device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
print(int(x.sum()), sw.process_count(), flush=True)
while len(sys.argv) > 2 and not Path(sys.argv[2]).exists():
    time.sleep(0.02)
print(int((x + 1).sum()))
"""


def test_two_launches_do_not_disturb_each_other_and_a_third_has_no_port(tmp_path):
    go, address = tmp_path / "go", f"127.0.0.1:{free_port()}"
    where = ["-n", "2", "--coordinator", address]
    with (
        Launch(*where, "{}", "1", str(go), source=PROGRAM) as first,
        Launch("-n", "2", "{}", "5", str(go), source=PROGRAM) as second,
    ):
        first.until(lambda: len(first.lines()) == 2)
        second.until(lambda: len(second.lines()) == 2)
        taken = []
        for words in (where, [*where, "--nodes", "2", "--node-rank", "0"]):
            with Launch(*words, source="print(1)") as third:
                done = third.done()
            assert (done.status, done.out, done.left) == (1, [], [])
            taken += done.err
        go.touch()
        ends = [first.done(), second.done()]
    assert [(d.status, sorted(d.out), d.err, d.left) for d in ends] == [
        (0, sorted(f"[{rank}] {text}" for rank in range(2) for text in texts), [], [])
        for texts in (("4 2", "8"), ("20 2", "24"))
    ]
    assert [re.sub(r":\d+:", ":PORT:", line) for line in taken] == [
        "shardwise launch: the coordinator cannot listen at 127.0.0.1:PORT: Address already in "
        "use. Does another program use this port, or is another process also started as process 0, "
        "or does the address belong to another machine?",
        "shardwise launch: the launcher cannot listen at 127.0.0.1:PORT: Address already in use. "
        "Does another program use this port, or does the address belong to another machine? "
        "--coordinator must name node 0.",
    ]
