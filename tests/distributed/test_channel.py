"""The connection to the coordinator, at the other end of which nobody does what is expected."""

import resource
import socket
import threading

from shardwise._src.distributed.channel import Channel


def test_who_takes_nothing_does_not_hold_up_a_sender():
    here, there = socket.socketpair()
    with there:
        channel = Channel(here)
        channel.limit(0.2)

        def send():
            for _ in range(100):
                channel.send({"op": "beat", "line": "x" * 100_000})

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive() and channel.closed
        assert channel.read(0) == []
        channel.close()


def test_a_connection_whose_number_is_large():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    here, there = socket.socketpair()
    pairs = []
    try:
        while here.fileno() < 1030:
            pairs.append(here)
            here = here.dup()
        channel = Channel(here)
        assert channel.read(0) == []
        there.sendall(b'{"op": "heard"}\n')
        assert channel.read(5) == [{"op": "heard"}]
    finally:
        for sock in (*pairs, here, there):
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
