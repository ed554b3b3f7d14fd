"""`initialize` in real processes: what it refuses, what it waits for, and what it says."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import HAS_TLS, Coordinator
from shardwise._version import __version__
from shardwise.testing import run_processes

pytestmark = pytest.mark.processes
CLEAN = {
    k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_", "SLURM_"))
} | {"SHARDWISE_PLATFORMS": "cpu", "SHARDWISE_NUM_CPU_DEVICES": "1"}
VERSIONS = f"shardwise {__version__} on jaxlib {JAXLIB_VERSION}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def run(*programs, timeout=30, during=None, env=None):
    """Runs programs at the same time, each by itself; gives the output and error of each."""
    running = []
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory() as folder:
        try:
            for i, program in enumerate(programs):
                path = Path(folder, f"{i}.py")
                path.write_text(textwrap.dedent(program))
                with open(f"{path}.out", "w") as out, open(f"{path}.err", "w") as err:
                    running.append(subprocess.Popen(
                        [sys.executable, str(path)], env=CLEAN | (env or {}), stdout=out,
                        stderr=err, stdin=subprocess.DEVNULL,
                    ))
            if during is not None:
                during(running)
            while (late := any(p.poll() is None for p in running)) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            for process in running:
                process.kill()
                process.wait()
        told = [
            tuple(Path(folder, f"{i}.py.{name}").read_text() for name in ("out", "err"))
            for i in range(len(programs))
        ]
        assert not late, f"not all ended within {timeout} s: {told}"
        return told


HEAD = """
    import sys
    import shardwise as sw
    def attempt(*args, **kwargs):
        try:
            sw.distributed.initialize(*args, **kwargs)
            print("joined")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
"""


def lines(result) -> list[str]:
    out, err = result
    found = [line for line in out.splitlines() if not line.startswith("[Gloo] Rank")]
    assert "Traceback" not in err, err
    return found


# -------------------------------------------------------------------------------- in one process

ADDRESSES = ("here", "here:", ":12", "::1:12", "a:0", "a:65536", "a:-1", "[::1]")
TIMES = ("initialization_timeout", "heartbeat_timeout_seconds", "shutdown_timeout_seconds")


def test_arguments_that_cannot_be():
    [result] = run(HEAD + f"""
    for address in {ADDRESSES}:
        attempt(address, 1, 0)
    one = "127.0.0.1:1234", 1, 0
    attempt(*one, coordinator_bind_address="12")
    for name in {TIMES}:
        attempt(*one, **{{name: 0}})
    attempt(*one, heartbeat_timeout_seconds=float("nan"))
    attempt("127.0.0.1:1234", 2, 2)
    attempt("127.0.0.1:1234", 0, 0)
    attempt("127.0.0.1:1234", 2)
    """)
    form = (
        "ValueError: initialize: {} must be host:port, as in '10.0.0.1:1234' or '[::1]:1234', with "
        "a port from 1 to 65535; got {!r}."
    )
    numbers = (
        "ValueError: initialize: process_id must be from 0 to num_processes - 1; got process_id={} "
        "(as passed) and num_processes={} (as passed)."
    )
    assert lines(result) == [
        *[form.format("coordinator_address", address) for address in ADDRESSES],
        form.format("coordinator_bind_address", "12"),
        *[f"ValueError: initialize: {name} must be positive; got 0." for name in TIMES],
        "ValueError: initialize: heartbeat_timeout_seconds must be positive; got nan.",
        numbers.format(2, 2),
        numbers.format(0, 0),
        "ValueError: initialize: process_id: not given, and no cluster was found that says. Pass "
        "what is missing, or start the program by `shardwise launch -n 4 program.py`. Known "
        "clusters are shardwise, torchrun, ompi, pmi, slurm, k8s, mpi4py. `shardwise doctor` shows "
        "what is found.",
    ]


def test_files_for_tls_that_cannot_be(tmp_path):
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    cert, key, ca = (str(tmp_path / name) for name in ("cert", "key", "ca"))
    [result] = run(HEAD + f"""
    one = "127.0.0.1:1234", 1, 0
    attempt(*one, mtls_cert_file={cert!r})
    attempt(*one, verify_secure_credentials=True)
    sw.config.update("jax_distributed_verify_secure_credentials", True)
    attempt(*one)
    sw.config.update("jax_distributed_verify_secure_credentials", False)
    sw.config.update("mtls_key_file", {key!r})
    attempt(*one)
    files = dict(mtls_cert_file={cert!r}, mtls_ca_file={ca!r})
    attempt(*one, **files, mtls_key_file="nowhere.pem")
    attempt(*one, **files, mtls_peer_uri_prefix="spiffe://example.org")
    """)
    missing = (
        "ValueError: initialize: {} missing: TLS needs the certificate of this process, its key, "
        "and the authority that peers' certificates are signed by."
    )
    unsafe = (
        "ValueError: initialize: verify_secure_credentials asks for TLS: pass mtls_cert_file, "
        "mtls_key_file and mtls_ca_file."
    )
    without = (
        f"RuntimeError: initialize: jaxlib {JAXLIB_VERSION} has no TLS between processes; 0.11 and "
        "later have (Python 3.12 and later)."
    )
    assert lines(result) == [
        missing.format("mtls_key_file, mtls_ca_file"),
        unsafe,
        unsafe,
        missing.format("mtls_cert_file, mtls_ca_file"),
        *([
            "ValueError: initialize: mtls_key_file: there is no file 'nowhere.pem'.",
            "ValueError: initialize: mtls_peer_uri_prefix must end with '/', or names that go on "
            "after it would fit, too; got 'spiffe://example.org'.",
        ] if HAS_TLS else [without, without]),
    ]


def test_mpi_for_collectives_of_the_cpu_without_its_wrapper():
    """MPItrampoline itself would end the process."""
    [result] = run(HEAD + """
    import os
    sw.config.update("cpu_collectives_implementation", "mpi")
    attempt("127.0.0.1:1234", 1, 0)
    os.environ["MPITRAMPOLINE_LIB"] = "/nowhere/libmpiwrapper.so"
    attempt("127.0.0.1:1234", 1, 0)
    """)
    text = (
        "RuntimeError: initialize: cpu_collectives_implementation is 'mpi', but {}. XLA calls MPI "
        "through MPItrampoline: build MPIwrapper (https://github.com/eschnett/MPIwrapper) with the "
        "MPI that starts this program, and have MPITRAMPOLINE_LIB name its libmpiwrapper.so; or "
        "use 'gloo', which needs nothing."
    )
    assert lines(result) == [
        text.format("the environment variable MPITRAMPOLINE_LIB is not set"),
        text.format("MPITRAMPOLINE_LIB names '/nowhere/libmpiwrapper.so', which is no file"),
    ]


def test_twice_and_too_late():
    port = free_port()
    [result] = run(HEAD + f"""
    one = "127.0.0.1:{port}", 1, 0
    attempt(*one)
    attempt(*one)
    print(sw.distributed.is_initialized(), sw.process_count())
    sw.distributed.shutdown()
    attempt(*one)
    print(sw.distributed.is_initialized())
    """)
    assert lines(result) == [
        "joined",
        "RuntimeError: initialize was called before: this is process 0 of 1. Call it once, or "
        "`shardwise.distributed.shutdown()` before.",
        "True 1",
        "RuntimeError: initialize must be called before devices are used, and they are started "
        "already: by an array, or by a call such as `devices()`. Call it at the program's "
        "beginning.",
        "False",
    ]


@pytest.mark.turns(2)
def test_a_port_that_is_taken_and_an_address_where_nobody_is():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        [result] = run(HEAD + f"""
    attempt("127.0.0.1:{port}", 1, 0)
    attempt("127.0.0.1:{free}", 2, 1, initialization_timeout=1)
    attempt("no-such-host.invalid:{free}", 2, 1, initialization_timeout=1)
    # Process 0 listens at its own machine, wherever that is.
    attempt("127.0.0.9:{free}", 1, 0, initialization_timeout=1,
            coordinator_bind_address="127.0.0.1:{free}")
    """)
    found = lines(result)
    nobody = (
        "TimeoutError: initialize: process 1 of 2 did not reach the coordinator at {} within 1 s "
        "(`initialization_timeout`): {}. Process 0 starts it there: is that running, and can this "
        "machine reach the address?"
    )
    assert found[0] == (
        f"RuntimeError: initialize: the coordinator cannot listen at 127.0.0.1:{port}: Address "
        "already in use. Is another program at this port, or a process that takes itself for "
        "process 0, too, or is the address not of this machine?"
    )
    assert found[1] == nobody.format(f"127.0.0.1:{free}", "Connection refused")
    unknown = ("Name or service not known", "Temporary failure in name resolution")
    assert found[2] in [nobody.format(f"no-such-host.invalid:{free}", why) for why in unknown]
    assert found[3] == (
        f"TimeoutError: initialize: process 0 of 1 did not reach the coordinator at 127.0.0.9:"
        f"{free} within 1 s (`initialization_timeout`): Connection refused. This process has "
        "started it, on this machine: is coordinator_address the address of another one? It must "
        "be that of the machine of process 0."
    )


class Page(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.mark.turns(2)
def test_a_stranger_at_the_port():
    """A web server answers with a page; others close the connection, or say nothing."""
    server = HTTPServer(("127.0.0.1", 0), Page)
    silent = socket.create_server(("127.0.0.1", 0))
    closing = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=lambda: closing.accept()[0].close(), daemon=True).start()
    ports = [s.getsockname()[1] for s in (server.socket, silent, closing)]
    try:
        [result] = run(HEAD + f"""
    attempt("127.0.0.1:{ports[0]}", 2, 1)
    attempt("127.0.0.1:{ports[1]}", 2, 1, initialization_timeout=1)
    attempt("127.0.0.1:{ports[2]}", 2, 1)
    """)
    finally:
        server.shutdown()
        server.server_close()
        silent.close()
        closing.close()
    page, silence, closed = lines(result)
    where = "initialize: the coordinator at 127.0.0.1:"
    assert page.startswith(
        f"RuntimeError: {where}{ports[0]}: what listens there is no coordinator: it says '"
    )
    assert silence == (
        f"TimeoutError: {where}{ports[1]} does not answer within 1 s "
        "(`initialization_timeout`): is something else at its port?"
    )
    assert closed.startswith(
        f"RuntimeError: {where}{ports[2]}: what listens there closed the connection"
    )


def test_proxies_are_bypassed_and_noted():
    port, dead = free_port(), free_port()
    proxy = f"http://127.0.0.1:{dead}"
    [result] = run(HEAD + f"""
    import logging
    logging.basicConfig(level="INFO", stream=sys.stdout, format="%(name)s: %(message)s")
    attempt("127.0.0.1:{port}", 1, 0)
    """, env={"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "example.org"})
    noted, joined, done = [line for line in lines(result) if "jaxlib" not in line]
    assert noted == (
        "shardwise.distributed: the proxies of https_proxy, http_proxy are not used for 127.0.0.1"
    )
    assert joined.startswith("shardwise.distributed: process 0 of 1 (as given) has joined at ")
    assert done == "joined"


def test_a_coordinator_beyond_loopback_without_tls_warns_once():
    port = free_port()
    [(out, err)] = run(HEAD + f"""
    attempt("127.0.0.1:{port}", 1, 0, coordinator_bind_address="0.0.0.0:{port}")
    """)
    assert out.splitlines()[-1] == "joined"
    assert err.count("UserWarning") == 1
    assert (
        f"UserWarning: the coordinator listens at 0.0.0.0:{port}, beyond this machine, without "
        "TLS: whoever reaches the port can join or disturb the program. Keep the port to a trusted "
        "network, or pass mtls_cert_file, mtls_key_file and mtls_ca_file (jaxlib 0.11 and later). "
        "SECURITY.md says more." in err
    )


# ---------------------------------------------------------------------------- in several processes


def test_those_who_are_here_are_told_who_was_refused():
    port = free_port()
    [right, wrong] = run(*[HEAD + f"""
    attempt("127.0.0.1:{port}", {count}, {rank}, initialization_timeout=3)
    """ for count, rank in [(2, 0), (3, 1)]])
    host = socket.gethostname()
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    why = (
        f"process 1 (host {host}, pid N) cannot join: it says that there are 3 processes; the "
        "coordinator expects 2."
    )
    said = [re.sub(r"pid \d+", "pid N", line) for found in (right, wrong) for line in lines(found)]
    assert said == [
        f"{where}process 1 of 2 did not arrive within 3 s (`initialization_timeout`). Here are: "
        f"process 0 (host {host}, pid N). But {why}",
        f"{where}{why}",
    ]


@pytest.mark.turns(2)
def test_who_contradicts_the_others_is_refused_and_may_come_again():
    port = free_port()
    head = HEAD + f"    at = '127.0.0.1:{port}'"
    first = head + """
    sw.distributed.initialize(at, 3, 0)
    print("there")
    """
    # Two that take themselves for process 1: who comes second is refused.
    twin = head + """
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
    out = [lines(result) for result in run(first, twin, twin)]
    assert out[0] == ["there"]
    joined, refused = sorted(out[1:], key=len)
    assert joined == ["joined"]
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    host = socket.gethostname()
    texts = [re.sub(r"pid \d+", "pid N", line) for line in refused]
    texts[2] = texts[2].replace("but process 1 ", "but process 0 ")  # whoever was there
    assert texts == [
        f"{where}process 1 (host {host}, pid N) cannot join: process 1 (host {host}, pid N) has "
        "joined as process 1 already. What a process starts inherits its variables: for a program "
        "of its own, unset SHARDWISE_COORDINATOR_ADDRESS.",
        f"{where}process 3 (host {host}, pid N) cannot join: it says that there are 4 processes; "
        "the coordinator expects 3.",
        f"{where}process 2 (host {host}, pid N) cannot join: it runs shardwise 0.0 on jaxlib "
        f"{JAXLIB_VERSION}, but process 0 (host {host}, pid N) {VERSIONS}: all processes must run "
        "the same.",
        "joined at last",
    ]


def test_a_process_that_never_arrives_is_named_by_the_others():
    port = free_port()
    program = """
    attempt("127.0.0.1:{}", 3, {}, initialization_timeout=2)
    """
    results = run(*[HEAD + program.format(port, rank) for rank in (0, 1)])
    host = socket.gethostname()
    for result in results:
        [line] = lines(result)
        assert re.sub(r"pid \d+", "pid N", line) == (
            f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: process 2 of 3 did "
            f"not arrive within 2 s (`initialization_timeout`). Here are: process 0 (host {host}, "
            f"pid N), process 1 (host {host}, pid N)."
        )


@pytest.mark.turns(2)
def test_who_waits_less_than_the_others_is_told_who_is_missing():
    port = free_port()
    first, second = run(HEAD + f"""
    attempt("127.0.0.1:{port}", 3, 0, initialization_timeout=6)
    """, HEAD + f"""
    import time
    begin = time.monotonic()
    attempt("127.0.0.1:{port}", 3, 1, initialization_timeout=2)
    assert time.monotonic() - begin < 5
    """)
    host = socket.gethostname()
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    texts = [re.sub(r"pid \d+", "pid N", line) for line in (*lines(first), *lines(second))]
    here = [f"process {rank} (host {host}, pid N)" for rank in (0, 1)]
    assert texts == [
        f"{where}process 2 of 3 did not arrive within {n} s (`initialization_timeout`). Here are: "
        f"{here[0]}, {here[1]}." for n in (6, 2)
    ]


@pytest.mark.turns(2)
def test_who_comes_when_the_others_have_given_up_is_told_so():
    coordinator = Coordinator(
        "127.0.0.1", 0, 2, heartbeat=20, arrival=1, patience=30, deadline=60
    )
    place = {
        "SHARDWISE_COORDINATOR_ADDRESS": f"127.0.0.1:{coordinator.port}",
        "SHARDWISE_COORDINATOR_STARTED": "1", "SHARDWISE_NUM_PROCESSES": "2",
    }
    with socket.create_connection(("127.0.0.1", coordinator.port)) as first:
        about = {"rank": 0, "count": 2, "host": "h", "pid": 7, "versions": "v"}
        about |= {"left": 9, "timeout": 9}
        first.sendall(json.dumps({"op": "join", **about}).encode() + b"\n")
        refused = json.loads(first.makefile().readline())
        text = (
            "process 1 of 2 did not arrive within 1 s (`initialization_timeout`). Here are: "
            "process 0 (host h, pid 7)."
        )
        assert refused == {"op": "refused", "why": text}
        [late] = run(HEAD + """
    attempt()
    """, env=place | {"SHARDWISE_PROCESS_ID": "1"})
    coordinator.stop()
    host = socket.gethostname()
    assert re.sub(r"pid \d+\) cannot", "pid N) cannot", lines(late)[0]) == (
        f"RuntimeError: initialize: the coordinator at 127.0.0.1:{coordinator.port}: process 1 "
        f"(host {host}, pid N) cannot join: the others have given up: {text}"
    )


@pytest.mark.turns(2)
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
        "UserWarning: initialize: heartbeat_timeout_seconds=60 does not count: process 0 has "
        "started the coordinator with 30. Pass it there." in second
    )


@pytest.mark.turns(2)
def test_options_that_are_set_too_late():
    port = free_port()
    [(out, _)] = run(HEAD + f"""
    sw.config.update("wait_timeout_secs", 50.0)
    attempt("127.0.0.1:{port}", 1, 0)
    sw.config.update("wait_timeout_secs", 50.0)
    for name, value in {{"wait_timeout_secs": 5.0, "compare_programs": False}}.items():
        try:
            sw.config.update(name, value)
        except RuntimeError as error:
            print(error)
    """)
    text = (
        "{} cannot be set to {} any more: this process has joined others already. Set it before "
        "`initialize` and the first use of a device, or by the environment variable SHARDWISE_{}."
    )
    assert out.splitlines() == [
        "joined", text.format("wait_timeout_secs", "5.0", "WAIT_TIMEOUT_SECS"),
        text.format("compare_programs", "False", "COMPARE_PROGRAMS"),
    ]
    results = run_processes("""
    import shardwise as sw
    sw.config.update("wait_timeout_secs", 5.0)
    """, 1)
    assert (
        "UserWarning: wait_timeout_secs=5.0 does not count: `shardwise launch` has started the "
        "coordinator with its own. Pass --wait-timeout-secs there." in results[0].err
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
    b"GET / HTTP/1.1\r\n\r\n", b"\n", b"[]\n", b"1\n", b"null\n", b"{}\n",
    b'{"op": "join"}\n', b'{"op": "join", "rank": "x", "count": 2}\n',
    b'{"op": "join", "rank": [], "count": 2, "host": 1, "pid": 2, "versions": 3}\n',
    b'{"op": "join", "rank": -1, "count": 2, "host": 1, "pid": 2, "versions": 3}\n',
    b'{"op": "join", "rank": 1, "count": 2, "host": 1, "pid": 2, "versions": 3, "left": []}\n',
    b'{"op": "join", "rank": 0, "count": 2, "host": 1, "pid": 2, "versions": 3, "left": 1, '
    b'"timeout": 1}\n'
    b'{"op": "leave", "how": "failed", "text": "?", "line": ""}\n',
    b'{"op": "leave", "how": "failed", "text": "?", "line": ""}\n', b'{"op": "_closed"}\n',
    b"[" * 100_000 + b"\n", b"\xff\xfe\x00\n", b"x" * (1 << 16), os.urandom(1000) + b"\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


@pytest.mark.turns(2)
def test_garbage_does_not_disturb_the_coordinator():
    def disturb(running):
        path = f"/proc/{running[0].pid}/environ"
        environ = dict(v.split("=", 1) for v in Path(path).read_text().split("\0") if "=" in v)
        port = int(environ["SHARDWISE_COORDINATOR_ADDRESS"].rpartition(":")[2])
        while any(process.poll() is None for process in running):
            for data in GARBAGE:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                        sock.sendall(data)
                        sock.shutdown(socket.SHUT_WR)
                        sock.recv(1 << 12)
                        counted.append(data)
                except OSError:
                    continue
            time.sleep(0.05)

    counted = []
    results = run_processes("""
    import numpy as np
    import shardwise as sw
    import shardwise.numpy as jnp
    mesh = sw.make_mesh((sw.device_count(),), ("x",))
    for i in range(20):
        x = jnp.arange(8.0, device=sw.NamedSharding(mesh, sw.P("x")))
        assert float(jnp.sum(x + i)) == 28 + 8 * i
    print("done")
    """, 2, during=disturb)
    assert [r.out for r in results] == ["done\n"] * 2
    assert [r.err for r in results] == [""] * 2
    assert len(counted) > len(GARBAGE)


@pytest.mark.turns(2)
def test_a_worker_connects_as_soon_as_its_coordinator_is_there():
    port = free_port()
    began = []

    def start(running):
        time.sleep(2.5)  # the worker waits meanwhile
        coordinator = Coordinator(
            "127.0.0.1", port, 1, heartbeat=20, arrival=60, patience=30, deadline=60
        )
        began.append(time.time())
        running[0].wait(30)
        coordinator.release()

    [(out, err)] = run("""
    import time
    import shardwise as sw
    sw.distributed.initialize()
    print(time.time())
    """, during=start, env={
        "SHARDWISE_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "SHARDWISE_COORDINATOR_STARTED": "1",
        "SHARDWISE_NUM_PROCESSES": "1", "SHARDWISE_PROCESS_ID": "0",
    })
    seconds = float(out.splitlines()[-1]) - began[0]
    assert err == ""
    assert seconds < 2, f"{seconds:.2f} s"
    print(f"joined {seconds:.2f} s after its coordinator was there")


# ---------------------------------------------------------------------------------------- TLS

@pytest.mark.skipif(not HAS_TLS, reason=f"jaxlib {JAXLIB_VERSION} has no TLS between processes")
def test_tls_from_end_to_end(tmp_path):
    """All connections are by mutual TLS; who has no certificate of ours disturbs nobody."""
    certificates(tmp_path)
    port = free_port()

    def program(rank, body=""):
        return HEAD + f"""
    import numpy as np
    import shardwise.numpy as jnp
    files = {{f"mtls_{{n}}_file": f"{tmp_path}/{{n}}.pem" for n in ("cert", "key", "ca")}}
    sw.distributed.initialize("127.0.0.1:{port}", 2, {rank}, **files, initialization_timeout=60)
    {body}
    x = jnp.arange(8.0, device=sw.NamedSharding(sw.make_mesh((2,), ("x",)), sw.P("x")))
    print(float(jnp.sum(x)))
    """

    stranger = HEAD + f"""
    import ssl, socket, time
    def files(name):
        return {{f"mtls_{{n}}_file": f"{tmp_path}/{{name}}{{n}}.pem" for n in ("cert", "key")}}
    ca, foreign = "{tmp_path}/ca.pem", "{tmp_path}/foreign-ca.pem"
    def join(**how):
        attempt("127.0.0.1:{port}", 2, 1, initialization_timeout=30, **how)
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", {port})).close()
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
    join()
    join(**files("foreign-"), mtls_ca_file=ca)
    join(**files(""), mtls_ca_file=foreign)
    join(**files(""), mtls_ca_file=ca, mtls_peer_uri_prefix="spiffe://example.com/")
    with socket.create_connection(("127.0.0.1", {port})) as sock:
        sock.sendall(b'{{"op": "join", "rank": 1, "count": 2}}\\n')
        try:
            print(sock.recv(100)[:1] != b"{{")
        except ConnectionResetError:
            print(True)
    """ + textwrap.indent(textwrap.dedent(program(1)).partition("import sys\n")[2], "    ")
    first, second = [lines(result) for result in run(program(0), stranger)]
    assert first == ["28.0"]
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    closed = (
        "what listens there closed the connection{}: is it a coordinator, of the same release, "
        "with TLS if this process has TLS, and without it otherwise?"
    )
    # An alert may be lost when the connection is reset behind it.
    reset = where + closed.format(" (Connection reset by peer)")
    assert second[0] in (where + closed.format(""), reset)
    assert second[1] in (where + closed.format(" (TLS: tlsv1 alert unknown ca)"), reset)
    assert second[2] == where + "TLS: self-signed certificate in certificate chain"
    assert second[3] == (
        where + "TLS: its certificate has no URI that begins with 'spiffe://example.com/'"
    )
    assert second[4:] == ["True", "28.0"]


@pytest.mark.skipif(not HAS_TLS, reason=f"jaxlib {JAXLIB_VERSION} has no TLS between processes")
def test_tls_by_uris_in_certificates(tmp_path):
    """The names of hosts do not count then: the certificates are not for 127.0.0.2."""
    certificates(tmp_path)
    port = free_port()
    files = {n: str(tmp_path / f"{n}.pem") for n in ("cert", "key", "ca")}
    env = {f"SHARDWISE_MTLS_{n.upper()}_FILE": path for n, path in files.items()}
    env["SHARDWISE_MTLS_PEER_URI_PREFIX"] = "spiffe://example.org/"
    program = """
    at = "127.0.0.2:{}", 2, {}
    attempt(*at, mtls_peer_uri_prefix="spiffe://example.org/other/", initialization_timeout=5)
    attempt(*at)
    print(sw.device_count())
    """
    first = program.replace('attempt(*at, mtls', 'dict(')
    results = run(HEAD + first.format(port, 0), HEAD + program.format(port, 1), env=env)
    assert lines(results[0]) == ["joined", "2"]
    assert lines(results[1]) == [
        f"RuntimeError: initialize: the coordinator at 127.0.0.2:{port}: TLS: its certificate has "
        "no URI that begins with 'spiffe://example.org/other/'",
        "joined", "2",
    ]


def certificates(folder):
    """cert.pem and key.pem of ca.pem, for 127.0.0.1; the same with foreign-, of another authority.
    """
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=30)

    (folder / "names").write_text(
        "subjectAltName=IP:127.0.0.1,URI:spiffe://example.org/worker\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    for kind in ("", "foreign-"):
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *curve, "-keyout", f"{kind}ca.key", "-out", f"{kind}ca.pem",
                "-days", "2", "-subj", f"/CN={kind}authority",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl("req", *curve, "-keyout", f"{kind}key.pem", "-out", f"{kind}request",
                "-subj", f"/CN={kind}worker")
        openssl("x509", "-req", "-in", f"{kind}request", "-CA", f"{kind}ca.pem", "-CAkey",
                f"{kind}ca.key", "-CAcreateserial", "-out", f"{kind}cert.pem", "-days", "2",
                "-extfile", "names")
