"""The processes of a launch on this machine, and how they and all their descendants are
terminated."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise._src.distributed.status_files import VARIABLE
from shardwise._src.launch.process_reaper import MARK, kill, kill_marked
from shardwise._src.launch.rank_assignment import Share
from shardwise._src.launch.worker_output import Output, Stream
from shardwise._src.launch.worker_reports import Report, report

LAST_WORDS = 5.0  # seconds for the output of an ended process, if its descendants still write
DEATH = 2.0  # seconds for a killed process to end
RECORDS = "SHARDWISE_FLIGHT_RECORDER_DIR"
_SUBREAPER = 36  # of Linux's prctl


@dataclass(frozen=True)
class Plan:
    """The parameters of a launch.

    command:  the arguments of Python.
    count:    number of processes on this machine, with `devices` each; None for the default.
    restarts: how many times all processes are restarted after a failure.
    least:    minimum number of processes on all machines for a restart; None for all.
    address:  host and port where the launchers of all nodes meet; None on one machine.
    grace:    seconds for processes to end by themselves after they are signaled to. heartbeat,
    arrival: seconds, as `initialize` has them.
    """

    command: tuple[str, ...]
    count: int
    devices: int | None = None
    restarts: int = 0
    log_dir: Path | None = None
    address: tuple[str, int] | None = None
    nodes: int = 1
    node: int = 0
    grace: float = 3.0
    heartbeat: float = 20.0
    arrival: float = 300.0
    least: int | None = None

    def facts(self) -> dict[str, Any]:
        """Facts about the launch for `shardwise top`."""
        return {
            "command": list(self.command),
            "processes": self.count,
            "restarts": self.restarts,
            "nodes": self.nodes,
            "node": self.node,
            "host": socket.gethostname(),
            "cwd": os.getcwd(),
        }


def variables(
    address: str, count: int, rank: int, local: int, devices: int | None
) -> dict[str, str]:
    """The environment variables that define a process's rank and its peers (`cluster`)."""
    found = {
        "SHARDWISE_COORDINATOR_ADDRESS": address,
        "SHARDWISE_COORDINATOR_STARTED": "1",
        "SHARDWISE_NUM_PROCESSES": str(count),
        "SHARDWISE_PROCESS_ID": str(rank),
        "SHARDWISE_LOCAL_PROCESS_ID": str(local),
    }
    if devices is not None:
        found["SHARDWISE_NUM_CPU_DEVICES"] = str(devices)
    return found


class Worker:
    """A process. ended: set once its status is known."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], log: Any, ended: Any):
        self.rank, self.process = rank, process
        self.out = Stream(process.stdout, 1, rank, log, keep=False)
        self.err = Stream(process.stderr, 2, rank, log, keep=True)
        self.ended = threading.Event()
        self._tell = ended
        threading.Thread(target=self._wait, name="shardwise-worker", daemon=True).start()

    def _wait(self) -> None:
        self.process.wait()
        self.ended.set()
        self._tell(self.rank)

    def is_dead(self) -> bool:
        """Whether it has ended, as the system sees it; its status may not be known yet."""
        import psutil

        try:
            return psutil.Process(self.process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def signal(self, number: int) -> None:
        with suppress(OSError):
            self.process.send_signal(number)


class Crew:
    """The processes of one generation on this machine. card: the path of a rank's status file."""

    def __init__(
        self,
        plan: Plan,
        generation: int,
        share: Share,
        mark: str,
        card: Callable[[int], str] = lambda rank: "",
    ):
        self.plan, self.generation, self.share = plan, generation, share
        self._mark, self._card = mark, card
        self._logs: list[Any] = []
        self._output: Output | None = None
        self.workers: dict[int, Worker] = {}

    def start(self, address: str, ended: Callable[[int], None], broken: Callable[[], None]) -> None:
        """Starts the processes; `stop` must be called even if one cannot be started.

        ended: called with the rank of each process that has ended, from another thread.
        broken: likewise, if the reader of standard output is gone.
        """
        try:
            for local, rank in enumerate(self.share.ranks):
                log = self._log(rank)
                process = self._process(local, rank, address)
                self.workers[rank] = Worker(rank, process, log, ended)
        finally:
            streams = [s for w in self.workers.values() for s in (w.out, w.err)]
            self._output = Output(streams, broken)

    def _process(self, local: int, rank: int, address: str) -> subprocess.Popen[bytes]:
        plan = self.plan
        own = variables(address, self.share.total, rank, local, plan.devices)
        own |= {
            "SHARDWISE_GENERATION": str(self.generation),
            MARK: self._mark,
            "SHARDWISE_INITIALIZATION_TIMEOUT": str(plan.arrival),
            "PYTHONUNBUFFERED": "1",
            VARIABLE: self._card(rank),
        }
        if plan.log_dir is not None:
            own[RECORDS] = os.environ.get(RECORDS) or str(plan.log_dir.absolute())
        if plan.devices is not None:
            first = local * plan.devices
            ids = range(first, first + plan.devices)
            own["SHARDWISE_LOCAL_DEVICE_IDS"] = ",".join(map(str, ids))
        return subprocess.Popen(
            [sys.executable, *plan.command],
            env={**os.environ, **own},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _log(self, rank: int) -> Any:
        if self.plan.log_dir is None:
            return None
        name = f"rank-{rank}.log"
        if self.generation:
            name = f"rank-{rank}.generation-{self.generation}.log"
        self._logs.append(open(self.plan.log_dir / name, "wb", buffering=0))  # noqa: SIM115
        return self._logs[-1]

    # ------------------------------------------------------------------ how they end

    def running(self) -> list[Worker]:
        return [w for w in self.workers.values() if not w.ended.is_set()]

    def dead(self) -> set[int]:
        """Ranks that have ended, even if the threads that wait for them have not noticed yet."""
        return {rank for rank, worker in self.workers.items() if worker.is_dead()}

    def report(self, rank: int) -> Report | None:
        """The report on a process that has ended; None if it succeeded."""
        worker = self.workers[rank]
        if worker.process.returncode == 0:
            return None
        worker.err.drain(LAST_WORDS)
        return report(rank, self.name(rank), worker.process.returncode, tuple(worker.err.tail))

    def name(self, rank: int) -> str:
        return f"process {rank} (host {socket.gethostname()}, pid {self.workers[rank].process.pid})"

    def stop(self, number: int, urgent: Callable[[], bool], keep: Sequence[int] = ()) -> None:
        """Ends the processes: first by a signal; after the grace period, or if urgent, by force.

        keep: pids of children of this process that do not belong to the crew.
        """
        for worker in self.running():
            worker.signal(number)
            worker.signal(signal.SIGCONT)  # a stopped process would not handle the signal
        self._await(self.plan.grace, urgent)
        for worker in self.running():
            kill(descendants(worker.process.pid))
            worker.signal(signal.SIGKILL)
        self._await(DEATH, lambda: False)
        self._sweep(keep)
        if self._output is not None:
            self._output.finish(urgent)
        for log in self._logs:
            log.close()

    def _await(self, seconds: float, urgent: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        for worker in self.running():
            while not worker.ended.wait(min(0.05, max(0.0, deadline - time.monotonic()))):
                if urgent() or time.monotonic() > deadline:
                    return

    def _sweep(self, keep: Sequence[int]) -> None:
        """Kills descendants that the processes have left behind."""
        import psutil

        known = {*keep, *[w.process.pid for w in self.workers.values()]}
        left = [p for p in descendants(os.getpid()) if p.pid not in known]
        kill(left)
        kill_marked(self._mark, looks=1)
        psutil.wait_procs(left, timeout=DEATH)


def descendants(pid: int) -> list[Any]:
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process, if the system supports it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
