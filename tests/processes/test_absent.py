"""Processes that exit with status 0 before they join: the other processes do not wait for them."""

import contextlib
import json
import re
import socket

import pytest

from shardwise._src.runtime.processes import Coordinator
from tests.helpers.joining import free_port
from tests.helpers.launching import Launch, launch

pytestmark = pytest.mark.processes
EARLY = (
    "exited with status 0 before it joined the others. All processes of a launch must join: look "
    "for an early exit of the program, or an `if` on the process's number, before the first use of "
    "a device or before `shardwise.distributed.initialize()`."
)
PROGRAM = """
import os, sys
if os.environ["SHARDWISE_PROCESS_ID"] == "1":
    sys.exit(0)
import shardwise as sw
print(sw.device_count())
"""


def plain(lines):
    text = "\n".join(lines)
    text = re.sub(r"\(host [^,]+, pid \d+\)", "(HERE)", text)
    return re.sub(r"at \S+:\d+:", "at ADDRESS:", text)


def check(done, heads):
    raised = "shardwise.errors.ProcessFailureError: initialize: the coordinator at ADDRESS: "
    assert (done.status, done.out, done.left) == (1, [], []), done.err
    said = plain(done.err)
    for rank in heads:
        head = (
            f"shardwise launch: process {rank} (HERE) failed with exit status 1, because of "
            "process 1. Its last output:"
        )
        if head in said:
            late = f"process {rank} (HERE) cannot join: the others have stopped waiting: "
            shown = said.partition(head)[2]  # whether it arrived before or after process 1 ended
            assert any(f"[{rank}] {raised}{w}process 1 (HERE) {EARLY}\n" in shown
                       for w in ("", late)), said  # fmt: skip
            return
    raise AssertionError(said)


def test_a_launch_fails_at_once_if_a_process_ends_before_it_joins():
    check(launch("-n", "3", source=PROGRAM), (0, 2))


def test_so_does_one_on_two_machines():
    words = ["-n", "1", "--nodes", "2", "--coordinator", f"127.0.0.1:{free_port()}"]
    with (
        Launch(*words, "--node-rank", "0", source=PROGRAM) as first,
        Launch(*words, "--node-rank", "1", source=PROGRAM) as second,
    ):
        check(first.done(), (0,))
        assert second.done().status == 1


@contextlib.contextmanager
def coordinator(count):
    """A coordinator for `count` processes, and a function that joins it and returns its answers."""
    with contextlib.ExitStack() as stack:
        made = Coordinator(
            "127.0.0.1", 0, count, heartbeat=20, arrival=20, patience=30, deadline=60
        )
        stack.callback(made.stop)

        def join(rank):
            sock = socket.create_connection(("127.0.0.1", made.port), timeout=30)
            stack.enter_context(sock)
            about = {"rank": rank, "count": count, "host": "h", "pid": 1, "versions": "v"}
            message = {"op": "join", "left": 20, "timeout": 20, **about}
            sock.sendall(json.dumps(message).encode() + b"\n")
            return stack.enter_context(sock.makefile())

        yield made, join


def test_whoever_has_joined_or_comes_later_is_refused():
    with coordinator(3) as (made, join):
        first = join(0)
        made.exited(2, "process 2 (host h, pid 3)")
        found = json.loads(first.readline())
        assert found == {"op": "refused", "why": f"process 2 (host h, pid 3) {EARLY}", "ranks": [2]}
        later = json.loads(join(1).readline())
        why = (
            "process 1 (host h, pid 1) cannot join: the others have stopped waiting: process 2 "
            f"(host h, pid 3) {EARLY}"
        )
        assert later == {"op": "refused", "why": why, "ranks": [2]}


def test_several_are_named_once_one_comes():
    with coordinator(4) as (made, join):
        for rank in (3, 1):
            made.exited(rank, f"process {rank}")
        found = json.loads(join(0).readline())  # it learns of both first, or of one
        assert found["ranks"] in ([1, 3], [3]), found
        word = "they" if len(found["ranks"]) > 1 else "it"
        early = EARLY.replace("before it", f"before {word}")
        names = ", ".join(f"process {rank}" for rank in found["ranks"])
        assert found["why"] == f"{names} {early}"


def test_who_has_joined_may_end():
    with coordinator(2) as (made, join):
        lines = [join(rank) for rank in range(2)]
        assert [json.loads(line.readline())["op"] for line in lines] == ["go", "go"]
        made.exited(1, "process 1")
        made.exited(0, "process 0")
        assert "refused" not in lines[0].readline()  # the XLA service has started
