"""The launchers of several machines: their messages to each other, and strangers at their ports."""

import json
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from shardwise._src.coordination.coordinator import listening
from shardwise._src.distributed.status_files import LaunchStatus
from shardwise._src.launch.leader import Leader
from shardwise._src.launch.local_agent import Events, LocalAgent
from shardwise._src.launch.nodes import Nodes, joining
from shardwise._src.launch.status_relay import StatusRelay
from shardwise._src.launch.status_view import Process
from shardwise._src.launch.workers import Plan
from tests.helpers.launching import Launch
from tests.helpers.patience import seconds, until


def planned(listener, **options):
    return Plan(("program.py",), 1, address=listener.getsockname(), **options)


@contextmanager
def nodes_of(count, hear=lambda node, message: None, **options):
    """Node 0's view of other nodes, the messages it receives, and a function to join as a node."""
    said, socks = [], []
    listener = listening("127.0.0.1", 0)
    plan = planned(listener, nodes=count, **options)
    nodes = Nodes(plan, said.append)
    nodes.listen(listener, None, hear)

    def join(node):
        socks.append(socket.create_connection(listener.getsockname(), timeout=seconds(5)))
        socks[-1].sendall(json.dumps({**joining(plan), "node": node}).encode() + b"\n")
        until(lambda: node not in nodes.missing())
        return socks[-1]

    yield nodes, said, join
    for sock in socks:
        sock.close()
    nodes.close()


def is_closed(sock):
    with suppress(ConnectionError):  # it closed before all of it was read
        return sock.recv(1) == b""
    return True


@pytest.mark.parametrize("data", [
    b"x" * (8 << 20), b"[" * 100_000 + b"\n", b"[]\n", b"\xff\n",
    b'{"op": "join", "node": Infinity}\n', b'{"op": "join", "node": NaN}\n',
    b'{"op": "join", "node": 1e999}\n',
])  # fmt: skip
def test_a_stranger_is_turned_away_at_once(data):
    said = []
    listener = listening("127.0.0.1", 0)
    nodes = Nodes(planned(listener, nodes=2), said.append)
    nodes.listen(listener, None, lambda *_: None)
    with socket.create_connection(listener.getsockname(), timeout=seconds(5)) as sock:
        with suppress(ConnectionError):  # it closed before all of it was sent
            sock.sendall(data)
        assert is_closed(sock)
    nodes.close()
    assert said == [] and nodes.missing() == [1]


def infinite(**values):
    row = {**Process(0, 1, "runs")._asdict(), **values}
    return {"op": "shown", "node": 1, "complete": True, "workers": [row]}


@pytest.mark.parametrize("message", [
    {"op": "finished", "generation": float("inf")},
    {"op": "failed", "generation": 0, "report": {"named": [float("inf")], "tail": []}},
    infinite(rank=float("inf")), infinite(facts={"loss": 10**400}),
])  # fmt: skip
def test_a_launcher_that_says_nonsense_is_gone_and_may_come_again(message, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    notice = LaunchStatus({})
    mirror = StatusRelay(notice, 0, lambda message, nodes: None)
    with nodes_of(2, mirror.hear) as (nodes, said, join):
        first = join(1)
        first.sendall(json.dumps(message).encode() + b"\n")
        assert is_closed(first)
        until(lambda: len(said) == 2)
        assert nodes.missing() == [1]
        join(1)
        until(lambda: len(said) == 3)
        assert [(s.node, s.op) for s in said] == [(1, "came"), (1, "gone"), (1, "came")]
    mirror.end()
    notice.remove()


def test_a_node_is_gone_whatever_ends_its_thread(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda facts: raised.append(facts.exc_type))
    raised = []

    def hear(node, message):
        raise ZeroDivisionError

    with nodes_of(2, hear) as (nodes, said, join):
        sock = join(1)
        sock.sendall(b'{"op": "look"}\n')
        assert is_closed(sock)
        until(lambda: len(said) == 2 and raised)
        assert (said[1].op, nodes.missing(), raised) == ("gone", [1], [ZeroDivisionError])


@pytest.mark.processes
@pytest.mark.parametrize("message", [
    infinite(rank=float("inf")), {**infinite(), "node": float("inf")},
])  # fmt: skip
def test_a_launcher_ends_if_node_0_says_nonsense(message):
    with listening("127.0.0.1", 0) as listener:
        address = "{}:{}".format(*listener.getsockname())
        words = ["--nodes", "2", "--node-rank", "1", "--coordinator", address]
        with Launch("-n", "1", *words, source="print(1)") as other:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(json.dumps(message).encode() + b"\n")
                done = other.done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        "shardwise launch: the launcher of node 0 is gone: it exited, or its machine went down."
    ]


# ------------------------------------------------------------------------- who is awaited


@contextmanager
def lead_of(tmp_path, monkeypatch, least):
    """The launcher of node 0 of three, before a restart; all other nodes are connected."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with nodes_of(3) as (nodes, _, join):
        notice = LaunchStatus({})
        plan = Plan(("program.py",), 1, nodes=3, least=least, arrival=0.3)
        events = Events()
        lead = Leader(LocalAgent(plan, events, "mark", (), notice))
        lead._nodes, nodes._post = nodes, lead._nodes._post
        yield lead, nodes, {node: join(node) for node in (1, 2)}, join
        notice.remove()


def test_who_goes_while_others_are_awaited_is_not_awaited(tmp_path, monkeypatch, capfd):
    with lead_of(tmp_path, monkeypatch, 1) as (lead, nodes, socks, _):
        lead._shrink([])
        socks[2].close()
        until(lambda: nodes.missing() == [2])
        lead._await_nodes(1)
        assert (lead._shares.counts, lead._shares.left_out) == ([1, 1, 0], {2})
    assert capfd.readouterr().err == (
        "shardwise launch: generation 1 starts with 2 processes: nodes joined or left in the "
        "meantime\n"
    )


def test_who_comes_again_takes_the_place_of_one_that_is_awaited(tmp_path, monkeypatch):
    with lead_of(tmp_path, monkeypatch, 2) as (lead, nodes, socks, join):
        for sock in socks.values():
            sock.close()
        until(lambda: nodes.missing() == [1, 2])
        lead._shrink([])
        assert (lead._shares.counts, lead._missing()) == ([1, 0, 1], [2])
        join(1)
        lead._await_nodes(1)
        assert lead._shares.counts == [1, 1, 0]


@pytest.mark.parametrize(("generation", "least"), [(0, 1), (1, 3), (1, None)])
def test_who_is_needed_is_awaited(generation, least, tmp_path, monkeypatch):
    """At the beginning, all are needed."""
    with lead_of(tmp_path, monkeypatch, least) as (lead, nodes, socks, _):
        socks[2].close()
        until(lambda: nodes.missing() == [2])
        with pytest.raises(Exception) as error:
            lead._await_nodes(generation)
    assert str(error.value) == (
        "node 2 of 3 did not join within 0 s (--initialization-timeout). Start the same command "
        "there, with its own --node-rank."
    )


def test_who_goes_before_it_is_told_to_start_ends_the_generation(tmp_path, monkeypatch):
    with lead_of(tmp_path, monkeypatch, 3) as (lead, nodes, socks, _):
        lead._await_nodes(0)
        socks[2].close()
        until(lambda: nodes.missing() == [2])
        socks[1].close()
        until(lambda: nodes.missing() == [1, 2])
        (report,) = lead._generation(0)
    assert f"{report.about} {report.how}" == (
        "the launcher of node 1 is gone: it was stopped, or its machine went down"
    )
