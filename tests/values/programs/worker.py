"""Runs programs in a child process, which may die or hang; its parent counts that.

A task is a seed, or a program with shardings. The child reports its current one, so that the parent
can name it, and answers with the failures. If the child is lost, it is restarted.

    with Worker() as worker:
        answer = worker.ask(Task(seed=17, places=3))
"""

from __future__ import annotations

import base64
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.flags import xla_flags
from tests.values.programs import compare
from tests.values.programs.make import Program
from tests.values.programs.placements import Placement, allowed, alone, placements
from tests.values.programs.table import program as of_seed

ROOT = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
DEADLINE = 60.0  # seconds for a task


@dataclass(frozen=True)
class Task:
    """A seed and a number of shardings, or a program and its shardings."""

    seed: int = 0
    places: int = 3
    program: Any = None
    placements: tuple[Any, ...] = ()


@dataclass
class Answer:
    """faults: the number of a sharding, -1 for none, and its failure."""

    faults: list[tuple[int, str]] = field(default_factory=list)
    ran: int = 0
    refused: int = 0
    died: str = ""


class Worker:
    """A child process, started on the first request."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.log: Any = None
        self.rest = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self.log):
                stream.close()
        self.process = None

    def ask(self, task: Task, deadline: float = DEADLINE) -> Answer:
        """The answer of the child, or how it was lost."""
        if self.process is None:
            self._start()
        process = self.process
        assert process is not None and process.stdin is not None
        ends, at = time.monotonic() + deadline, -1
        try:
            process.stdin.write(base64.b64encode(pickle.dumps(task)) + b"\n")
            process.stdin.flush()
            while (line := self._line(ends)).startswith(b"at "):
                at = int(line[3:])
        except (BrokenPipeError, EOFError, TimeoutError) as error:
            reason = self._reason(error)
            self.stop()
            return Answer([(at, reason)], died=reason)
        return pickle.loads(base64.b64decode(line))

    def _start(self) -> None:
        known = {
            **os.environ,
            "XLA_FLAGS": xla_flags(8),
            "JAX_PLATFORMS": "cpu",
            "SHARDWISE_ENABLE_COMPILATION_CACHE": "0",
            "TF_CPP_MIN_LOG_LEVEL": "1",
        }
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.values.programs.worker"], cwd=ROOT, env=known,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0,
        )  # fmt: skip
        self.rest = b""

    def _line(self, ends: float) -> bytes:
        assert self.process is not None and self.process.stdout is not None
        out = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            if not select.select([out], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise TimeoutError
            found = os.read(out, 1 << 16)
            if not found:
                raise EOFError
            self.rest += found
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return "no answer within the deadline"
        assert self.process is not None
        code = self.process.wait()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").splitlines()
        told = [line for line in text if "Check failed" in line or line.startswith("F0")]
        return f"the process ended with {code}: {(told or text[-1:] or [''])[0][:400]}"


def answer(task: Task, say: Any) -> Answer:
    """Runs a task in this process."""
    found = Answer()
    program = task.program or of_seed(task.seed)
    try:
        one = alone(program)
    except Exception as error:
        found.faults.append((-1, _told(error)))
        return found
    found.faults += [(-1, text) for text in compare.unsound(program, one)]
    ranks = tuple(x.ndim for x in one)
    known = dict(zip(program.outputs, one, strict=True))
    places = task.placements or placements(program, task.seed, ranks, task.places)
    for i, place in enumerate(places):
        say(i)
        try:
            here = allowed(program, place)
            found.refused += len(program.lines) - len(here.lines)
            wrong = _wrong(here, place, known)
        except Exception as error:
            wrong = [_told(error)]
        found.ran += 1
        found.faults += [(i, text) for text in wrong]
    return found


def _wrong(program: Program, place: Placement, known: dict[str, Any]) -> list[str]:
    """known: the results on one device by name, as far as there are."""
    many = place.call(program)
    if not set(program.outputs) <= known.keys():
        known = dict(zip(program.outputs, alone(program), strict=True))
    return compare.faults(program, place, [known[name] for name in program.outputs], many)


def _told(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:600]} ({last.filename}:{last.lineno})"


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # other output is not an answer
    for line in sys.stdin.buffer:
        task = pickle.loads(base64.b64decode(line))
        found = answer(task, lambda i: out.write(b"at %d\n" % i))
        out.write(base64.b64encode(pickle.dumps(found)) + b"\n")


if __name__ == "__main__":
    # The task is pickled with this module's full name.
    from tests.values.programs import worker

    worker.main()
