"""The output of the processes of a launch, line by line: prefixed with their ranks, and in files.

A thread reads all pipes and writes only whole lines, so that no two are mixed. Lines are bytes, and
are passed on unchanged.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

CHUNK = 1 << 16
LONGEST = 1 << 20  # bytes of a line that are buffered
TAIL = 200  # lines of standard error that are kept for each process
QUIET = 0.5  # seconds without output after which an open pipe is abandoned
_BEGIN, _END = b"[Gloo] Rank", b"Expected number of connected peer ranks is :"
_PIECES = re.compile(rb"(\[Gloo\] Rank|is connected to|peer ranks\.|" + _END + rb"|[\d\s])+")


class Transport:
    """Recognizes the lines that Gloo prints when it connects, in the output of a process.

    Gloo's threads print in pieces, which may be interleaved, including their newlines. A line of
    the program that they interrupt continues in the next line.
    """

    def __init__(self) -> None:
        self._owed = 0  # line ends still to come for lines that have begun
        self._begun = b""  # of a line of the program

    def without(self, lines: Iterable[bytes], last: bool) -> list[bytes]:
        """The program's own lines. last: whether no more lines follow."""
        found: list[bytes] = []
        for line in lines:
            own = self._own(line)
            if own is not None:
                found.append(self._begun + own)
                self._begun = b""
        if last and self._begun:
            found.append(self._begun)
        return found

    def _own(self, line: bytes) -> bytes | None:
        at = max(line.find(_BEGIN), 0)
        if self._owed > 0 and _PIECES.fullmatch(line, 0, at):  # it completes an earlier line
            at = 0
        if at and _END not in line:  # the program itself prints such text
            return line
        begun = line.count(_BEGIN)
        if not (begun or self._owed > 0) or _PIECES.fullmatch(line, at) is None:
            return line
        self._owed += begun - 1
        self._begun += line[:at]
        return None


def is_coloured(fd: int, env: Mapping[str, str]) -> bool:
    """Whether a file descriptor is a terminal whose user wants colors."""
    return os.isatty(fd) and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def prefix(rank: int, coloured: bool) -> bytes:
    return f"\x1b[{31 + rank % 6}m[{rank}]\x1b[0m ".encode() if coloured else f"[{rank}] ".encode()


class Stream:
    """The standard output or error of a process.

    target: the file descriptor that its lines go to, with a prefix; log: a file for the lines
            without it.
    tail:   its last lines, if they are kept.
    closed: set once its end was reached, and everything before was passed on.
    quiet:  set whenever a poll finds nothing to read.
    """

    def __init__(self, pipe: Any, target: int, rank: int, log: BinaryIO | None, keep: bool):
        self.pipe, self.target, self.log = pipe, target, log
        self.prefix = prefix(rank, is_coloured(target, os.environ))
        self.tail: deque[bytes] = deque(maxlen=TAIL if keep else 0)
        self.closed, self.quiet = threading.Event(), threading.Event()
        self._part = b""
        self._transport = Transport()

    def read(self) -> tuple[bytes, bool]:
        """The bytes to write from newly read data, and whether more may follow."""
        try:
            data = os.read(self.pipe.fileno(), CHUNK)
        except OSError:
            data = b""
        *lines, self._part = (self._part + data).split(b"\n")
        lines = [line + b"\n" for line in lines]
        if self._part and (not data or len(self._part) > LONGEST):
            lines.append(self._part)
            self._part = b""
        return self._shown(self._transport.without(lines, not data)), bool(data)

    def close(self) -> None:
        self.closed.set()
        self.quiet.set()

    def drain(self, seconds: float) -> None:
        """Waits until everything written before this call is in `tail`, for at most `seconds`."""
        end = time.monotonic() + seconds
        for _ in range(2):  # the first poll to end may have begun before this call
            self.quiet.clear()
            if self.closed.is_set() or not self.quiet.wait(max(0.0, end - time.monotonic())):
                return

    def _shown(self, shown: list[bytes]) -> bytes:
        self.tail.extend(shown)
        if self.log is not None:
            try:
                self.log.write(b"".join(shown))
            except OSError as error:  # a full disk does not stop the launch
                os.write(2, f"shardwise launch: {self.log.name}: {error.strerror}\n".encode())
                self.log = None
        whole = [line if line.endswith(b"\n") else line + b"\n" for line in shown]
        return b"".join([self.prefix + line for line in whole])


class Output:
    """Passes streams on until all of them have ended.

    broken: called once if the reader of standard output is gone.
    """

    def __init__(self, streams: list[Stream], broken: Callable[[], None]):
        self._streams, self._broken = streams, broken
        self._lost: set[int] = set()  # targets without a reader
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardwise-output", daemon=True)
        self._thread.start()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Waits until all output is passed on; no more will come. The reader may be slow."""
        self._last.set()
        while self._thread.is_alive() and not give_up():
            self._thread.join(0.1)

    def _run(self) -> None:
        quiet_since = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream.pipe, selectors.EVENT_READ, stream)
            while selector.get_map():
                ready = selector.select(0.2)
                for key, _ in ready:
                    text, more = key.data.read()
                    self._write(key.data.target, text)
                    if not more:
                        selector.unregister(key.fileobj)
                        key.data.close()
                read = {key.data for key, _ in ready}
                for stream in self._streams:
                    if stream not in read:
                        stream.quiet.set()
                now = time.monotonic()
                quiet_since = now if ready or not self._last.is_set() else quiet_since
                if now - quiet_since > QUIET:
                    break
        for stream in self._streams:
            stream.pipe.close()
            stream.close()

    def _write(self, target: int, data: bytes) -> None:
        if target in self._lost:
            return
        try:
            write(target, data)
        except OSError:
            self._lost.add(target)
            if target == 1:
                self._broken()


def write(target: int, data: bytes) -> None:
    """Writes all of the data, even to a non-blocking file."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:
            with suppress(OSError):
                select.select([], [target], [], 1.0)


def say(text: str) -> None:
    """Prints a message of the launcher."""
    try:
        write(2, f"shardwise launch: {text}\n".encode(errors="replace"))
    except OSError:
        return  # no reader
