"""Runs of `shardwise launch` as a separate program, and the processes they leave behind.

    done = launch("-n", "2", source="print('here')")
    assert done.out == ["[0] here", "[1] here"]

On exit, a `Launch` kills every process that it started and reports those still running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.helpers import patience
from tests.helpers.flags import xla_flags

TEST = "TESTED_LAUNCH"  # in the environment of every process that a tested launch starts


class Done(NamedTuple):
    """How a launch ended. out, err: its lines; left: the processes that were still running."""

    status: int
    out: list[str]
    err: list[str]
    left: list[str]


class Launch:
    """A running launch. source: of the program, whose path replaces {} in the arguments, or
    follows them."""

    def __init__(
        self, *arguments: str, source: str = "", env: dict[str, str] | None = None, cwd: Any = None
    ):
        self.folder = tempfile.TemporaryDirectory(prefix="shardwise-launch-")
        self.path = Path(self.folder.name)
        program = self.path / "program.py"
        program.write_text(textwrap.dedent(source))
        words = [str(program) if word == "{}" else word for word in arguments]
        if source and "{}" not in arguments:
            words.append(str(program))
        self.mark = self.folder.name
        own = {
            TEST: self.mark,
            "SHARDWISE_ENABLE_COMPILATION_CACHE": "0",
            "XLA_FLAGS": xla_flags(),
            "SHARDWISE_FLIGHT_RECORDER_DIR": self.folder.name,
        }
        self.files = [open(self.path / name, "w+b") for name in ("out", "err")]  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shardwise", "launch", *words],
            cwd=cwd,
            env={**os.environ, **own, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=self.files[0],
            stderr=self.files[1],
        )

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.left():
            process.kill()
        self.process.wait(patience.seconds(60))
        for file in self.files:
            file.close()
        self.folder.cleanup()

    def lines(self, which: str = "out") -> list[str]:
        text = (self.path / which).read_text(errors="surrogateescape")
        assert not text or text.endswith("\n"), text
        return text.splitlines()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Waits until the condition returns something true, and returns it."""
        return patience.until(condition, about=self.written)

    def written(self) -> str:
        return "\n".join((self.path / name).read_text(errors="replace") for name in ("out", "err"))

    def said(self, text: str, which: str = "out") -> str:
        """Waits for a line that contains a text."""
        return self.until(lambda: next((w for w in self.lines(which) if text in w), ""))

    def left(self) -> list[psutil.Process]:
        """The running processes that the launch started, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(TEST) == self.mark:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def pid(self, rank: int) -> int:
        """Of a worker."""

        def find() -> int:
            for process in self.left():
                try:
                    if process.environ().get("SHARDWISE_PROCESS_ID") == str(rank):
                        return process.pid
                except psutil.Error:
                    continue
            return 0

        return self.until(find)

    def done(self) -> Done:
        """Waits for its end."""
        try:
            self.until(lambda: self.process.poll() is not None)
        except TimeoutError as error:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(patience.seconds(60))
            raise TimeoutError(f"the launch did not end\n{error}\n{self.written()}") from None
        status = self.process.wait()
        left = [f"{p.pid} {' '.join(p.cmdline())}" for p in self.left()]
        return Done(status, self.lines("out"), self.lines("err"), left)


def launch(*arguments: str, source: str = "", **options: Any) -> Done:
    with Launch(*arguments, source=source, **options) as running:
        return running.done()
