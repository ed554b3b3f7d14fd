"""`initialize` and `shutdown`: this process joins the others of its program, and leaves them."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardwise._src.base import config
from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.base.warn import warn
from shardwise._src.distributed.channel import Channel, Refused, connect, joined
from shardwise._src.distributed.cluster import NAMES, Place, detected
from shardwise._src.distributed.watch import Watch, line_raised, say
from shardwise._src.runtime import backend, processes
from shardwise._src.runtime.in_flight import CPU_WINDOW
from shardwise._version import __version__

_log = logging.getLogger("shardwise.distributed")


class Tls(NamedTuple):
    """The files for TLS between processes, and what the URI names of peers must begin with."""

    cert: str
    key: str
    ca: str
    uri_prefix: str | None


@dataclass(frozen=True)
class Here:
    """This process, once it has joined.

    members: of each process, its host and pid.
    """

    index: int
    count: int
    cluster: str
    address: str
    watch: Watch
    channel: Channel
    coordinator: processes.Coordinator | None
    members: list[dict[str, Any]]


class _State:
    here: Here | None = None
    hooked = False


def is_initialized() -> bool:
    """Whether this process has joined others (`initialize`)."""
    return _State.here is not None


def here() -> Here | None:
    """What is known of this process, once it has joined others."""
    return _State.here


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: float = 300,
    heartbeat_timeout_seconds: float = 20,
    shutdown_timeout_seconds: float = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
    mtls_cert_file: str | None = None,
    mtls_key_file: str | None = None,
    mtls_ca_file: str | None = None,
    mtls_peer_uri_prefix: str | None = None,
    verify_secure_credentials: bool | None = None,
) -> None:
    """Joins the other processes of this program; returns when all are there.

    What is not given is found out from the cluster that started the process: `shardwise launch`,
    Slurm, Open MPI, MPICH and what else speaks PMI, Kubernetes, torchrun. Afterwards `devices()`
    are those of all processes, and arrays may be on any. Must come before the first use of a
    device.

    Args:
      coordinator_address: host:port at which process 0 starts the coordinator.
      num_processes, process_id: how many there are, and the number of this one, from 0.
      local_device_ids: the GPUs that this process is to use, by number; None for all, or what the
        cluster says. CPU devices are not chosen so: see `num_cpu_devices`.
      cluster_detection_method: the one cluster to ask: shardwise, slurm, ompi, pmi, k8s, torchrun
        or mpi4py; "deactivate" for none.
      initialization_timeout: seconds to wait for the coordinator and for all processes.
      heartbeat_timeout_seconds: a process that gives no sign of life for so long counts as lost.
      shutdown_timeout_seconds: how long to wait for programs in flight at the end.
      coordinator_bind_address: host:port where the coordinator listens; by default at loopback if
        coordinator_address is there, and else at that port of all addresses.
      partition_index: of this process's devices; slice_index is its old name.
      mtls_cert_file, mtls_key_file, mtls_ca_file: PEM files; with them all connections to the
        coordinator are by mutual TLS. jaxlib has it from 0.11 on.
      mtls_peer_uri_prefix: of the names in peers' certificates, in place of the host's name.
      verify_secure_credentials: whether to refuse to start without TLS.

    Raises:
      RuntimeError: called twice, or after devices were started; or other processes do not come.
      ValueError: what is needed is neither given nor found, or contradicts itself.
      TimeoutError: the coordinator, or some process, is not there in time.
    """
    _refuse_late()
    tls = _tls(mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix,
               bool(verify_secure_credentials))
    cluster, place = _place(
        coordinator_address, num_processes, process_id, local_device_ids, cluster_detection_method
    )
    host, port = _split("coordinator_address", place.address or "")
    for name, value in (
        ("initialization_timeout", initialization_timeout),
        ("heartbeat_timeout_seconds", heartbeat_timeout_seconds),
        ("shutdown_timeout_seconds", shutdown_timeout_seconds),
    ):
        if not value > 0:
            raise ValueError(f"initialize: {name} must be positive; got {value!r}.")
    deadline = time.monotonic() + initialization_timeout
    coordinator = None
    if place.index == 0 and not place.started:
        coordinator = start_coordinator(
            host, port, coordinator_bind_address, place.count or 1, tls,
            heartbeat=heartbeat_timeout_seconds, arrival=initialization_timeout,
        )
    try:
        channel, answer = _joined(host, port, place, deadline, tls)
    except BaseException:
        if coordinator is not None:
            coordinator.release()
        raise
    _enter(cluster, place, host, port, channel, answer, coordinator, deadline, tls,
           partition_index if partition_index is not None else slice_index)
    _at_exit(shutdown_timeout_seconds)


def _refuse_late() -> None:
    if _State.here is not None:
        raise RuntimeError(
            f"initialize was called before: this is process {_State.here.index} of "
            f"{_State.here.count}. Call it once, or `shardwise.distributed.shutdown()` before."
        )
    if backend.is_started():
        raise RuntimeError(
            "initialize must be called before devices are used, and they are started already: by "
            "an array, or by a call such as `devices()`. Call it at the program's beginning."
        )


def _place(
    address: str | None, count: int | None, index: int | None, devices: Any, method: str | None
) -> tuple[str, Place]:
    """What is given, and what the cluster says of the rest."""
    given = (address, count, index)
    ids = (devices,) if isinstance(devices, int) else None if devices is None else tuple(devices)
    if method is None and None not in given:
        cluster, found = "", Place()
    else:
        cluster, found = detected(method)
    env = os.environ
    address = address or env.get("JAX_COORDINATOR_ADDRESS") or found.address
    place = replace(
        found,
        address=address,
        count=found.count if count is None else count,
        index=found.index if index is None else index,
        local_devices=found.local_devices if ids is None else ids,
        started=found.started and address == found.address,
    )
    missing = [
        name for name, value in zip(
            ("coordinator_address", "num_processes", "process_id"),
            (place.address, place.count, place.index), strict=True,
        ) if value is None
    ]
    if missing:
        source = f"{cluster!r} does not say" if cluster else "no cluster was found that says"
        raise ValueError(
            f"initialize: {', '.join(missing)}: not given, and {source}. Pass what is missing, or "
            "start the program by `shardwise launch -n 4 program.py`. Known clusters are "
            f"{', '.join(NAMES)}; `shardwise doctor` shows what is found."
        )
    assert place.count is not None and place.index is not None
    if place.count < 1 or not 0 <= place.index < place.count:
        raise ValueError(
            f"initialize: process_id must be from 0 to num_processes - 1; got process_id="
            f"{place.index} and num_processes={place.count}."
        )
    return cluster, place


def _split(name: str, address: str) -> tuple[str, int]:
    """Host and port; an IPv6 address is in brackets."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 1 << 16):
        raise ValueError(
            f"initialize: {name} must be host:port, as in '10.0.0.1:1234' or '[::1]:1234'; got "
            f"{address!r}."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _tls(cert: Any, key: Any, ca: Any, prefix: Any, demanded: bool) -> Tls | None:
    given = {"mtls_cert_file": cert, "mtls_key_file": key, "mtls_ca_file": ca}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        if demanded:
            raise ValueError(
                "initialize: verify_secure_credentials asks for TLS: pass mtls_cert_file, "
                "mtls_key_file and mtls_ca_file."
            )
        return None
    if missing:
        raise ValueError(
            f"initialize: {', '.join(missing)} missing: TLS needs the certificate of this process, "
            "its key, and the authority that peers' certificates are signed by."
        )
    if not processes.HAS_TLS:
        raise RuntimeError(
            f"initialize: jaxlib {backend.JAXLIB_VERSION} has no TLS between processes; 0.11 and "
            "later have (Python 3.12 and later)."
        )
    for name, path in given.items():
        if not os.path.isfile(path):
            raise ValueError(f"initialize: {name}: there is no file {path!r}.")
    return Tls(str(cert), str(key), str(ca), prefix)


def start_coordinator(
    host: str, port: int, bind: str | None, count: int, tls: Tls | None, *,
    heartbeat: float, arrival: float,
) -> processes.Coordinator:
    """Starts the coordinator on this machine.

    Raises:
      RuntimeError: its address cannot be listened at.
    """
    listen_host, listen_port = host, port
    if bind is not None:
        listen_host, listen_port = _split("coordinator_bind_address", bind)
    elif host == "localhost":
        listen_host = "127.0.0.1"
    elif not is_loopback(host):
        listen_host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    if not is_loopback(listen_host) and tls is None:
        warn(
            f"the coordinator listens at {listen_host}:{listen_port}, beyond this machine, without "
            "TLS: whoever reaches the port can join or disturb the program. Keep the port to a "
            "trusted network, or pass mtls_cert_file, mtls_key_file and mtls_ca_file (jaxlib 0.11 "
            "and later). SECURITY.md says more."
        )
    try:
        return processes.Coordinator(
            listen_host, listen_port, count, heartbeat=heartbeat, arrival=arrival,
            patience=config.wait_report_secs.value, deadline=config.wait_timeout_secs.value,
            tls=None if tls is None else tls._asdict(),
        )
    except OSError as error:
        raise RuntimeError(
            f"initialize: the coordinator cannot listen at {listen_host}:{listen_port}: {error}. "
            "Is another program at this port, or the address not of this machine?"
        ) from None


def _joined(
    host: str, port: int, place: Place, deadline: float, tls: Tls | None
) -> tuple[Channel, dict[str, Any]]:
    """The connection to the coordinator, and what it says once all are there."""
    where = f"the coordinator at {host}:{port}"
    seconds = deadline - time.monotonic()
    try:
        channel = connect(host, port, deadline, _context(tls), host)
    except TimeoutError as error:
        raise TimeoutError(
            f"initialize: process {place.index} of {place.count} did not reach {where} within "
            f"{seconds:.0f} s (`initialization_timeout`): {error}. Process 0 starts it there: is "
            "that running, and can this machine reach the address?"
        ) from None
    except Refused as error:
        raise RuntimeError(f"initialize: {where} was not joined: {error}") from None
    about = {
        "rank": place.index, "count": place.count, "host": socket.gethostname(),
        "pid": os.getpid(),
        "versions": f"shardwise {__version__} on jaxlib {backend.JAXLIB_VERSION}",
    }

    def note(waited: float) -> None:
        say(f"process {place.index} has waited for {waited:.0f} s for the other processes")

    try:
        return channel, joined(channel, about, deadline + 5, note)
    except Refused as error:
        channel.close()
        raise RuntimeError(f"initialize: {error}") from None
    except BaseException:
        channel.close()
        raise


def _context(tls: Tls | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(tls.cert, tls.key)
    if tls.uri_prefix is not None:
        context.check_hostname = False
    return context


def _enter(
    cluster: str, place: Place, host: str, port: int, channel: Channel, answer: dict[str, Any],
    coordinator: processes.Coordinator | None, deadline: float, tls: Tls | None,
    partition: int | None,
) -> None:
    assert place.index is not None and place.count is not None
    watch = Watch(channel, place.index, place.count, config.compare_programs.value)
    if proxies := processes.bypass_proxies(host):
        _log.info("the proxies of %s are not used for %s", ", ".join(proxies), host)
    name = f"[{host}]" if ":" in host else host
    client = processes.connected(
        f"{name}:{answer['port']}", place.index, seconds=deadline - time.monotonic(),
        tls=None if tls is None else tls._asdict(),
    )
    mine = host if is_loopback(host) else _address_towards(host, port)
    mine = "127.0.0.1" if mine == "localhost" else mine
    transport = config.cpu_collectives_implementation.value
    link = processes.Link(
        client, place.index, place.count, mine, transport, place.local_devices, partition
    )
    processes.join(link, watch)
    _State.here = Here(
        place.index, place.count, cluster, f"{host}:{port}", watch, channel, coordinator,
        answer["members"],
    )
    _log.info(
        "process %d of %d (%s) has joined at %s:%d", place.index, place.count,
        cluster or "as given", host, port,
    )


def _address_towards(host: str, port: int) -> str:
    """The address of this machine on the way to another, under which that one finds it."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.connect(address)
        return sock.getsockname()[0]


# ----------------------------------------------------------------------------------- the end


def shutdown() -> None:
    """Leaves the other processes. What they still need of this one must have been computed."""
    state, _State.here = _State.here, None
    if state is None:
        raise RuntimeError("shutdown: this process has not joined others (`initialize`).")
    _leave(state, False)


def _leave(state: Here, failed: bool) -> None:
    state.watch.leave(failed)
    processes.part()
    if state.coordinator is not None:
        state.coordinator.release()


def _at_exit(seconds: float) -> None:
    """Says good-bye when the program ends, and says of what if it fails."""
    if _State.hooked:
        return
    _State.hooked = True
    failure: list[str] = []
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        failure.append(f"{kind.__name__}: {error}")
        consequence = isinstance(error, ProcessFailureError)
        _announce(failure[0], trace, consequence)

    sys.excepthook = note

    @atexit.register
    def end() -> None:
        state, _State.here = _State.here, None
        if state is not None:
            if not failure and not state.watch.failures:
                _finish_launches(seconds)
            _leave(state, bool(failure))


def _finish_launches(seconds: float) -> None:
    """Waits for programs in flight: other processes need this one's part of them."""
    thread = threading.Thread(target=CPU_WINDOW.drain, daemon=True)
    thread.start()
    thread.join(seconds)


def _announce(failure: str, trace: Any, consequence: bool) -> None:
    """Tells the others at once why this process is about to end.

    consequence: whether it is because of another process, which all know of.
    """
    state = _State.here
    if state is not None:
        state.watch.announce(failure, line_raised(trace), consequence)


