"""Several processes that join by `initialize`: which are rejected, awaited and notified."""

import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import Coordinator
from shardwise._version import __version__
from tests.helpers.joining import HEAD, free_port, lines, run
from tests.helpers.patience import seconds, until
from tests.helpers.processes import run_processes, until_written

pytestmark = pytest.mark.processes

VERSIONS = f"shardwise {__version__} on jaxlib {JAXLIB_VERSION}"


def test_those_who_are_here_are_told_who_was_refused():
    port, limit = free_port(), seconds(3)
    [right, wrong] = run(
        *[
            HEAD
            + f"""
    together(2)
    attempt("127.0.0.1:{port}", {count}, {rank}, initialization_timeout={limit})
    """
            for count, rank in [(2, 0), (3, 1)]
        ]
    )
    host = socket.gethostname()
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    why = (
        f"process 1 (host {host}, pid N) cannot join: it expects 3 processes, but the coordinator "
        "expects 2."
    )
    said = [re.sub(r"pid \d+", "pid N", line) for found in (right, wrong) for line in lines(found)]
    assert said == [
        f"{where}process 1 of 2 did not join within {limit} s (`initialization_timeout`). Joined: "
        f"process 0 (host {host}, pid N). But {why}",
        f"{where}{why}",
    ]


def test_who_contradicts_the_others_is_refused_and_may_come_again():
    port = free_port()
    head = HEAD + f"    at = '127.0.0.1:{port}'"
    first = (
        head
        + """
    sw.distributed.initialize(at, 3, 0)
    print("there")
    """
    )
    # Two processes claim to be process 1: the second to arrive is rejected.
    twin = (
        head
        + """
    attempt(at, 3, 1)
    if not sw.distributed.is_initialized():
        attempt(at, 4, 3)
        from shardwise._src.distributed import start
        start.__version__, right = "0.0", start.__version__
        attempt(at, 3, 2)
        start.__version__ = right
        sw.distributed.initialize(at, 3, 2)
        print("joined at last")
    """
    )
    out = [lines(result) for result in run(first, twin, twin)]
    assert out[0] == ["there"]
    joined, refused = sorted(out[1:], key=len)
    assert joined == ["joined"]
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    host = socket.gethostname()
    texts = [re.sub(r"pid \d+", "pid N", line) for line in refused]
    texts[2] = texts[2].replace("but process 1 ", "but process 0 ")  # whichever process had joined
    assert texts == [
        f"{where}process 1 (host {host}, pid N) cannot join: process 1 (host {host}, pid N) has "
        "already joined as process 1. Child processes inherit environment variables: to run a "
        "separate program, unset SHARDWISE_COORDINATOR_ADDRESS.",
        f"{where}process 3 (host {host}, pid N) cannot join: it expects 4 processes, but the "
        "coordinator expects 3.",
        f"{where}process 2 (host {host}, pid N) cannot join: it runs shardwise 0.0 on jaxlib "
        f"{JAXLIB_VERSION}, but process 0 (host {host}, pid N) runs {VERSIONS}: all processes must "
        "run the same versions.",
        "joined at last",
    ]


def test_a_process_that_never_arrives_is_named_by_the_others():
    port, limit = free_port(), seconds(2)
    program = """
    together(2)
    attempt("127.0.0.1:{}", 3, {}, initialization_timeout={})
    """
    results = run(*[HEAD + program.format(port, rank, limit) for rank in (0, 1)])
    host = socket.gethostname()
    for result in results:
        [line] = lines(result)
        assert re.sub(r"pid \d+", "pid N", line) == (
            f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: process 2 of 3 did "
            f"not join within {limit} s (`initialization_timeout`). Joined: process 0 (host "
            f"{host}, pid N), process 1 (host {host}, pid N)."
        )


def test_who_waits_less_than_the_others_is_told_who_is_missing():
    port, limits = free_port(), (seconds(6), seconds(2))
    first, second = run(
        *[
            HEAD
            + f"""
    together(2)
    attempt("127.0.0.1:{port}", 3, {rank}, initialization_timeout={limit})
    print(time.monotonic())
    """
            for rank, limit in enumerate(limits)
        ]
    )
    *first, late = lines(first)
    *second, early = lines(second)
    assert float(early) < float(late)
    host = socket.gethostname()
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    texts = [re.sub(r"pid \d+", "pid N", line) for line in (*first, *second)]
    here = [f"process {rank} (host {host}, pid N)" for rank in (0, 1)]
    assert texts == [
        f"{where}process 2 of 3 did not join within {n} s (`initialization_timeout`). Joined: "
        f"{here[0]}, {here[1]}."
        for n in limits
    ]


def test_who_comes_when_the_others_have_given_up_is_told_so():
    coordinator = Coordinator(
        "127.0.0.1", 0, 2, heartbeat=seconds(20), arrival=1, patience=30, deadline=60
    )
    place = {
        "SHARDWISE_COORDINATOR_ADDRESS": f"127.0.0.1:{coordinator.port}",
        "SHARDWISE_COORDINATOR_STARTED": "1",
        "SHARDWISE_NUM_PROCESSES": "2",
    }
    with socket.create_connection(("127.0.0.1", coordinator.port)) as first:
        about = {"rank": 0, "count": 2, "host": "h", "pid": 7, "versions": "v"}
        about |= {"left": 9, "timeout": 9}
        first.sendall(json.dumps({"op": "join", **about}).encode() + b"\n")
        refused = json.loads(first.makefile().readline())
        text = (
            "process 1 of 2 did not join within 1 s (`initialization_timeout`). Joined: process 0 "
            "(host h, pid 7)."
        )
        assert refused == {"op": "refused", "why": text, "ranks": []}
        [late] = run(
            HEAD
            + """
    attempt()
    """,
            env=place | {"SHARDWISE_PROCESS_ID": "1"},
        )
    coordinator.stop()
    host = socket.gethostname()
    assert re.sub(r"pid \d+\) cannot", "pid N) cannot", lines(late)[0]) == (
        f"RuntimeError: initialize: the coordinator at 127.0.0.1:{coordinator.port}: process 1 "
        f"(host {host}, pid N) cannot join: the others have stopped waiting: {text}"
    )


def test_a_time_of_heartbeats_that_does_not_count_is_told_of():
    port = free_port()
    program = """
    attempt("127.0.0.1:{0}", 2, {1}, heartbeat_timeout_seconds={2})
    """
    (_, first), (out, second) = run(
        HEAD + program.format(port, 0, 30), HEAD + program.format(port, 1, 60)
    )
    assert "joined" in out and first == ""
    assert (
        "UserWarning: initialize: heartbeat_timeout_seconds=60 has no effect: process 0 has "
        "started the coordinator with 30. Pass it there." in second
    )


def test_options_that_are_set_too_late():
    port = free_port()
    [(out, _)] = run(
        HEAD
        + f"""
    sw.config.update("wait_timeout_secs", 50.0)
    attempt("127.0.0.1:{port}", 1, 0)
    sw.config.update("wait_timeout_secs", 50.0)
    for name, value in {{"wait_timeout_secs": 5.0, "compare_programs": False}}.items():
        try:
            sw.config.update(name, value)
        except RuntimeError as error:
            print(error)
    """
    )
    text = (
        "{} cannot be set to {} any more: this process has already joined others. Set it before "
        "`initialize` and the first use of a device, or with the environment variable SHARDWISE_{}."
    )
    assert out.splitlines() == [
        "joined",
        text.format("wait_timeout_secs", "5.0", "WAIT_TIMEOUT_SECS"),
        text.format("compare_programs", "False", "COMPARE_PROGRAMS"),
    ]
    results = run_processes(
        """
    import shardwise as sw
    sw.config.update("wait_timeout_secs", 5.0)
    """,
        1,
    )
    assert (
        "UserWarning: wait_timeout_secs=5.0 has no effect: `shardwise launch` has started the "
        "coordinator with its own value. Pass --wait-timeout-secs there." in results[0].err
    )


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_addresses_of_ipv6():
    port = free_port()
    program = """
    attempt("[::1]:{}", 2, {})
    mesh = sw.make_mesh((2,), ("x",))
    x = sw.device_put(sw.numpy.arange(1.0, 3.0), sw.NamedSharding(mesh, sw.P("x")))
    print(float(sw.jit(lambda x: x.sum())(x)))
    """
    results = run(*[HEAD + program.format(port, rank) for rank in (0, 1)])
    assert [lines(result) for result in results] == [["joined", "3.0"]] * 2


GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\n",
    b"[]\n",
    b"1\n",
    b"null\n",
    b"{}\n",
    b'{"op": "join"}\n',
    b'{"op": "join", "rank": "x", "count": 2}\n',
    b'{"op": "join", "rank": [], "count": 2, "host": 1, "pid": 2, "versions": 3}\n',
    b'{"op": "join", "rank": -1, "count": 2, "host": 1, "pid": 2, "versions": 3}\n',
    b'{"op": "join", "rank": 1, "count": 2, "host": 1, "pid": 2, "versions": 3, "left": []}\n',
    b'{"op": "join", "rank": 0, "count": 2, "host": 1, "pid": 2, "versions": 3, "left": 1, '
    b'"timeout": 1}\n'
    b'{"op": "leave", "how": "failed", "text": "?", "line": ""}\n',
    b'{"op": "leave", "how": "failed", "text": "?", "line": ""}\n',
    b'{"op": "_closed"}\n',
    b"[" * 100_000 + b"\n",
    b"\xff\xfe\x00\n",
    b"x" * (1 << 16),
    os.urandom(1000) + b"\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def test_garbage_does_not_disturb_the_coordinator():
    def disturb(running):
        path = f"/proc/{running[0].pid}/environ"
        environ = dict(v.split("=", 1) for v in Path(path).read_text().split("\0") if "=" in v)
        port = int(environ["SHARDWISE_COORDINATOR_ADDRESS"].rpartition(":")[2])
        while any(process.poll() is None for process in running):
            for data in GARBAGE:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=seconds(5)) as sock:
                        sock.sendall(data)
                        sock.shutdown(socket.SHUT_WR)
                        sock.recv(1 << 12)
                        counted.append(data)
                except OSError:
                    continue
            time.sleep(0.05)

    counted = []
    results = run_processes(
        """
    import numpy as np
    import shardwise as sw
    import shardwise.numpy as jnp
    mesh = sw.make_mesh((sw.device_count(),), ("x",))
    for i in range(20):
        x = jnp.arange(8.0, device=sw.NamedSharding(mesh, sw.P("x")))
        assert float(jnp.sum(x + i)) == 28 + 8 * i
    print("done")
    """,
        2,
        during=disturb,
    )
    assert [r.out for r in results] == ["done\n"] * 2
    assert [r.err for r in results] == [""] * 2
    assert len(counted) > len(GARBAGE)


def test_a_worker_connects_once_its_coordinator_is_there():
    port = free_port()

    def start(running):
        # In the meantime the worker waits and keeps trying.
        until_written(running[0], "trying")
        coordinator = Coordinator(
            "127.0.0.1",
            port,
            1,
            heartbeat=seconds(20),
            arrival=seconds(60),
            patience=30,
            deadline=60,
        )
        until(lambda: running[0].poll() is not None)
        coordinator.release()

    [(out, err)] = run(
        """
    import socket
    import shardwise as sw
    connect, refused = socket.create_connection, []
    def counted(*args, **options):
        try:
            return connect(*args, **options)
        except ConnectionRefusedError:
            refused.append(args)
            if len(refused) == 3:
                print("trying", flush=True)
            raise
    socket.create_connection = counted
    sw.distributed.initialize()
    print("joined")
    """,
        during=start,
        env={
            "SHARDWISE_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "SHARDWISE_COORDINATOR_STARTED": "1",
            "SHARDWISE_NUM_PROCESSES": "1",
            "SHARDWISE_PROCESS_ID": "0",
        },
    )
    assert (out, err) == ("trying\njoined\n", "")
