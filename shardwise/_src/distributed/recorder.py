"""The flight recorder: a short log of this process's last interactions with other processes.

It stores the last launches, meetings, waits and failures, with their times and the user's source
lines, in a ring buffer, at less than a microsecond for each. `text` formats a readable record; when
a process fails, each of the others writes its own record to a file.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from shardwise._src.base import config
from shardwise._src.messages.source import Site, describe

# Time, kind ("launch", …), name, number, processes, source line, duration.
Entry = tuple[float, str, str, int, tuple[int, ...], Site | None, float]


class Recorder:
    """The last entries of a process."""

    def __init__(self, index: int, count: int, host: str):
        self.index, self.count, self.host = index, count, host
        self._entries: deque[Entry] = deque(maxlen=max(1, config.flight_recorder_size.value))
        self.add = self._entries.append  # with an `Entry`

    def note(self, kind: str, what: str) -> None:
        self.add((time.monotonic(), kind, what, 0, (), None, 0.0))

    def text(self, waits: Iterable[str] = ()) -> str:
        """The record, one line for each entry. waits: current waits of the process."""
        ahead = time.time() - time.monotonic()
        head = (
            f"Flight record of process {self.index} of {self.count} (host {self.host}, pid "
            f"{os.getpid()}), written at {_clock(time.time())}. The last entry is the newest.\n"
        )
        lines = [_line(entry, ahead) for entry in tuple(self._entries)]
        return head + "".join([*lines, *(f"now           waiting {wait}\n" for wait in waits)])

    def write(self, text: str, kind: str = "flight") -> str:
        """Writes a record to a file; returns its path, or why it could not be written."""
        folder = config.flight_recorder_dir.value or tempfile.gettempdir()
        path = os.path.join(folder, f"shardwise-{kind}-{self.index}-{os.getpid()}.txt")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            return f"not written: {error}"
        return path


def _clock(seconds: float) -> str:
    whole = time.strftime("%H:%M:%S", time.localtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}"


def _line(entry: Entry, ahead: float) -> str:
    at, kind, what, number, ranks, site, seconds = entry
    numbered = f" {number}" if number else ""
    over = f" over processes {','.join(map(str, ranks))}" if ranks else ""
    where = f" at {describe(site)}" if site else ""
    lasted = f", {seconds * 1000:.1f} ms" if seconds else ""
    return f"{_clock(at + ahead)}  {kind}{numbered} {what}{over}{where}{lasted}\n"


def record_of(watch: Any) -> str:
    """The record of a `Watch`, with the current waits of its threads."""
    now = time.monotonic()
    waits = [f"for {now - since:.3f} s: {doing or kind}" for since, kind, doing in watch.waiting()]
    return watch.recorder.text(waits)
