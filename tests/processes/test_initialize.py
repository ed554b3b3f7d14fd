"""`initialize` in one process: what it rejects, what it waits for, and its messages."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import HAS_TLS
from tests.helpers.joining import HEAD, free_port, lines, run

pytestmark = pytest.mark.processes

ADDRESSES = ("here", "here:", ":12", "::1:12", "a:0", "a:65536", "a:-1", "[::1]")
TIMES = ("initialization_timeout", "heartbeat_timeout_seconds", "shutdown_timeout_seconds")


def test_arguments_that_cannot_be():
    [result] = run(
        HEAD
        + f"""
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
    """
    )
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
        "ValueError: initialize: process_id: missing, and no cluster was detected that specifies "
        "it. Pass the missing arguments, or start the program with `shardwise launch -n 4 "
        "program.py`. Known clusters: shardwise, torchrun, ompi, pmi, slurm, k8s, mpi4py. "
        "`shardwise doctor` shows what is detected.",
    ]


def test_files_for_tls_that_cannot_be(tmp_path):
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    cert, key, ca = (str(tmp_path / name) for name in ("cert", "key", "ca"))
    [result] = run(
        HEAD
        + f"""
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
    """
    )
    missing = (
        "ValueError: initialize: {} missing: TLS needs the certificate of this process, its key, "
        "and the certificate authority of its peers."
    )
    unsafe = (
        "ValueError: initialize: verify_secure_credentials requires TLS: pass mtls_cert_file, "
        "mtls_key_file and mtls_ca_file."
    )
    without = (
        f"RuntimeError: initialize: jaxlib {JAXLIB_VERSION} does not support TLS between "
        "processes; 0.11.2 and later do (Python 3.12 and later)."
    )
    assert lines(result) == [
        missing.format("mtls_key_file, mtls_ca_file"),
        unsafe,
        unsafe,
        missing.format("mtls_cert_file, mtls_ca_file"),
        *(
            [
                "ValueError: initialize: mtls_key_file: there is no file 'nowhere.pem'.",
                "ValueError: initialize: mtls_peer_uri_prefix must end with '/', because longer names "
                "would match otherwise; got 'spiffe://example.org'.",
            ]
            if HAS_TLS
            else [without, without]
        ),
    ]


def test_mpi_for_collectives_of_the_cpu_without_its_wrapper():
    """MPItrampoline itself would terminate the process."""
    [result] = run(
        HEAD
        + """
    import os
    sw.config.update("cpu_collectives_implementation", "mpi")
    attempt("127.0.0.1:1234", 1, 0)
    os.environ["MPITRAMPOLINE_LIB"] = "/nowhere/libmpiwrapper.so"
    attempt("127.0.0.1:1234", 1, 0)
    """
    )
    text = (
        "RuntimeError: initialize: cpu_collectives_implementation is 'mpi', but {}. XLA calls MPI "
        "through MPItrampoline: build MPIwrapper (https://github.com/eschnett/MPIwrapper) with the "
        "MPI that starts this program, and set MPITRAMPOLINE_LIB to its libmpiwrapper.so; or use "
        "'gloo', which has no requirements."
    )
    assert lines(result) == [
        text.format("the environment variable MPITRAMPOLINE_LIB is not set"),
        text.format("MPITRAMPOLINE_LIB is '/nowhere/libmpiwrapper.so', which is not a file"),
    ]


def test_twice_and_too_late():
    port = free_port()
    [result] = run(
        HEAD
        + f"""
    one = "127.0.0.1:{port}", 1, 0
    attempt(*one)
    attempt(*one)
    print(sw.distributed.is_initialized(), sw.process_count())
    sw.distributed.shutdown()
    attempt(*one)
    print(sw.distributed.is_initialized())
    """
    )
    assert lines(result) == [
        "joined",
        "RuntimeError: initialize was already called: this is process 0 of 1. Call it once, or "
        "call `shardwise.distributed.shutdown()` first.",
        "True 1",
        "RuntimeError: initialize must be called before devices are used, but they have already "
        "been started, by an array or by a call such as `devices()`. Call it at the start of the "
        "program.",
        "False",
    ]


def test_a_port_that_is_taken_and_an_address_where_nobody_is():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        [result] = run(
            HEAD
            + f"""
    attempt("127.0.0.1:{port}", 1, 0)
    attempt("127.0.0.1:{free}", 2, 1, initialization_timeout=1)
    attempt("no-such-host.invalid:{free}", 2, 1, initialization_timeout=1)
    # Process 0 listens at its own machine, wherever that is.
    attempt("127.0.0.9:{free}", 1, 0, initialization_timeout=1,
            coordinator_bind_address="127.0.0.1:{free}")
    """
        )
    found = lines(result)
    nobody = (
        "TimeoutError: initialize: process 1 of 2 did not reach the coordinator at {} within 1 s "
        "(`initialization_timeout`): {}. Process 0 starts it there: is process 0 running, and can "
        "this machine reach the address?"
    )
    assert found[0] == (
        f"RuntimeError: initialize: the coordinator cannot listen at 127.0.0.1:{port}: Address "
        "already in use. Does another program use this port, or is another process also started as "
        "process 0, or does the address belong to another machine?"
    )
    assert found[1] == nobody.format(f"127.0.0.1:{free}", "Connection refused")
    unknown = ("Name or service not known", "Temporary failure in name resolution")
    assert found[2] in [nobody.format(f"no-such-host.invalid:{free}", why) for why in unknown]
    assert found[3] == (
        "TimeoutError: initialize: process 0 of 1 did not reach the coordinator at "
        f"127.0.0.9:{free} within 1 s (`initialization_timeout`): Connection refused. This process "
        "started it, on this machine: is coordinator_address the address of another machine? It "
        "must be the address of the machine of process 0."
    )


class Page(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_a_stranger_at_the_port():
    """A web server answers with a page; other servers close the connection, or send nothing."""
    server = HTTPServer(("127.0.0.1", 0), Page)
    silent = socket.create_server(("127.0.0.1", 0))
    closing = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=lambda: closing.accept()[0].close(), daemon=True).start()
    ports = [s.getsockname()[1] for s in (server.socket, silent, closing)]
    try:
        [result] = run(
            HEAD
            + f"""
    attempt("127.0.0.1:{ports[0]}", 2, 1)
    attempt("127.0.0.1:{ports[1]}", 2, 1, initialization_timeout=1)
    attempt("127.0.0.1:{ports[2]}", 2, 1)
    """
        )
    finally:
        server.shutdown()
        server.server_close()
        silent.close()
        closing.close()
    page, silence, closed = lines(result)
    where = "initialize: the coordinator at 127.0.0.1:"
    assert page.startswith(
        f"RuntimeError: {where}{ports[0]}: the program listening there is not a coordinator: "
        "it sent '"
    )
    assert silence == (
        f"TimeoutError: {where}{ports[1]} did not answer within 1 s (`initialization_timeout`): "
        "does another program use its port?"
    )
    assert closed.startswith(
        f"RuntimeError: {where}{ports[2]}: the program listening there closed the connection"
    )


def test_proxies_are_bypassed_and_noted():
    port, dead = free_port(), free_port()
    proxy = f"http://127.0.0.1:{dead}"
    [result] = run(
        HEAD
        + f"""
    import logging
    logging.basicConfig(level="INFO", stream=sys.stdout, format="%(name)s: %(message)s")
    attempt("127.0.0.1:{port}", 1, 0)
    """,
        env={"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "example.org"},
    )
    noted, joined, done = [line for line in lines(result) if "jaxlib" not in line]
    assert noted == (
        "shardwise.distributed: the proxies of https_proxy, http_proxy are not used for 127.0.0.1"
    )
    assert joined.startswith("shardwise.distributed: process 0 of 1 (as given) has joined at ")
    assert done == "joined"


def test_a_coordinator_beyond_loopback_without_tls_warns_once():
    port = free_port()
    [(out, err)] = run(
        HEAD
        + f"""
    attempt("127.0.0.1:{port}", 1, 0, coordinator_bind_address="0.0.0.0:{port}")
    """
    )
    assert out.splitlines()[-1] == "joined"
    assert err.count("UserWarning") == 1
    assert (
        f"UserWarning: the coordinator listens at 0.0.0.0:{port}, reachable from other machines, "
        "without TLS: anyone who can reach the port can join or disrupt the program. Restrict the "
        "port to a trusted network, or pass mtls_cert_file, mtls_key_file and mtls_ca_file (jaxlib "
        "0.11.2 and later). See SECURITY.md." in err
    )
