"""What `shardwise doctor` finds, a line each, and how it runs programs, with a limit."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shardwise._src.distributed.cluster import LAUNCHED
from shardwise._src.testing.processes import without_transport

LATE = "did not end within"  # so many seconds


class Line(NamedTuple):
    """One finding.

    ok:     None where it only tells; False is a problem.
    advice: what to do, where something is wrong or slow.
    facts:  numbers for machines.
    """

    ok: bool | None
    name: str
    text: str
    advice: str = ""
    facts: Mapping[str, Any] = {}


class Clock:
    """The time that all of it may take, in seconds."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self, most: float = 1e9) -> float:
        return max(0.1, min(most, self._end - time.monotonic()))


def within(seconds: float, section: Callable[[], Iterator[Line]], name: str) -> list[Line]:
    """The lines of a section; what does not end in time is one of them."""
    found: list[Line] = []

    def collect() -> None:
        try:
            found.extend(section())
        except Exception as error:  # a doctor that falls ill helps nobody
            found.append(Line(False, name, f"cannot be looked at: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=collect, name="shardwise-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return [*found, Line(False, name, f"{LATE} {seconds:.0f} s")]
    return found


# A program of this machine alone, whatever the environment says of TLS and transports.
PLAIN = {
    "SHARDWISE_PLATFORMS": "cpu", "SHARDWISE_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    "SHARDWISE_MTLS_CERT_FILE": "", "SHARDWISE_MTLS_KEY_FILE": "", "SHARDWISE_MTLS_CA_FILE": "",
    "SHARDWISE_MTLS_PEER_URI_PREFIX": "", "SHARDWISE_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS": "0",
}


class Ran(NamedTuple):
    """How a program ended. text: what it printed, or why it failed."""

    ok: bool
    text: str
    seconds: float


def run_program(
    source: str, before: Sequence[str], after: Sequence[str], seconds: float, **env: str
) -> Ran:
    """Runs a program by itself, with a limit. before, after: its command line around its path."""
    # Without the launcher's variables, by which it would join others.
    own = {k: v for k, v in os.environ.items() if k not in LAUNCHED} | env
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardwise-doctor-") as folder:
        path = Path(folder, "program.py")
        path.write_text(source)
        process = subprocess.Popen(
            [*before, str(path), *after], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", stdin=subprocess.DEVNULL,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return Ran(False, f"{LATE} {seconds:.0f} s", seconds)
    took = time.monotonic() - begin
    if process.returncode:
        last = "\n".join(err.strip().splitlines()[-8:])
        return Ran(False, f"failed with status {process.returncode}:\n{last}", took)
    return Ran(True, without_transport(out).strip(), took)


def _end(process: subprocess.Popen[str]) -> None:
    """A launcher ends its processes, if it is told so."""
    for number, seconds in ((signal.SIGTERM, 4.0), (signal.SIGKILL, 2.0)):
        process.send_signal(number)
        try:
            process.communicate(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            continue
