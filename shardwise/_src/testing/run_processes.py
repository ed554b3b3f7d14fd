"""Runs multi-process programs on this machine for tests: real processes, with a deadline.

results = run_processes('''
    import shardwise as sw
    print(sw.process_index(), sw.device_count())
''', 2, devices=2)
assert [r.out for r in results] == ["0 4\\n", "1 4\\n"]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shardwise._src.launch.worker_output import Transport
from shardwise._src.launch.workers import variables
from shardwise._src.runtime.processes import Coordinator


class Result(NamedTuple):
    """The outcome of a process. status: as reported by `subprocess`; seconds: since the start."""

    rank: int
    status: int
    out: str
    err: str
    seconds: float


FILES = ("out", "err")


def run_processes(
    program: str | Path,
    count: int,
    *,
    devices: int = 1,
    args: Sequence[str] = (),
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    during: Callable[[list[Any]], None] | None = None,
    heartbeat: float = 20,
    patience: float = 30,
    deadline: float = 600,
    arrival: float = 60,
    expect: int | None = 0,
) -> list[Result]:
    """Runs a program in several processes on this machine; returns their outcomes, by rank.

    Args:
      program: its source, indented or not, or its path.
      count: the number of processes; devices: the number of CPU devices of each.
      args: for all of them; `{rank}` is replaced by the process index.
      timeout: seconds after which all are killed, and a TimeoutError with their output is raised.
      env: variables in addition to those of this process.
      during: called with the `subprocess.Popen` of each while they run.
      heartbeat, patience, deadline, arrival: of the coordinator, in seconds.
      expect: the required exit status of all processes; None for any.

      Raises:
        TimeoutError, AssertionError: with the output of all processes.
    """
    with tempfile.TemporaryDirectory(prefix="shardwise-test-") as folder:
        path = Path(program) if isinstance(program, Path) else Path(folder, "program.py")
        if not isinstance(program, Path):
            path.write_text(textwrap.dedent(program))
        coordinator = Coordinator(
            "127.0.0.1",
            0,
            count,
            heartbeat=heartbeat,
            arrival=arrival,
            patience=patience,
            deadline=deadline,
        )
        address = f"127.0.0.1:{coordinator.port}"
        begin = time.monotonic()
        running: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(count):
                own = variables(address, count, rank, rank, devices) | dict(env or {})
                line = [sys.executable, str(path), *[a.format(rank=rank) for a in args]]
                running.append(_started(line, folder, rank, own))
            if during is not None:
                during(running)
            ends = _ends(running, begin, timeout)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            coordinator.release()
        results = []
        for rank, process in enumerate(running):
            out, err = [Path(folder, f"{rank}.{n}").read_text(errors="replace") for n in FILES]
            results.append(Result(rank, process.returncode, out, err, ends.get(rank, timeout)))
    outcomes = "\n".join(
        f"--- process {r.rank}: status {r.status} after {r.seconds:.1f} s\n{r.out}{r.err}"
        for r in results
    )
    if len(ends) < count:
        raise TimeoutError(f"not all processes ended within {timeout} s\n{outcomes}")
    if expect is not None and any(r.status != expect for r in results):
        raise AssertionError(f"a process did not end with status {expect}\n{outcomes}")
    return [r._replace(out=without_transport(r.out)) for r in results]


def without_transport(text: str) -> str:
    """Output without the lines that Gloo prints when it connects."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    return b"".join(Transport().without(lines, last=True)).decode()


def _started(
    line: list[str], folder: str, rank: int, env: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A process with output to files in the folder, and with `env` added to this environment."""
    env.setdefault("SHARDWISE_FLIGHT_RECORDER_DIR", folder)
    out, err = [Path(folder, f"{rank}.{name}") for name in FILES]
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        return subprocess.Popen(
            line, env={**os.environ, **env}, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL
        )


def _ends(running: Sequence[Any], begin: float, timeout: float) -> dict[int, float]:
    ends: dict[int, float] = {}
    while len(ends) < len(running) and time.monotonic() - begin < timeout:
        for rank, process in enumerate(running):
            if rank not in ends and process.poll() is not None:
                ends[rank] = time.monotonic() - begin
        time.sleep(0.02)
    return ends
