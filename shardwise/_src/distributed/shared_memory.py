"""Memory that the processes of one machine share, for host values that they exchange.

One process makes it and the others find it by its number; all write their parts, and then map it. A
mapping is private: what a process writes to it later is not seen by others. The system frees the
memory when no process maps it any more, also if they are killed.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.caches import cached

_ALIGNMENT = 64  # bytes, of each part


class Note(NamedTuple):
    """What other processes need to know. machine: of this process, "" if it cannot share memory;
    path, name: of the memory, "" if it has not made any."""

    machine: str
    path: str = ""
    name: str = ""


class SharedMemory:
    """Memory for parts of some sizes in bytes, in a `with` block that ends the access to it.

    starts: the offset of each part.
    """

    def __init__(self, sizes: Sequence[int]):
        ends = np.cumsum([-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]).tolist()
        self.starts: list[int] = [0, *ends[:-1]] if sizes else []
        self.size: int = ends[-1] if ends else 0
        self._file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def note(self, makes: bool) -> Note:
        """The note of this process. makes: whether it is the one that makes the memory."""
        if not self.size or not _machine():
            return Note("")
        if not makes:
            return Note(_machine())
        name = f"shardwise-{secrets.token_hex(8)}"
        try:
            self._file = os.memfd_create(name)
            os.truncate(self._file, self.size)
        except OSError:
            return Note("")
        return Note(_machine(), f"/proc/{os.getpid()}/fd/{self._file}", name)

    def filled(self, note: Note, parts: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Writes this process's parts, given with their offsets, to the memory of a note. Returns
        whether that was possible."""
        try:
            if self._file is None:
                # Another process may have the same number in another container.
                if os.readlink(note.path) != f"/memfd:{note.name} (deleted)":
                    return False
                self._file = os.open(note.path, os.O_RDWR | os.O_CLOEXEC)
            for start, part in parts:
                _write(self._file, part.data, start)
        except OSError:
            return False
        return True

    def mapped(self) -> NDArray[np.uint8]:
        """All bytes, once all processes have written theirs."""
        assert self._file is not None
        return np.frombuffer(mmap.mmap(self._file, self.size, mmap.MAP_PRIVATE), np.uint8)


def are_together(notes: Sequence[Note], maker: int) -> bool:
    """Whether all processes are on one machine, and one has made memory."""
    machines = {note.machine for note in notes}
    return len(machines) == 1 and "" not in machines and notes[maker].name != ""


def give_up() -> None:
    """Processes of this machine cannot share memory, or not that of each other."""
    _State.off = True


class _State:
    off = False


def _machine() -> str:
    return "" if _State.off else _identity()


@cached(1)
def _identity() -> str:
    """Identifies the running system, the processes that this one can see, and its user."""
    if not hasattr(os, "memfd_create"):
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return ""


def _write(file: int, data: memoryview, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)
