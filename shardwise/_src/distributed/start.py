"""`initialize` and `shutdown`: this process joins the others of its program, and leaves them."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.base import config
from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.base.warn import warn
from shardwise._src.distributed import settings
from shardwise._src.distributed.channel import Channel, Refused, connect, joined
from shardwise._src.distributed.cluster import Place, at
from shardwise._src.distributed.initialize_arguments import complete, partition, resolve, variable
from shardwise._src.distributed.log import say
from shardwise._src.distributed.stacks import in_a_line, line_raised, users_frames
from shardwise._src.distributed.tls import Tls, tls_context, tls_files
from shardwise._src.distributed.watch import Watch
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.runtime import backend, processes, threads
from shardwise._src.runtime import shutdown as runtime_shutdown
from shardwise._src.runtime.in_flight import CPU_WINDOW
from shardwise._version import __version__

_log = logging.getLogger("shardwise.distributed")
HEARTBEAT = 20  # seconds, by default
SETTLED_WITHIN = 60.0  # seconds, at the end of a process that has only just started


@dataclass(frozen=True)
class Here:
    """This process, once it has joined.

    members: the host and pid of each process.
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
    patience = 300.0  # seconds to wait for programs in flight at the end


def _forget() -> None:
    """For a child of `os.fork`, which is not a member and sends nothing for its parent."""
    state, _State.here = _State.here, None
    if state is not None:
        state.channel.drop()
        if state.coordinator is not None:
            state.coordinator.release()  # it ends with the parent, not with this child


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def is_initialized() -> bool:
    """Whether this process has joined others (`initialize`)."""
    return _State.here is not None


def here() -> Here | None:
    """The membership of this process, once it has joined others; else None."""
    return _State.here


@hides_frames
def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: float = 300,
    heartbeat_timeout_seconds: float = HEARTBEAT,
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
    """Joins the other processes of this program; returns when all have joined.

    Missing arguments are detected from the cluster that started the process: `shardwise launch`,
    Slurm, Open MPI, MPICH and other implementations of PMI, Kubernetes, torchrun. Afterwards,
    `devices()` are those of all processes, and arrays may be on any of them. Must be called before
    the first use of a device.

    Args:
      coordinator_address: host:port at which process 0 starts the coordinator.
      num_processes, process_id: the number of processes, and the index of this one, from 0.
      local_device_ids: the indices of the GPUs that this process uses; None for all, or for the
        choice of the cluster. CPU devices are not chosen this way: see `num_cpu_devices`.
        Arguments up to here may also be environment variables: SHARDWISE_NUM_PROCESSES, or
        JAX_NUM_PROCESSES, and so on; an argument takes precedence over a variable, and a variable
        over the cluster.
      cluster_detection_method: the only cluster to detect: shardwise, slurm, ompi, pmi, k8s,
        torchrun or mpi4py; "deactivate" for none.
      initialization_timeout: seconds to wait for the coordinator and for all processes.
      heartbeat_timeout_seconds: a process that sends no heartbeat for this long counts as lost.
        Only the value with which process 0 or `shardwise launch` started the coordinator matters.
      shutdown_timeout_seconds: how long to wait for programs in flight at the end.
      coordinator_bind_address: host:port where the coordinator listens; by default on loopback if
        coordinator_address is a loopback address, else on that port of all addresses. Also
        SHARDWISE_COORDINATOR_BIND_ADDRESS.
      partition_index: the partition of this process's devices; slice_index is its old name.
      mtls_cert_file, mtls_key_file, mtls_ca_file: PEM files; with them all connections to the
        coordinator use mutual TLS. Requires jaxlib 0.11.2 or later. These and the next two are also
        options: see `config`.
      mtls_peer_uri_prefix: prefix of the URI names in peers' certificates, instead of the host
        name.
      verify_secure_credentials: whether to fail without TLS; the option is
        distributed_verify_secure_credentials.

    Raises:
      RuntimeError: it was called twice, or after devices were started; or others do not join.
      ValueError: a required value is missing, or values are inconsistent.
      TimeoutError: the coordinator or some process is not available in time.
      ProcessFailureError: some process ended before it joined.
    """
    _reject_late()
    tls = tls_files(
        mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix, verify_secure_credentials
    )
    found = resolve(
        coordinator_address, num_processes, process_id, local_device_ids, cluster_detection_method
    )
    place = complete(found)
    host, port = address_of("initialize: coordinator_address", place.address or "")
    for name, value in (
        ("initialization_timeout", initialization_timeout),
        ("heartbeat_timeout_seconds", heartbeat_timeout_seconds),
        ("shutdown_timeout_seconds", shutdown_timeout_seconds),
    ):
        if not value > 0:
            raise ValueError(f"initialize: {name} must be positive; got {value!r}.")
    processes.check_transport(config.cpu_collectives_implementation.value)
    part = partition(partition_index, slice_index, os.environ)
    deadline = time.monotonic() + initialization_timeout
    coordinator = None
    if place.index == 0 and not place.started:
        coordinator = start_coordinator(
            host,
            port,
            coordinator_bind_address,
            place.count or 1,
            tls,
            heartbeat=heartbeat_timeout_seconds,
            arrival=initialization_timeout,
        )
    try:
        channel, answer = _joined(host, port, place, initialization_timeout, deadline, tls)
    except BaseException:
        if coordinator is not None:
            coordinator.release()
        raise
    if heartbeat_timeout_seconds not in (HEARTBEAT, answer["heartbeat"]):
        starter = "`shardwise launch`" if place.started else "process 0"
        warn(
            f"initialize: heartbeat_timeout_seconds={heartbeat_timeout_seconds:g} has no effect: "
            f"{starter} has started the coordinator with {answer['heartbeat']:g}. Pass it there."
        )
    _enter(found.cluster, place, host, port, channel, answer, coordinator, deadline, tls, part)
    _State.patience = shutdown_timeout_seconds
    settings.guard_all(is_initialized)
    _at_exit()


def _reject_late() -> None:
    if _State.here is not None:
        raise RuntimeError(
            f"initialize was already called: this is process {_State.here.index} of "
            f"{_State.here.count}. Call it once, or call `shardwise.distributed.shutdown()` first."
        )
    if backend.is_started():
        raise RuntimeError(
            "initialize must be called before devices are used, but they have already been "
            "started, by an array or by a call such as `devices()`. Call it at the start of the "
            "program."
        )
    try:
        threads.reserve()
    except RuntimeError as error:
        raise RuntimeError(
            f"initialize needs threads, but Python cannot start any: {error}. Call it at the start "
            "of the program."
        ) from None


def address_of(name: str, address: str) -> tuple[str, int]:
    """Host and port; an IPv6 address is in brackets."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not (colon and host.strip("[]") and 0 < number < 1 << 16 and (bracketed or ":" not in host)):
        raise ValueError(
            f"{name} must be host:port, as in '10.0.0.1:1234' or '[::1]:1234', with a port "
            f"from 1 to 65535; got {address!r}."
        )
    return host.removeprefix("[").removesuffix("]"), number


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def listen_host(host: str) -> str:
    """The address to listen on so that others can reach this machine by the name `host`."""
    if host == "localhost":
        return "127.0.0.1"
    if is_loopback(host):
        return host
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def warn_of_strangers(who: str, host: str, port: int) -> None:
    """Warns if any machine can connect."""
    if not is_loopback(host):
        warn(
            f"{who} listens at {at(host, port)}, reachable from other machines, without TLS: "
            "anyone who can reach the port can join or disrupt the program. Restrict the port to a "
            "trusted network, or pass mtls_cert_file, mtls_key_file and mtls_ca_file (jaxlib "
            "0.11.2 and later). See SECURITY.md."
        )


def start_coordinator(
    host: str,
    port: int,
    bind: str | None,
    count: int,
    tls: Tls | None,
    *,
    heartbeat: float,
    arrival: float,
) -> processes.Coordinator:
    """Starts the coordinator on this machine.

    Raises:
      RuntimeError: it cannot listen on its address.
    """
    listen_at, listen_port = listen_host(host), port
    bind = bind or os.environ.get(variable(os.environ, "COORDINATOR_BIND_ADDRESS"))
    if bind is not None:
        name = "initialize: coordinator_bind_address"
        listen_at, listen_port = address_of(name, bind)
    if tls is None:
        warn_of_strangers("the coordinator", listen_at, listen_port)
    try:
        return processes.Coordinator(
            listen_at,
            listen_port,
            count,
            heartbeat=heartbeat,
            arrival=arrival,
            patience=config.wait_report_secs.value,
            deadline=config.wait_timeout_secs.value,
            tls=None if tls is None else tls._asdict(),
        )
    except OSError as error:
        raise RuntimeError(
            f"initialize: the coordinator cannot listen at {at(listen_at, listen_port)}: {error}. "
            "Does another program use this port, or is another process also started as process 0, "
            "or does the address belong to another machine?"
        ) from None


def _joined(
    host: str, port: int, place: Place, seconds: float, deadline: float, tls: Tls | None
) -> tuple[Channel, dict[str, Any]]:
    """The connection to the coordinator, and its answer once all processes have joined."""
    where = f"the coordinator at {at(host, port)}"
    try:
        channel = connect(host, port, deadline, tls_context(tls), tls and tls.uri_prefix)
    except TimeoutError as error:
        raise TimeoutError(
            f"initialize: process {place.index} of {place.count} did not reach {where} within "
            f"{seconds:.0f} s (`initialization_timeout`): {error}. {_why_unreached(place)}"
        ) from None
    except Refused as error:
        raise RuntimeError(f"initialize: {where}: {error}") from None
    about = {
        "rank": place.index,
        "count": place.count,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "left": deadline - time.monotonic(),
        "timeout": seconds,
        "versions": f"shardwise {__version__} on jaxlib {backend.JAXLIB_VERSION}",
    }

    def note(waited: float) -> None:
        say(f"process {place.index} has waited for {waited:.0f} s for the other processes")

    try:
        return channel, joined(channel, about, deadline + 5, note)
    except Refused as error:
        channel.close()
        text = f"initialize: {where}: {error}"
        if error.ranks:
            raise ProcessFailureError(text, error.ranks) from None
        raise RuntimeError(text) from None
    except TimeoutError:
        channel.close()
        raise TimeoutError(
            f"initialize: {where} did not answer within {seconds:.0f} s "
            "(`initialization_timeout`): does another program use its port?"
        ) from None
    except BaseException:
        channel.close()
        raise


def _why_unreached(place: Place) -> str:
    if place.index == 0 and not place.started:
        return (
            "This process started it, on this machine: is coordinator_address the address of "
            "another machine? It must be the address of the machine of process 0."
        )
    return (
        "Process 0 starts it there: is process 0 running, and can this machine reach the address?"
    )


def _enter(
    cluster: str,
    place: Place,
    host: str,
    port: int,
    channel: Channel,
    answer: dict[str, Any],
    coordinator: processes.Coordinator | None,
    deadline: float,
    tls: Tls | None,
    partition: int | None,
) -> None:
    index, count = place.index, place.count
    members, heartbeat = answer["members"], answer["heartbeat"]
    assert index is not None and count is not None
    channel.limit(heartbeat / 2)
    compare = config.compare_programs.value
    watch = Watch(channel, index, count, compare, socket.gethostname(), heartbeat)
    if proxies := processes.bypass_proxies(host):
        _log.info("the proxies of %s are not used for %s", ", ".join(proxies), host)
    if answer["port"]:
        watch.service.put(answer)
    files = None if tls is None else tls._asdict()

    def connect() -> Any:
        seconds = max(1.0, deadline - time.monotonic())
        port = watch.service_port(seconds)
        return processes.connected(at(host, port), index, seconds=seconds, tls=files)

    connection = threads.future_of(connect, "connect")
    mine = _address_here(host, port, members)
    transport = config.cpu_collectives_implementation.value
    link = processes.Link(connection, index, count, mine, transport, place.local_devices, partition)
    processes.join(link, watch)
    address = at(host, port)
    _State.here = Here(index, count, cluster, address, watch, channel, coordinator, members)
    name = cluster or "as given"
    _log.info("process %d of %d (%s) has joined at %s:%d", index, count, name, host, port)


def _address_here(host: str, port: int, members: list[dict[str, Any]]) -> str:
    """The address of this machine at which all processes can reach it."""
    mine = "127.0.0.1" if host == "localhost" else address_towards(host, port)
    if is_loopback(mine):
        # The name of this machine may resolve to loopback locally: use a process elsewhere.
        others = [m["address"] for m in members if not is_loopback(m["address"])]
        return address_towards(others[0], port) if others else mine
    return mine


def address_towards(host: str, port: int) -> str:
    """The address of this machine on the route to another host, at which that host reaches it."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.connect(address)
        return sock.getsockname()[0]


# ----------------------------------------------------------------------------------- the end


def shutdown() -> None:
    """Leaves the other processes, after programs in flight that they depend on have ended.

    Does nothing in a process that has not joined others.

    Raises:
      ProcessFailureError: a program in flight failed because of another process.
    """
    state, _State.here = _State.here, None
    error = None if state is None else _leave(state, False)
    if error is not None:
        raise error


def _leave(state: Here, failed: bool, for_good: bool = False) -> ProcessFailureError | None:
    """Leaves the other processes; returns the error of a program that was not waited for.

    for_good: this process ends, with an exit status that reflects such an error.
    """
    error, patience, ended = None, 0.0, False
    if not failed:
        ended, error = _finish_launches(_State.patience)
        patience = _State.patience if ended else 0.0
        _settle(state)
    state.watch.leave(failed, for_good and error is not None, patience)
    processes.leave()
    if state.coordinator is not None:
        state.coordinator.release()
    if for_good and ended and error is None and not state.watch.failures:
        runtime_shutdown.drain_all()
    return error


def _settle(state: Here) -> None:
    """Waits until XLA's service has registered this process, as others wait for it there."""
    end = time.monotonic() + SETTLED_WITHIN
    while not (state.watch.failures or processes.is_connected(0.1)) and time.monotonic() < end:
        pass


def _at_exit() -> None:
    """Installs hooks that notify the others when the program ends, with the error if it fails."""
    if _State.hooked:
        return
    _State.hooked = True
    failure: list[str] = []
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, ProcessFailureError | KeyboardInterrupt):
            trace = users_frames(trace)
        for of in _causes(error):
            if isinstance(of, ProcessFailureError | KeyboardInterrupt):
                of.__traceback__ = users_frames(of.__traceback__)
        before(kind, error, trace)
        if sys.flags.interactive or hasattr(sys, "ps1"):
            return  # an interactive session continues after an error
        failure.append(in_a_line(f"{kind.__name__}: {error}".removesuffix(": ")))
        if _State.here is not None:
            # A consequence of the failure of another process, which all know already?
            follows = any(isinstance(of, ProcessFailureError) for of in _causes(error))
            _State.here.watch.announce(failure[0], line_raised(trace), follows)

    sys.excepthook = note

    @atexit.register
    def end() -> None:
        state, _State.here = _State.here, None
        if state is None:
            return
        try:
            _leave(state, bool(failure), for_good=True)
        except Exception as error:  # Python would print it, and the status would be 0
            why = f"the check before it exited failed: {type(error).__name__}: {error}"
            state.watch.end_process(why)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, its cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _finish_launches(seconds: float) -> tuple[bool, ProcessFailureError | None]:
    """Waits for programs in flight, since other processes depend on this one's part of them.

    Returns whether they have ended, and the error of one that was not waited for, if it failed
    because of another process.
    """
    found: list[BaseException | None] = []
    threads.start(lambda: found.append(CPU_WINDOW.drain()), "drain").join(seconds)
    error = found[0] if found else None
    return bool(found), error if isinstance(error, ProcessFailureError) else None
