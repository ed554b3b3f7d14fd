"""Processes that fail in every possible way, and what the other processes report.

`provoke(kind)` runs three processes of two devices, of which process 1 fails (or the one that the
kind names), and returns what each of the others reported, without run-dependent details.
"""

from __future__ import annotations

import re
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.helpers.patience import until
from tests.helpers.processes import REPORTS, run_processes

PROGRAM = (
    REPORTS
    + """
import os, signal, sys, threading, time
import numpy as np
import psutil

kind = sys.argv[1]
if kind == "never arrives" and sys.argv[2] == "1":
    print(time.time(), flush=True)
    sys.exit(0)

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

if kind == "starts no device":
    sw.distributed.initialize()
    if sys.argv[2] == "1":
        print(time.time(), flush=True)
        sys.exit(0)

try:
    mesh = Mesh(sw.devices(), ("x",))
except RuntimeError:
    print(time.time())
    raise
x = jnp.arange(12.0, device=NamedSharding(mesh, P("x")))

@sw.jit
def double(x):
    return (x * 2).sum()

@sw.jit
def triple(x):
    return (x * 3).sum()

def coordinator():
    port = int(os.environ["SHARDWISE_COORDINATOR_ADDRESS"].rpartition(":")[2])
    for child in psutil.Process(os.getppid()).children():
        if any(c.laddr.port == port and c.status == "LISTEN" for c in child.net_connections()):
            return child

def fail():
    if kind in ("killed", "process 0 killed"):
        sent = reports()
        while len(sent) < 2: time.sleep(0.01)  # so that this line is reported
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stopped":
        sent = reports()
        while len(sent) < 2: time.sleep(0.01)  # as above
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    print(time.time(), flush=True)
    if kind == "raises":
        raise ValueError("bad data")
    if kind == "exits":
        sys.exit(0)
    if kind == "exits with 3":
        sys.exit(3)
    if kind == "exits at once":
        os._exit(4)
    if kind == "crashes":
        os.abort()
    if kind == "interrupted":
        raise KeyboardInterrupt
    if kind == "runs another program":
        float(sw.jit(lambda x: (x * 4).sum())(x))
    if kind == "skips one":
        float(sw.jit(lambda x: x.max())(x))
    if kind == "launches in another order":
        float(triple(x)), float(double(x))
    if kind == "sleeps":
        time.sleep(10**4)  # for ever
    if kind == "waits for a lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # for ever
    if kind == "loses its connections":
        from shardwise._src.runtime import processes
        processes.break_connections()
    if kind == "loses the coordinator":
        import socket
        from shardwise._src.distributed.start import here
        here().channel._sock.shutdown(socket.SHUT_RDWR)
        time.sleep(10**4)
    if kind == "coordinator killed":
        coordinator().kill()
        time.sleep(10**4)
    if kind == "coordinator stopped":
        coordinator().suspend()

float(double(x)), float(triple(x))
try:
    if sw.process_index() == (kind == "process 0 killed" and [0] or [1])[0]:
        fail()
    if kind == "coordinator killed":
        time.sleep(10**4)
    float(double(x)), float(triple(x))
    if kind in ("launches in another order", "coordinator stopped"):
        while True:
            time.sleep(0.1), float(double(x))
except sw.errors.ProcessFailureError:
    print(time.time(), flush=True)
    raise
"""
)


@dataclass(frozen=True)
class Kind:
    """A way to fail.

    says:     what the others report and raise; None unless it is a ProcessFailureError.
    status:   exit status of the process that fails; others: exit status of the others.
    culprit:  the process that fails.
    options:  of `run_processes`.
    """

    says: str
    status: int
    others: int = 1
    culprit: int = 1
    options: dict[str, Any] = field(default_factory=dict)


_AT = "Its last known line: program.py:{line} (fail)."
_MISSED = (
    "All processes must do this: look for an `if` on process_index() around it, for an early exit, "
    "or for data of different length."
)
_CLOSED = "its connection closed: it was killed or crashed, or its machine went down"


def _line(text: str) -> int:
    lines = PROGRAM.splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def _lost(how: str, at: str, rank: int = 1) -> str:
    where = _AT.format(line=_line(at)) if at else "LINE"
    return f"process {rank} is lost: {how}. {where}"


def _ended(doing: str) -> str:
    line = _line("float(double(x)), float(triple(x))")  # the last launch
    return (
        f"process 1 has ended, and never launched program {doing!r}. Its last known line: "
        f"program.py:{line} (<module>). {_MISSED}"
    )


def _differ(first: str, second: str) -> str:
    return (
        f"the processes do not run the same program (launch 3): process {first}; process {second}. "
        "All processes must launch the same programs over the same devices in the same order: look "
        "for an `if` on process_index(), threads, sets or dicts in a different order, or different "
        "data or flags."
    )


def _other(at: str) -> str:
    line = f"program.py:{_line(at)} (fail)"
    return _differ("0 reaches program 'double'", f"1 reaches program '_lambda_' at {line}")


def _late(at: str) -> str:
    return (
        "process 1 did not reach program 'double' within N s (`wait_timeout_secs`). "
        + _AT.format(line=_line(at))
    )


_STALL = {"patience": 1, "deadline": 3}
KINDS: dict[str, Kind] = {
    "killed": Kind(_lost(_CLOSED, "time.sleep(0.01)  # so"), -signal.SIGKILL),
    "stopped": Kind(
        _lost(
            "there was no heartbeat from it for N s: it is stopped, or its machine or network is "
            "down",
            "time.sleep(0.01)  # as",
        ),
        75,
        options={"heartbeat": 2},
    ),
    "raises": Kind(_lost("it failed with ValueError: bad data", "raise ValueError"), 1),
    "exits": Kind(_ended("double"), 0),
    "exits with 3": Kind(_ended("double"), 3),
    "exits at once": Kind(_lost(_CLOSED, ""), 4),
    "crashes": Kind(_lost(_CLOSED, ""), -signal.SIGABRT),
    "interrupted": Kind(
        _lost("it failed with KeyboardInterrupt", "raise KeyboardInterrupt"), -signal.SIGINT
    ),
    "process 0 killed": Kind(
        _lost(_CLOSED, "time.sleep(0.01)  # so", 0), -signal.SIGKILL, culprit=0
    ),
    "runs another program": Kind(_other("x: (x * 4)"), 1),
    "skips one": Kind(_other("x: x.max"), 1),
    "launches in another order": Kind(_differ("A reaches program 'A'", "B reaches program 'B'"), 1),
    "sleeps": Kind(_late("time.sleep(10**4)  # f"), 75, options=_STALL),
    "waits for a lock": Kind(_late("lock.acquire()  # f"), 75, options=_STALL),
    "loses its connections": Kind(
        "SOME lost CONNECTIONS to other processes, all of which are alive: the network between "
        "them failed (GLOO). LINE",
        1,
    ),
    "loses the coordinator": Kind(_lost(_CLOSED, ""), 75),
    "coordinator killed": Kind(
        "process R exits with status 75: its connection to the coordinator closed: the coordinator "
        "was killed, or its machine or the network is down.",
        75,
        others=75,
    ),
    "coordinator stopped": Kind(
        "there was no heartbeat from the coordinator for N s: it is stopped, or its machine or the "
        "network is down.",
        1,
        options={"heartbeat": 2},
    ),
    "starts no device": Kind(
        "process 1 has ended, and never reached the start of cpu devices at program.py:"
        f"{_line('mesh = Mesh(')} (<module>). {_MISSED}",
        0,
    ),
    "never arrives": Kind(
        "initialize: the coordinator at ADDRESS: process 1 of 3 did not join within N s "
        "(`initialization_timeout`). Joined: process 0, process 2.",
        0,
        options={"arrival": 2},
    ),
}


class Run(NamedTuple):
    """The result of a run.

    says:    for each of the others, its failure reports, in order.
    raised:  the last line of its traceback, or "".
    errors:  the standard error of each process.
    statuses: the exit status of each process.
    to_message, to_error: seconds until the last of them reported and raised it; nan if absent.
    """

    says: list[list[str]]
    raised: list[str]
    errors: list[str]
    statuses: list[int]
    records: list[str]
    to_message: float
    to_error: float


def provoke(name: str, devices: int = 2) -> Run:
    """devices: per process; with one, XLA runs programs in the thread that launches them."""
    kind = KINDS[name]

    def resume(running: list[Any]) -> None:
        """Resumes the stopped process once the others have ended."""
        stopped = [running[1]] if name == "stopped" else []
        with suppress(TimeoutError):
            until(lambda: all(p.poll() is not None for p in running if p not in stopped))
        for process in stopped or psutil.Process().children():
            if process in stopped or process.status() == psutil.STATUS_STOPPED:
                process.send_signal(signal.SIGCONT)

    with tempfile.TemporaryDirectory(prefix="shardwise-test-") as folder:
        results = run_processes(
            PROGRAM,
            3,
            devices=devices,
            args=[name, "{rank}"],
            expect=None,
            timeout=60,
            during=resume if "stopped" in name else None,
            env={"SHARDWISE_FLIGHT_RECORDER_DIR": folder},
            **kind.options,
        )
        records = {int(p.name.split("-")[2]): p.read_text() for p in Path(folder).iterdir()}
    others = [r for r in results if r.rank != kind.culprit]
    begin = float(results[1 if "coordinator" in name else kind.culprit].out.split()[0])
    said = [_time_of_failure(records[r.rank], begin) for r in others if r.rank in records]
    raised = [float(r.out.split()[0]) for r in others if r.out.strip()]
    return Run(
        [reported(r.err) for r in others],
        [last_line(r.err) for r in others],
        [r.err for r in results],
        [r.status for r in results],
        [records.get(r.rank, "") for r in others],
        max(said, default=float("nan")) - begin,
        max(raised, default=float("nan")) - begin,
    )


def normal(text: str) -> str:
    """The report of a failure, without the parts that depend on when it happened."""
    text = text.partition("\nThe last launches")[0].partition("\n  thread")[0]
    if "start of cpu devices" in text:
        text = re.sub(r" Its last known line: \S+ \(\S+\)\.", "", text)
    text = re.sub(r"\(UNKNOWN: Gloo.*?\d\)", "(GLOO)", text)
    text = re.sub(
        r"^([\w.]+: )?process \d(, process \d)* lost (its|their) connections",
        r"\1SOME lost CONNECTIONS",
        text,
    )
    text = re.sub(r"coordinator at [\d.]+:\d+", "coordinator at ADDRESS", text)
    if "GLOO" in text or re.search(r"machine went down\. .*<module>", text):
        text = re.sub(r"Its last known line: program\.py:\d+ \(\w*<?module>?\)\.", "LINE", text)
    text = re.sub(r"process \d (?=exits with)", "process R ", text)
    if "reaches program 'triple'" in text:
        text = re.sub(
            r"process \d reaches program '\w+'; process \d reaches program '\w+'",
            "process A reaches program 'A'; process B reaches program 'B'",
            text,
        )
    return text


def _time_of_failure(record: str, begin: float) -> float:
    found = re.search(r"^(\d+):(\d+):(\d+\.\d+)  failure", record, re.MULTILINE)
    if found is None:
        return float("nan")
    day = time.localtime(begin)
    midnight = time.mktime((*day[:3], 0, 0, 0, 0, 0, -1))
    return midnight + 3600 * int(found[1]) + 60 * int(found[2]) + float(found[3])


def plain(text: str) -> str:
    """A text without the details that differ from run to run."""
    text = re.sub(r" \(host [^,]+, pid \d+\)", "", text)
    text = re.sub(r"\S*/(program\.py|shardwise-flight)", r"\1", text)
    text = re.sub(r"flight-(\d)-\d+", r"flight-\1", text)
    # If two processes do the same, the report names the one heard first and the one that differs.
    pair = r"process 1 reaches (program .+?); process 2 reaches (program .+?)\. All"
    text = re.sub(pair, r"process 0 reaches \2; process 1 reaches \1. All", text)
    return re.sub(r"\b\d+ s\b", "N s", text)


def reported(errors: str) -> list[str]:
    """The failure reports of a process, one paragraph each."""
    parts = re.split(r"^(?=shardwise: |Traceback)", plain(errors), flags=re.MULTILINE)
    return [part.removeprefix("shardwise: ").strip() for part in parts if part.startswith("shard")]


def last_line(errors: str) -> str:
    lines = [line for line in plain(errors).splitlines() if not line.startswith("Examples and")]
    lines = [line for line in lines if line.strip()]
    return lines[-1] if lines else ""
