"""The coordinator: the rendezvous process of a multi-process program.

It is started as a script by process 0 or by the launcher, and outlives both, so that the other
processes can still report which one died. It runs XLA's coordination service, through which XLA's
own transports (Gloo, NCCL) find their peers, and the `coordinator_server`, which tracks the
processes that are alive.

The first line of standard input has the parameters; later lines name processes that have ended with
status 0; end of file means that the parent is gone: then the coordinator ends with the last
connection. It does the same after SIGTERM, since XLA's client would abort every process that is
still connected and may be about to save its state. The coordinator must start fast, so it imports
only the modules of shardwise that it needs; asyncio once it listens, since its parent continues
then; and jaxlib while processes are already joining.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Any

    from shardwise._src.coordination.coordinator_server import CoordinatorServer

PACKAGE = "shardwise._src"

if __name__ == "__main__":  # without the public modules, which are slow to import
    package = sys.modules[PACKAGE.partition(".")[0]] = type(sys)("shardwise")
    here = os.path.realpath(__file__)
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(here)))]


def listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6 and host == "::":
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def tls_context(asked: dict[str, Any]) -> ssl.SSLContext | None:
    """A server context that accepts only peers with a certificate of the given authority."""
    files = asked.get("tls")
    if not files:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(files["cert"], files["key"])
    context.load_verify_locations(files["ca"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def start_service(board: CoordinatorServer, asked: dict[str, Any]) -> None:
    """Starts XLA's service on a separate port, which the server sends to joining processes."""
    try:
        transports = importlib.import_module(f"{PACKAGE}.runtime.transports")  # a slow import
        host = f"[{asked['host']}]" if ":" in asked["host"] else asked["host"]
        before = transports.listening_ports()
        service = transports.service(
            f"{host}:0",
            asked["count"],
            shutdown_timeout=5,
            heartbeat_timeout=asked["service_timeout"],
            cluster_register_timeout=asked["service_timeout"],
            **transports.tls_options(asked.get("tls")),
        )
        (port,) = transports.listening_ports() - before
    except BaseException as error:
        service, port = error, 0
    board.loop.call_soon_threadsafe(board.service_is, service, port)


def allow_connections() -> None:
    """Raises the limit of open files to the maximum: each process has two connections."""
    try:
        import resource  # not on all systems

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, OSError, ValueError):
        return


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program only
    parent = open(0, "rb", buffering=0)  # noqa: SIM115 (unbuffered: the loop looks at it)
    asked = json.loads(parent.readline())
    sys.path[:] = asked["path"]
    allow_connections()
    try:
        listener = listening(asked["host"], asked["port"])
        tls = tls_context(asked)
    except OSError as error:
        print(json.dumps({"error": f"{error.strerror or error}"}), flush=True)
        return
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until they have handlers
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    os.close(1)  # readers of the parent's output must not wait for this process
    server = importlib.import_module(f"{PACKAGE}.coordination.coordinator_server")  # a slow import
    board: CoordinatorServer = server.CoordinatorServer(asked)
    for number in signals:
        signal.signal(number, board.orphan)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    board.start_service = threading.Thread(
        target=start_service, args=(board, asked), name="shardwise-service", daemon=True
    ).start
    board.run(listener, tls, parent)
    os._exit(0)  # without the service's slow shutdown


if __name__ == "__main__":
    main()
