"""Gloo's connections between the CPU devices of processes: how to identify and break them.

Gloo waits forever for a process that itself waits for a lost one, and its waits cannot be
cancelled. It does notice that a connection is shut down; so a wait is ended by shutting down all of
Gloo's connections. It listens on one port in each process, which all publish: a connection is
Gloo's if one of its ends is such a port.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from jaxlib import _jax

_KEY = "shardwise/gloo/"


class _Ports:
    """The ports on which Gloo listens, in all processes."""

    known: frozenset[int] = frozenset()


def gloo(client: _jax.DistributedRuntimeClient, index: int, host: str) -> _jax.CpuCollectives:
    """Gloo collectives of this process, listening on an address of this machine."""
    before = listening_ports()
    collectives = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname=host)
    new = listening_ports() - before
    port = new.pop() if len(new) == 1 else 0
    client.key_value_set(f"{_KEY}{index}", str(port))
    return collectives


def service(address: str, count: int, **options: Any) -> _jax.DistributedRuntimeService:
    """XLA's coordination service at an address, which survives the loss of processes."""
    return _jax.get_distributed_runtime_service(address, count, recoverable=True, **options)


def tls_options(tls: dict[str, str] | None) -> dict[str, str]:
    """The options of XLA's service and its clients for TLS files."""
    if not tls:
        return {}
    prefix = {"mtls_peer_uri_prefix": tls["uri_prefix"]} if tls.get("uri_prefix") else {}
    return {f"mtls_{name}_file": tls[name] for name in ("cert", "key", "ca")} | prefix


def why_no_mpi() -> str:
    """The missing requirement for MPI between CPU devices; "" if none is known.

    XLA calls MPI through MPItrampoline, which ends the process if it finds no library.
    """
    path = os.environ.get("MPITRAMPOLINE_LIB")
    if not hasattr(_jax, "make_mpi_collectives"):
        return "this jaxlib was built without MPI"
    if not path:
        return "the environment variable MPITRAMPOLINE_LIB is not set"
    return "" if os.path.isfile(path) else f"MPITRAMPOLINE_LIB is {path!r}, which is not a file"


def mpi() -> _jax.CpuCollectives:
    """MPI collectives, using the library that `MPITRAMPOLINE_LIB` names."""
    collectives = _jax.make_mpi_collectives()
    collectives.Init()
    return collectives


def _connections() -> list[Any]:
    import psutil

    process = psutil.Process()
    return process.net_connections(kind="tcp")


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    return {c.laddr.port for c in _connections() if c.status == "LISTEN"}


def learn_ports(client: _jax.DistributedRuntimeClient) -> None:
    """Fetches the Gloo ports of other processes, once all have started their devices.

    Later, when connections must be broken, the service may be gone.
    """
    found = {int(port) for _, port in client.key_value_dir_get(_KEY)}
    _Ports.known = frozenset(found - {0})


def break_connections() -> int:
    """Shuts down Gloo's connections in this process, so that waits on them fail.

    Returns their number.
    """
    import socket  # not needed in single-process programs

    count = 0
    for c in _connections():
        ends = {c.laddr.port, c.raddr.port if c.raddr else 0}
        if c.status != "LISTEN" and c.fd >= 0 and not ends.isdisjoint(_Ports.known):
            with suppress(OSError):
                sock = socket.socket(fileno=os.dup(c.fd))
                sock.shutdown(socket.SHUT_RDWR)
                sock.close()
                count += 1
    return count
