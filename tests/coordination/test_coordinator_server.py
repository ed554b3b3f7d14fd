"""The coordinator server, with more processes than a test machine runs."""

import contextlib
import json
import resource
import socket
import tracemalloc

from shardwise._src.coordination.coordinator_server import CoordinatorServer
from shardwise._src.coordination.failure_detector import Peer
from shardwise._src.runtime.processes import Coordinator
from tests.helpers import patience

COUNT = 128


def many():
    board = CoordinatorServer({"count": COUNT, "heartbeat": 20, "patience": 1, "deadline": 600})
    for rank in range(COUNT):
        peer = board.peers[rank] = Peer(None)
        peer.rank, peer.about = rank, {"host": "h", "pid": rank}
    return board


def beats(board, until):
    """One beat per process after each launch, as from a program whose steps take a second."""
    ranks = ",".join(map(str, range(COUNT)))
    for n in range(1, until):
        for peer in board.peers.values():
            key = (ranks + "#")[:-1]  # as received: another string object each time
            recent = [(i, "digest", "step", i) for i in range(max(1, n - 1), n + 1)]
            board._on_beat(
                peer,
                {
                    "line": "",
                    "waiting": "program 'step'",
                    "since": 2.0,
                    "kind": "launch",
                    "sets": {key: (n, recent)},
                },
            )


def test_long_programs_of_many_processes_are_little_to_remember():
    board = many()
    tracemalloc.start()
    beats(board, 300)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 8 << 20, f"{used / 2**20:.0f} MiB"


def test_a_coordinator_takes_more_connections_than_programs_usually_may_have():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count, limit = 200, patience.seconds(60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        coordinator = Coordinator(
            "127.0.0.1", 0, count, heartbeat=limit, arrival=limit, patience=30, deadline=60
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1024), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        stack.callback(coordinator.stop)
        socks = []
        for rank in range(count):
            sock = socket.create_connection(("127.0.0.1", coordinator.port), timeout=limit)
            socks.append(stack.enter_context(sock))
            about = {"rank": rank, "count": count, "host": "h", "pid": 1, "versions": "v"}
            about |= {"op": "join", "left": limit, "timeout": limit}
            sock.sendall(json.dumps(about).encode() + b"\n")
        with socks[-1].makefile() as lines:
            assert json.loads(lines.readline())["op"] == "go"
