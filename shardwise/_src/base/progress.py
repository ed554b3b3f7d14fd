"""Progress of long operations: one line on a terminal, which is erased at the end.

    with progress("compiling step"):                        # compiling step: 12 s
        ...
    with progress("saving", total=size, unit="B") as bar:   # saving: 1.2 GiB of 4.0 GiB (30 %),
        bar.add(n)                                          #   512.0 MiB/s, 6 s left

Nothing is shown in the first two seconds, if standard error is not a terminal, under pytest, or if
the option `show_progress` is off. A silent operation costs only these checks.

One thread draws for all operations: it exists while there are any, and sleeps in the first two
seconds, so that many short operations share one. It ends by itself. Of several concurrent
operations, the one that has taken longest is shown.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any

from shardwise._src.base.config import show_progress

PATIENCE = 2.0  # seconds before anything is shown
TICK = 0.25  # seconds between drawings
SAMPLES = 40  # drawings over which a rate is computed
_ERASE = "\r\x1b[2K"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown() -> bool:
    """Whether progress should be shown."""
    stream = sys.stderr
    try:
        if stream is None or not stream.isatty() or not show_progress.value:
            return False
    except ValueError:  # it is closed
        return False
    return os.environ.get("TERM") != "dumb" and "PYTEST_CURRENT_TEST" not in os.environ


class progress:
    """Shows the progress of an operation once it has taken two seconds; see above.

    what: a description of the operation, without a full stop.
    total: the total amount of work, if known.
    unit: "B" for bytes, or a noun in the plural ("arrays").
    """

    __slots__ = ("done", "samples", "start", "stream", "total", "unit", "what")

    def __init__(self, what: str, total: int | None = None, unit: str = "B") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.stream: Any = None  # None: silent

    def __enter__(self) -> progress:
        if shown():
            self.stream, self.start = sys.stderr, time.monotonic()
            self.samples: deque[tuple[float, int]] = deque([(self.start, 0)], SAMPLES)
            _SCREEN.open(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            _SCREEN.close(self)
            self.stream = None

    def add(self, n: int) -> None:
        """Adds completed work. Any thread may call it."""
        if self.stream is not None:
            with _SCREEN.lock:
                self.done += n

    def text(self, now: float) -> str:
        """The line at a time, which is recorded for the rate."""
        took = now - self.start
        if not self.done and self.total is None:
            return f"{self.what}: {duration(took)}"
        self.samples.append((now, self.done))
        (since, before), span = self.samples[0], now - self.samples[0][0]
        rate = (self.done - before) / span if now > since else 0.0
        parts = [f"{self.what}: {self._amount(self.done)}"]
        if self.total:
            share = min(100 * self.done // self.total, 100)
            done = self._amount(self.done) if self.unit == "B" else f"{self.done:,}"
            parts = [f"{self.what}: {done} of {self._amount(self.total)} ({share} %)"]
        parts.append(f"{self._amount(rate)}/s" if rate >= 1 or not rate else f"{rate:.2f}/s")
        if self.total and rate > 0:
            parts.append(f"{duration(max(self.total - self.done, 0) / rate)} left")
        return ", ".join(parts)

    def _amount(self, n: float) -> str:
        if self.unit != "B":
            return f"{n:,.0f} {self.unit}"
        if n < 1024:
            return f"{n:.0f} B"
        power = min(int(math.log2(n)) // 10, len(_UNITS) - 1)
        return f"{n / 1024**power:.1f} {_UNITS[power]}"


def duration(seconds: float) -> str:
    """`12 s`, `3 min 05 s`, `2 h 07 min`"""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class _Screen:
    """The line, and the thread that draws it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.bars: list[progress] = []  # the oldest first
        self.thread: threading.Thread | None = None
        self.drawn: Any = None  # the stream that currently shows a line

    def open(self, bar: progress) -> None:
        with self.lock:
            self.bars.append(bar)
            if self.thread is None:
                name = "shardwise-progress"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                with suppress(RuntimeError):  # interpreter shutdown: nothing is drawn
                    thread.start()
                    self.thread = thread

    def close(self, bar: progress) -> None:
        with self.lock:
            if bar in self.bars:  # else it belongs to the process that forked this one
                self.bars.remove(bar)
            if not self._due(time.monotonic()):
                self._erase()

    def _due(self, now: float) -> list[progress]:
        return [bar for bar in self.bars if now - bar.start >= PATIENCE]

    def _run(self) -> None:
        while True:
            with self.lock:
                now = time.monotonic()
                due = self._due(now)
                if due:
                    self._draw(due[0], now)
                    wait = TICK
                elif self.bars:
                    wait = self.bars[0].start + PATIENCE - now
                else:
                    self.thread = None
                    return
            time.sleep(max(wait, 0.0))

    def _draw(self, bar: progress, now: float) -> None:
        line = bar.text(now)
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(bar.stream.fileno()).columns
            if width:  # 0 if the terminal does not report it
                line = line[: width - 1]
        self._write(bar.stream, _ERASE + line)
        self.drawn = bar.stream

    def _erase(self) -> None:
        if self.drawn is not None:
            self._write(self.drawn, _ERASE)
            self.drawn = None

    @staticmethod
    def _write(stream: Any, text: str) -> None:
        with suppress(OSError, ValueError):  # it is closed, or cannot encode these characters
            stream.write(text)
            stream.flush()


_SCREEN = _Screen()


def _after_fork() -> None:
    """Resets a child, which has no thread; the line belongs to its parent."""
    _SCREEN.__init__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
