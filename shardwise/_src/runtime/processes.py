"""Multi-process membership of this process: XLA's client of the coordination service.

Platform clients (`backend`) get their multi-process options here. Launches and waits of programs
that span processes go through the *gate*, which `distributed` installs here; without one they have
no overhead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jaxlib import _jax

from shardwise._src.base.caches import cached
from shardwise._src.runtime import preemption, transports

RuntimeFailure = _jax.JaxRuntimeError
free_unused = _jax.collect_garbage  # frees the tracebacks of launches and waits that have ended
HAS_TLS = "mtls_cert_file" in (_jax.get_distributed_runtime_client.__doc__ or "")


@dataclass(frozen=True)
class Link:
    """The connection of this process to the others.

    connection: XLA's client of the service, which takes a moment to connect.
    host:      the address of this machine at which others reach its transports.
    transport: of CPU devices: "gloo" or "mpi".
    devices:   the local device ids that this process may use; None for all.
    """

    connection: Future[_jax.DistributedRuntimeClient]
    index: int
    count: int
    host: str
    transport: str
    devices: tuple[int, ...] | None
    partition: int | None

    @property
    def client(self) -> _jax.DistributedRuntimeClient:
        """XLA's client of the service, once it is connected."""
        return self.connection.result()


class Gate(Protocol):
    """Handles launches of programs over several processes, and waits for their results."""

    def launch(
        self, module: Any, run: Callable[[Sequence[Any]], Any], buffers: Sequence[Any]
    ) -> Any:
        """Launches a loaded module, by `run(buffers)`, in order."""
        ...

    def wait(self, raw: Any) -> None:
        """Waits until a raw buffer is computed."""
        ...

    def note(self, span: tuple[int, ...], value: Any) -> None:
        """Schedules the comparison of a host value that all processes of a set put on devices."""
        ...

    def meet(
        self, name: str, value: str = "", span: Sequence[int] | None = None, *, payload: str = ""
    ) -> Any:
        """Waits until all processes of a set arrive with the same value; returns the payloads."""
        ...

    def gather(
        self, name: str, payload: str, timeout: float, span: Sequence[int] | None = None
    ) -> list[str]:
        """Waits until all processes of a set have arrived at a name; returns their payloads."""
        ...

    def explain(self, error: BaseException) -> BaseException:
        """The cause of a runtime failure: the loss of a process, or the error itself."""
        ...


class _State:
    link: Link | None = None
    gate: Gate | None = None


def link() -> Link | None:
    return _State.link


def gate() -> Gate | None:
    return _State.gate


def join(link: Link, gate: Gate) -> None:
    _State.link, _State.gate = link, gate


def leave() -> None:
    """Ends the connection to XLA's service."""
    _State.gate = None
    if _State.link is not None:
        here, _State.link = _State.link, None
        preemption.end()
        if here.connection.done():
            with suppress(RuntimeError):  # it never connected, which the start of devices reports
                here.client.shutdown()


def is_connected(seconds: float) -> bool:
    """Whether the connection to XLA's service succeeds or fails within some seconds."""
    return _State.link is None or bool(wait_for([_State.link.connection], seconds).done)


def break_connections() -> None:
    """Makes waits for other processes fail, if the transport can be broken."""
    if _State.link is not None and _State.link.transport == "gloo":
        transports.break_connections()


def wait(raw: Any) -> None:
    """Waits until a raw buffer is computed."""
    free_unused()
    if _State.gate is None:
        raw.block_until_ready()
    else:
        _State.gate.wait(raw)


def reached_preemption_sync_point(step: int) -> bool:
    """Whether all processes should save at this step, as one is about to be ended."""
    return preemption.reached(None if _State.link is None else _State.link.client, step)


def explained(error: BaseException) -> BaseException:
    """The error to raise for a failed launch, or a failed wait for its results."""
    return error if _State.gate is None else _State.gate.explain(error)


def is_about_peers(error: BaseException) -> bool:
    """Whether a runtime failure may be caused by the loss of a process."""
    text = str(error)
    return any(word in text for word in ("Gloo", "gloo", "NCCL", "MPI", "onnection", "peer"))


def note(devices: tuple[Any, ...], value: Any) -> None:
    """Must be called when all processes of some devices put a host value on them."""
    if _State.gate is not None and (span := _span_of(devices)):
        _State.gate.note(span, value)


@cached(256)
def _span_of(devices: tuple[Any, ...]) -> tuple[int, ...] | None:
    return span_of(devices)


def meet_to_start(platform: str) -> None:
    """Waits until all processes are about to start the devices of a platform.

    XLA waits for them too, but cannot be notified of one that will not arrive.
    """
    if _State.gate is not None:
        _State.gate.meet(f"the start of {platform} devices")


def exchanged(name: str, text: str, seconds: float, span: Sequence[int] | None = None) -> list[str]:
    """The strings that all processes, or a span of them, pass under a name, which is used only
    once, in the order of their ranks.

    Callable from any thread, in any order relative to launches and meetings.

    Raises:
      ProcessFailureError: one will not arrive, as it has failed or ended.
      TimeoutError: some do not arrive within `seconds`; it names them.
    """
    return [text] if _State.gate is None else _State.gate.gather(name, text, seconds, span)


def span_of(devices: Sequence[Any]) -> tuple[int, ...] | None:
    """The processes that devices belong to; None if there is only one."""
    if _State.link is None:
        return None
    found = sorted({d.process_index for d in devices})
    return tuple(found) if len(found) > 1 else None


# ------------------------------------------------------------------------------ the coordinator


class Coordinator:
    """A coordinator process started by this process, for its lifetime (`coordinator`)."""

    def __init__(
        self,
        host: str,
        port: int,
        count: int,
        *,
        heartbeat: float,
        arrival: float,
        patience: float,
        deadline: float,
        tls: dict[str, str] | None = None,
    ):
        script = Path(__file__).parents[1] / "coordination" / "coordinator.py"
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        asked = {
            "path": sys.path,
            "host": host,
            "port": port,
            "count": count,
            "heartbeat": heartbeat,
            "arrival": arrival,
            "patience": patience,
            "deadline": deadline,
            "tls": tls,
            "service_timeout": max(100, int(5 * heartbeat), int(arrival)),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        self._process.stdout.close()
        answer: dict[str, Any] = json.loads(line or b'{"error": "its process ended at once"}')
        if "error" in answer:
            self.release()
            self._process.wait(10)
            raise OSError(answer["error"])
        self.port: int = answer["port"]
        name = "shardwise-reap"  # avoids a zombie
        threading.Thread(target=self._process.wait, name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exited(self, rank: int, name: str) -> None:
        """Notifies it of a process that ended with status 0: others must not wait for it."""
        line = json.dumps({"rank": rank, "name": name}).encode() + b"\n"
        assert self._process.stdin is not None
        with suppress(OSError):  # the coordinator has ended, as all processes notice
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def stop(self) -> None:
        """Ends it immediately; no process needs it any more."""
        self._process.kill()
        self.release()
        self._process.wait()

    def release(self) -> None:
        """Lets it end when the last process disconnects."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with suppress(OSError):  # it has ended, with something unread
                stdin.close()


# ------------------------------------------------------------------------------- XLA's client


def connected(
    address: str, index: int, *, seconds: float, tls: dict[str, str] | None = None
) -> _jax.DistributedRuntimeClient:
    """XLA's client of the service at an address, to which all processes are about to connect.

    XLA ends the process if this fails: all must be present.
    """
    timeout = max(100, int(seconds))
    client = _jax.get_distributed_runtime_client(
        address,
        index,
        init_timeout=timeout,
        heartbeat_timeout=timeout,
        shutdown_timeout=5,
        use_compression=True,
        shutdown_on_destruction=False,
        **transports.tls_options(tls),
    )
    client.connect()
    return client


_PROXIES, _NO_PROXY = ("grpc_proxy", "https_proxy", "http_proxy"), ("no_grpc_proxy", "no_proxy")


def bypass_proxies(host: str) -> list[str]:
    """Makes gRPC bypass proxies for a host; returns the proxies that it would have used."""
    found = [name for name in _PROXIES if os.environ.get(name)]
    if found:
        known = next(filter(None, map(os.environ.get, _NO_PROXY)), "")
        if host not in known.split(","):
            os.environ[_NO_PROXY[0]] = ",".join([*filter(None, [known]), host])
    return found


def cpu_options() -> dict[str, Any]:
    """The multi-process options of the CPU client."""
    here = _State.link
    if here is None:
        return {}
    if here.transport == "mpi":
        collectives = transports.mpi()
    else:
        collectives = transports.gloo(here.client, here.index, here.host)
    return {
        "distributed_client": here.client,
        "node_id": here.index,
        "num_nodes": here.count,
        "collectives": collectives,
    }


def check_transport(name: str) -> None:
    """Checks whether CPU devices can be connected by this transport.

    Raises:
      RuntimeError: names the missing requirement.
    """
    why = transports.why_no_mpi() if name == "mpi" else ""
    if why:
        raise RuntimeError(
            f"initialize: cpu_collectives_implementation is 'mpi', but {why}. XLA calls MPI "
            "through MPItrampoline: build MPIwrapper (https://github.com/eschnett/MPIwrapper) with "
            "the MPI that starts this program, and set MPITRAMPOLINE_LIB to its libmpiwrapper.so; "
            "or use 'gloo', which has no requirements."
        )


def cpu_started() -> None:
    """Must be called once this process has its CPU client: all others then have theirs too."""
    here = _State.link
    if here is not None and here.transport == "gloo":
        transports.learn_ports(here.client)


def plugin_options() -> dict[str, Any]:
    """The same for plugin clients, which take the service's client as a separate argument."""
    here = _State.link
    if here is None:
        return {}
    options: dict[str, Any] = {"node_id": here.index, "num_nodes": here.count}
    if here.devices is not None:
        options["visible_devices"] = list(here.devices)
    if here.partition is not None:
        options["partition_index"] = here.partition
    return options
