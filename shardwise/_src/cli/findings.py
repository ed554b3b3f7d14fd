"""The findings of `shardwise doctor`, one line each, and running programs with a time limit."""

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
from shardwise._src.testing.run_processes import without_transport

LATE = "did not finish within"  # followed by seconds


class Line(NamedTuple):
    """One finding.

    ok:     None for plain information; False is a problem.
    advice: what to do if something is wrong or slow.
    facts:  machine-readable data.
    """

    ok: bool | None
    name: str
    text: str
    advice: str = ""
    facts: Mapping[str, Any] = {}


class Clock:
    """The total time limit, in seconds."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self, most: float = 1e9) -> float:
        return max(0.1, min(most, self._end - time.monotonic()))


def within(seconds: float, section: Callable[[], Iterator[Line]], name: str) -> list[Line]:
    """The lines of a section; a timeout is reported as one of them."""
    found: list[Line] = []

    def collect() -> None:
        try:
            found.extend(section())
        except Exception as error:  # the doctor itself must not crash
            found.append(Line(False, name, f"check failed: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=collect, name="shardwise-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return [*found, Line(False, name, f"{LATE} {seconds:.0f} s")]
    return found


# Variables for a program on this machine alone, independent of the user's TLS and transports.
PLAIN = {
    "SHARDWISE_PLATFORMS": "cpu",
    "SHARDWISE_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    "SHARDWISE_MTLS_CERT_FILE": "",
    "SHARDWISE_MTLS_KEY_FILE": "",
    "SHARDWISE_MTLS_CA_FILE": "",
    "SHARDWISE_MTLS_PEER_URI_PREFIX": "",
    "SHARDWISE_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS": "0",
}


class Ran(NamedTuple):
    """The result of a program. text: its output, or why it failed."""

    ok: bool
    text: str
    seconds: float


def run_program(
    source: str, before: Sequence[str], after: Sequence[str], seconds: float, **env: str
) -> Ran:
    """Runs a program in a separate process, with a time limit. before, after: the words of its
    command line before and after its path."""
    # Without the launcher's variables, which would make it join other processes.
    own = {k: v for k, v in os.environ.items() if k not in LAUNCHED} | env
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardwise-doctor-") as folder:
        path = Path(folder, "program.py")
        path.write_text(source)
        process = subprocess.Popen(
            [*before, str(path), *after],
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
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
    """Ends a program: first by SIGTERM, so that a launcher can end its processes."""
    for number, seconds in ((signal.SIGTERM, 4.0), (signal.SIGKILL, 2.0)):
        process.send_signal(number)
        try:
            process.communicate(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            continue
