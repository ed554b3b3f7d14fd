"""The launcher of node 0, at whose port strangers come."""

import socket

import pytest

from shardwise._src.distributed.nodes import Nodes
from shardwise._src.distributed.workers import Plan
from shardwise._src.runtime.coordinator import listening


@pytest.mark.parametrize("data", [b"x" * (8 << 20), b"[" * 100_000 + b"\n", b"[]\n", b"\xff\n"])
def test_a_stranger_is_turned_away_at_once(data):
    said = []
    listener = listening("127.0.0.1", 0)
    plan = Plan(("program.py",), 1, nodes=2, address=listener.getsockname())
    nodes = Nodes(plan, listener, None, said.append, lambda *said: None)
    with socket.create_connection(listener.getsockname(), timeout=5) as sock:
        try:
            sock.sendall(data)
            assert sock.recv(1) == b""
        except ConnectionError:  # it is gone before all of it was sent
            pass
    nodes.close()
    assert said == [] and nodes.missing() == [1]
