"""Compiles a program for several machines, each in a separate process: a compiler ends its
process when one of its checks fails, and a process can be stopped at a deadline.

    made = compiled(Job("train.py", "step"), ["h100:8", "tpu-v5p:2x2x2"], timeout=600, jobs=1)

A process reads its job and machine from a file in a folder, and writes an `Outcome` there. It ends
when the command does.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from shardwise._src.base.progress import progress
from shardwise._src.cli.step_file import BadStep, function_of, module_of, program_of, takes_devices
from shardwise._src.explain.outcomes import Outcome
from shardwise._src.explain.program_report import explain
from shardwise._src.messages.source import is_own
from shardwise._src.running.program_out_of_memory import ProgramTooLarge
from shardwise._src.targets.machine_names import named

# Without the folder of the command on the path, which `-P` omits.
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {} import main; main()"
CHILD = [sys.executable, "-P", "-c", _CODE.format(__name__)]
LINES = 5  # of a process that ended, in its error
_TRACE = re.compile(r"^\s*(@\s|\*\*\*|#\d+\s|PC:)")  # lines of a C++ stack


@dataclass(frozen=True)
class Job:
    """A file, and its function that returns what to compile."""

    file: str
    function: str


# ---- in the command's process --------------------------------------------------------------------


def compiled(
    job: Job, machines: Sequence[str], timeout: float, jobs: int, child: Sequence[str] = CHILD
) -> list[Outcome]:
    """One outcome for each machine, in their order.

    timeout: seconds for each; jobs: how many processes run at the same time; child: their command
    line. On an interrupt all processes end.
    """
    running = _Running(job, child, timeout)
    pool = ThreadPoolExecutor(jobs)
    try:
        return [*pool.map(running.outcome, machines)]
    finally:
        running.stop()
        pool.shutdown(cancel_futures=True)


class _Running:
    """The processes that run; several threads start them."""

    def __init__(self, job: Job, child: Sequence[str], timeout: float):
        self.job, self.child, self.timeout = job, child, timeout
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.stopped = False

    def outcome(self, machine: str) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="shardwise-compile-") as name:
            folder = Path(name)
            request = {**asdict(self.job), "machine": machine}
            folder.joinpath("request").write_text(json.dumps(request))
            with progress(f"compiling for {machine}"):
                start = time.monotonic()
                status = self._run(folder)
                took = time.monotonic() - start
            if status is None:
                text = f"it was not compiled within {self.timeout:g} s. Pass a longer --timeout."
                return Outcome(machine, error=text, seconds=took)
            with suppress(FileNotFoundError):
                return pickle.loads(folder.joinpath("outcome").read_bytes())
            printed = folder.joinpath("printed").read_text(errors="replace")
            return Outcome(machine, error=ended_text(status, printed))

    def _run(self, folder: Path) -> int | None:
        """Runs a process; its exit status, or None if it was stopped at the deadline."""
        line = [*self.child, json.dumps(sys.path), str(folder)]
        with folder.joinpath("printed").open("wb") as printed:
            with self.lock:
                if self.stopped:
                    return None
                process = subprocess.Popen(
                    line, stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
                self.processes.add(process)
            try:
                return process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _kill(process)
                with self.lock:
                    self.processes.discard(process)

    def stop(self) -> None:
        """Ends all processes, and starts no more."""
        with self.lock:
            self.stopped = True
            for process in self.processes:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its children, which are in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def ended_text(status: int, printed: str) -> str:
    """Why a process ended without an outcome, with its last lines."""
    how = f"with status {status}"
    if status < 0:
        with suppress(ValueError):
            how = f"by {signal.Signals(-status).name}"
    hint = ""
    if status == -signal.SIGKILL:
        hint = " This machine may have had too little memory for the compiler."
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    failed = [line for line in lines if "Check failed" in line]
    last = failed[-1:] or [line for line in lines if not _TRACE.match(line)][-LINES:]
    end = "".join([f"\n  {line}" for line in last])
    return f"the process that compiles it ended {how}.{hint}{' Its last lines:' * bool(end)}{end}"


# ---- in a separate process ----------------------------------------------------------------------


def main() -> None:
    """Compiles for one machine. The process ends when its parent does, which holds its input."""
    threading.Thread(target=_end_with_parent, name="shardwise-parent", daemon=True).start()
    folder = Path(sys.argv[-1])
    asked = json.loads(folder.joinpath("request").read_text())
    found = _outcome(Path(asked["file"]), asked["function"], asked["machine"])
    folder.joinpath("part").write_bytes(pickle.dumps(found))
    folder.joinpath("part").replace(folder / "outcome")
    sys.stdout.flush()
    os._exit(0)  # without the end of clients and compilers, which may fail


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def _outcome(file: Path, name: str, machine: str) -> Outcome:
    begin = None
    try:
        function = function_of(module_of(file), file, name)
        target = named(machine).target if takes_devices(function) else None
        program = program_of(function, name, target().devices if target is not None else ())
        named(machine).target()  # raises if its compiler is missing; a report would only mention it
        begin = time.monotonic()
        report = explain(program.f, machine=machine)(*program.args, **program.kwargs)
        return Outcome(machine, report, seconds=time.monotonic() - begin)
    except SystemExit as end:
        return Outcome(machine, error=f"{name} ended the program: SystemExit({end.code!r}).")
    except Exception as error:
        if isinstance(error, ProgramTooLarge) and begin is not None:
            text, took = str(error).removeprefix("RESOURCE_EXHAUSTED: "), time.monotonic() - begin
            return Outcome(machine, None, text, error.needed, error.available, took, True)
        return Outcome(machine, error=error_text(error))


def error_text(error: Exception) -> str:
    """An error as Python prints it, from the frames of user code on; the message alone without."""
    at = error.__traceback__
    while at is not None and _is_hidden(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    if at is None:
        known = isinstance(error, BadStep | ImportError | ValueError)
        text = "\n".join([str(error).removeprefix("targets: "), *getattr(error, "__notes__", ())])
        return text if known else f"{type(error).__name__}: {text}"
    return "".join(traceback.format_exception(type(error), error, at)).rstrip()


def _is_hidden(file: str) -> bool:
    return is_own(file) or file.startswith("<frozen")
