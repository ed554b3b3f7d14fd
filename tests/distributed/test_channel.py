"""The connection to the coordinator, with a peer that does not behave as expected."""

import errno
import resource
import socket
import threading

import pytest

from shardwise._src.distributed import channel as channels
from shardwise._src.distributed.channel import Channel
from tests.helpers import patience


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
        thread.join(patience.seconds(60))
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
        assert channel.read(patience.seconds(5)) == [{"op": "heard"}]
    finally:
        for sock in (*pairs, here, there):
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Clock:
    """Time that passes only while the code under test sleeps."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append((self.now, seconds))
        self.now += seconds


def test_pauses_between_attempts_to_connect_are_a_small_part_of_the_wait(monkeypatch):
    def refused(*args, **options):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    clock = Clock()
    monkeypatch.setattr(channels, "time", clock)
    monkeypatch.setattr(socket, "create_connection", refused)
    with pytest.raises(TimeoutError, match=r"^Connection refused$"):
        channels.connect("127.0.0.1", 1, 60.0, None, None)
    assert clock.now == pytest.approx(60.0)
    for waited, pause in clock.slept:
        assert pause <= max(channels.FIRST_PAUSE, waited / 20)
        assert pause <= channels.LONGEST_PAUSE
