"""Malformed messages of all kinds: launchers and coordinators continue, or end with an error."""

import contextlib
import json
import socket

import pytest

from shardwise._src.coordination.coordinator import listening
from shardwise._src.coordination.failure_detector import MALFORMED
from shardwise._src.launch.agent import Start, Stop, _order
from shardwise._src.launch.nodes import Nodes, Problem, Said, joining
from shardwise._src.launch.worker_reports import Report, Verdict
from shardwise._src.launch.workers import Plan
from shardwise._src.runtime.processes import Coordinator
from tests.helpers.launching import Launch
from tests.helpers.malformed import malformed

SEEDS = [pytest.param(seed, marks=[pytest.mark.sweep] * (seed > 0)) for seed in range(20)]
REPORT = Report(1, "process 1", "failed with exit status 1", 1, named=(0,), tail=("x",))
TO_NODE_0 = [
    {"op": "failed", "generation": 0, "report": REPORT._asdict()},
    {"op": "exited", "generation": 0, "report": REPORT._asdict()},
    {"op": "finished", "generation": 0},
    {"op": "stopped", "generation": 0},
    {"op": "look"},
]
TO_OTHERS = [
    {"op": "start", "generation": 0, "counts": [1, 1], "port": 4711},
    {"op": "stop", "generation": 0},
    {"op": "refused", "why": "so"},
    {"op": "end", **Verdict(1, "so", "so", 0)._asdict()},
]
BEAT = {
    "op": "beat",
    "line": "f:1",
    "waiting": "",
    "kind": "launch",
    "since": 0.5,
    "sets": {"0,1": [1, [[1, "digest", "step", 1]]]},
}
MEETING = {"set": "0,1", "k": 0, "doing": "f"}
TO_COORDINATOR = [
    BEAT,
    {
        "op": "meet",
        "value": "v",
        "after": 0,
        "payload": "",
        "about": "",
        "patient": False,
        **MEETING,
    },
    {"op": "withdraw", "set": "0,1", "k": 0},
    {"op": "census", **MEETING, "set": "alive 0,1"},
    {"op": "leave", "how": "finished", "text": "", "line": "", "limit": 1.0},
    {"op": "settled", "number": 1},
    {"op": "stacks", "number": 1, "text": ""},
    {"op": "era", "era": "#1"},
    {"op": "broken", "text": "Gloo"},
]


@contextlib.contextmanager
def nodes():
    said, listener = [], listening("127.0.0.1", 0)
    plan = Plan(("program.py",), 1, address=listener.getsockname(), nodes=2)
    found = Nodes(plan, said.append)
    found.listen(listener, None, lambda node, message: None)
    yield found, plan, said
    found.close()


def until_closed(sock):
    with contextlib.suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass


@pytest.mark.parametrize("seed", SEEDS)
def test_node_0_goes_on_without_a_launcher_that_sends_anything(seed):
    with nodes() as (_, plan, said):
        for line in malformed(TO_NODE_0, seed, 48):
            with socket.create_connection(plan.address, timeout=30) as sock:
                sock.sendall(json.dumps({**joining(plan), "node": 1}).encode() + b"\n")
                with contextlib.suppress(ConnectionError):
                    sock.sendall(line + b"[]\n")
                until_closed(sock)
        with socket.create_connection(plan.address, timeout=30) as sock:
            sock.sendall(json.dumps({**joining(plan), "node": 1}).encode() + b"\n")
            sock.sendall(b'{"op": "finished", "generation": 3}\n')
            sock.shutdown(socket.SHUT_WR)  # together with the join message, or later
            until_closed(sock)
        assert [(s.op, s.generation) for s in said if s.generation == 3] == [("finished", 3)]
        assert [s.op for s in said].count("came") > 20
        for s in said:
            assert isinstance(s, Said) and type(s.generation) is int
            assert s.report is None or Report.from_dict(s.report._asdict()) == s.report


def test_node_0_accepts_connections_again_after_it_could_not(monkeypatch, capfd):
    with nodes() as (found, plan, _):
        real, failures = found._listener, 3

        class Full:
            def accept(self):
                nonlocal failures
                failures -= 1
                if failures >= 0:
                    raise OSError(24, "Too many open files")
                return real.accept()

            def close(self):
                real.close()

        monkeypatch.setattr(found, "_listener", Full())
        for _ in range(2):  # the first is for the thread that already waits in the real one
            sock = socket.create_connection(plan.address, timeout=30)
            sock.sendall(b"[]\n")
            until_closed(sock)
            sock.close()
        assert failures < 0
    assert capfd.readouterr().err == (
        "shardwise launch: the launcher of node 0 cannot accept a connection: Too many open files. "
        "It will retry; other nodes are waiting.\n"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_other_launchers_take_for_an_order(seed):
    plan = Plan(("program.py",), 1, nodes=2, node=1)
    for line in malformed(TO_OTHERS, seed, 400):
        try:
            order = _order(json.loads(line), plan)
        except (*MALFORMED, Problem):
            continue
        assert isinstance(order, Start | Stop | Verdict)
        if isinstance(order, Start):
            assert order.share.count <= 1 and order.share.total <= 2 and order.port < 1 << 16


@pytest.mark.processes
def test_launchers_end_with_an_error(monkeypatch):
    """A launcher that hears nonsense from node 0; and node 0, from one of its own processes."""
    with listening("127.0.0.1", 0) as listener:
        address = "{}:{}".format(*listener.getsockname())
        words = ["--nodes", "2", "--node-rank", "1", "--coordinator", address]
        with Launch("-n", "1", *words, source="print(1)") as other:
            sock, _ = listener.accept()
            with sock:
                start = {"op": "start", "generation": 0, "counts": [1, 10**9], "port": 9}
                sock.sendall(json.dumps(start).encode() + b"\n")
                done = other.done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        "shardwise launch: the launcher of node 0 sent an invalid message (ValueError: 'start' of "
        "[1, 1000000000] processes at port 9): is another program using its address?"
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--nodes", "2", "--node-rank", "0", "--coordinator", f"127.0.0.1:{port}"]
    with Launch("-n", "1", *words, source="import time; time.sleep(60)") as lead:
        sock = lead.until(lambda: connected(port))
        with sock, sock.makefile() as lines:
            plan = Plan((), 1, nodes=2, node=1)
            sock.sendall(json.dumps(joining(plan)).encode() + b"\n")
            assert json.loads(lines.readline())["op"] == "start"
            strange = {**TO_NODE_0[0], "report": {**REPORT._asdict(), "rank": 0}}
            sock.sendall(json.dumps(strange).encode() + b"\n")
            assert json.loads(lines.readline())["op"] == "stop"
            sock.sendall(b'{"op": "stopped", "generation": 0}\n')
            done = lead.done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        "shardwise launch: the launcher of node 1 reports process 0, which is not one of its "
        "processes. It printed no error."
    ]


def connected(port):
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=30)
    except ConnectionRefusedError:
        return None


# ------------------------------------------------------------------------------ the coordinator


class Crowd:
    """A coordinator of several processes, and a connection for each."""

    def __init__(self, stack, count):
        self.stack, self.count = stack, count
        self.made = Coordinator(
            "127.0.0.1", 0, count, heartbeat=600, arrival=60, patience=600, deadline=600
        )
        stack.callback(self.made.stop)

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.made.port), timeout=30)
        return self.stack.enter_context(sock)

    def join(self, rank):
        sock = self.connect()
        about = {"rank": rank, "count": self.count, "host": "h", "pid": 1, "versions": "v"}
        message = {"op": "join", "left": 60, "timeout": 60, **about}
        sock.sendall(json.dumps(message).encode() + b"\n")
        return sock


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_goes_on_whatever_processes_send(seed):
    with contextlib.ExitStack() as stack:
        crowd = Crowd(stack, 65)
        join = {
            "op": "join",
            "left": 9,
            "timeout": 9,
            "rank": 0,
            "count": 65,
            "host": "h",
            "pid": 1,
            "versions": "v",
        }
        for line in malformed([join], seed, 32):
            sock = crowd.connect()
            with contextlib.suppress(ConnectionError):
                sock.sendall(line + b"[]\n")
            until_closed(sock)
        socks = [crowd.join(rank) for rank in range(65)]
        first = stack.enter_context(socks[0].makefile())
        assert json.loads(first.readline())["op"] == "go"
        for sock, line in zip(socks[1:], malformed(TO_COORDINATOR, seed, 64), strict=True):
            with contextlib.suppress(ConnectionError):
                sock.sendall(line.replace(b'"0,1"', b'"0,1,2"') + b"[]\n")
            until_closed(sock)
        socks[0].sendall(json.dumps({**BEAT, "sets": {}}).encode() + b"\n")
        found = []
        while "heard" not in [message["op"] for message in found]:
            found.append(json.loads(first.readline()))
        lost = [message["text"] for message in found if message["op"] == "fail"]
        assert lost and "is lost: it sent an invalid message." in lost[0]
