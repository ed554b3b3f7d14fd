"""Memory that the processes of one machine share, for host values that they exchange.

One process makes it and the others find it by its number; all write their parts, and then map it. A
mapping is private: what a process writes to it later is not seen by others. The system frees the
memory when no process maps it any more, also if they are killed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.caches import cached


class Note(NamedTuple):
    """What other processes need to know. machine: of this process, "" if it cannot share memory;
    path, name: of the memory, "" if it has not made any."""

    machine: str
    path: str = ""
    name: str = ""


class SharedMemory:
    """Memory for arrays of some sizes in bytes, in a `with` block that ends the access to it.

    offsets: of each array; they begin at pages, so that each can be mapped alone.
    """

    def __init__(self, sizes: Sequence[int]):
        self._sizes = sizes
        ends = np.cumsum([-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes]).tolist()
        self.offsets: list[int] = [0, *ends[:-1]] if sizes else []
        self._size: int = ends[-1] if ends else 0
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

    def announce(self, makes: bool) -> Note:
        """The note of this process. makes: whether it makes the memory."""
        if not self._size or not _machine():
            return Note("")
        if not makes:
            return Note(_machine())
        name = f"shardwise-{secrets.token_hex(8)}"
        try:
            self._file = os.memfd_create(name)
            os.truncate(self._file, self._size)
        except OSError:
            return Note("")
        return Note(_machine(), f"/proc/{os.getpid()}/fd/{self._file}", name)

    def write(self, note: Note, parts: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Writes the parts of this process, given with their offsets, to the memory of a note.
        Returns whether that was possible."""
        try:
            if self._file is None:
                # In another container, another process may have this number.
                if os.readlink(note.path) != f"/memfd:{note.name} (deleted)":
                    return False
                self._file = os.open(note.path, os.O_RDWR | os.O_CLOEXEC)
            for offset, part in parts:
                _write(self._file, part.data, offset)
        except OSError:
            return False
        return True

    def map(self) -> list[NDArray[np.uint8]]:
        """The arrays, once all processes have written their parts; each keeps its own memory."""
        assert self._file is not None
        pairs = zip(self.offsets, self._sizes, strict=True)
        return [_mapped(self._file, offset, size) for offset, size in pairs]


def are_together(notes: Sequence[Note], maker: int) -> bool:
    """Whether all processes are on one machine, and one has made memory."""
    machines = {note.machine for note in notes}
    return len(machines) == 1 and "" not in machines and notes[maker].name != ""


def disable() -> None:
    """Stops this process from sharing memory: it, or another one, could not."""
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


def _mapped(file: int, offset: int, size: int) -> NDArray[np.uint8]:
    """A private mapping. Python's `mmap` would hold a file descriptor for each until 3.13."""
    if not size:
        return np.empty(0, np.uint8)
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE
    address = _libc().mmap(None, size, *how, file, offset)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise MemoryError(f"{size} bytes of shared memory were not mapped: {os.strerror(number)}")
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, _libc().munmap, address, size).atexit = False
    return np.frombuffer(memory, np.uint8)


@cached(1)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    number, word = ctypes.c_int, ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, word, number, number, number, ctypes.c_int64
    libc.munmap.argtypes = ctypes.c_void_p, word
    return libc
