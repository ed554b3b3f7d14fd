"""Chunk files on the file system: the chunk's values as in NumPy's memory, then a checksum.

Several threads write and read files, which takes half the time of a single thread. Large files are
transferred directly between disk and memory (O_DIRECT): the page cache would take more time than
the disk itself, and memory that is of no further use. Files already in the page cache are read
from there.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.interrupts import import_module
from shardwise._src.runtime import threads
from shardwise._src.runtime.forks import forgotten_by_fork

CHECKSUM = 4  # bytes after those of a chunk
T = TypeVar("T")
MISMATCH = "Digest mismatch"  # TensorStore's wording
_THREADS = 4  # some copy and compute checksums while others wait for the disk
_LARGE = 1 << 20  # bytes of a file that bypasses the page cache
_PIECE = 8 << 20  # bytes copied at a time into an aligned buffer
_BLOCK = mmap.PAGESIZE  # alignment of addresses and lengths for direct I/O
# Of small files that a thread handles in one call: passing one to it takes longer than writing it.
_GROUP_FILES, _GROUP_BYTES = 64, 1 << 20


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "shardwise-files")


forgotten_by_fork(_threads.cache_clear)


@functools.cache
def checksum() -> Callable[[Any], int]:
    """The function that computes CRC-32C.

    Raises:
      ImportError: crc32c is not installed.
    """
    try:
        return import_module("crc32c").crc32c
    except ImportError as error:
        raise ImportError(
            "Checkpoints are written and read with the package crc32c, which is not installed: "
            "pip install 'shardwise[tensorstore]'."
        ) from error


class WrongLength(ValueError):
    """A chunk does not have the expected number of bytes. size: the actual number."""

    def __init__(self, name: str, size: int):
        super().__init__(f"{name} has an unexpected length")
        self.size = size


def in_groups(items: Iterable[T], nbytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Groups of items, in their order: many small ones, or a single large one."""
    group: list[T] = []
    left = _GROUP_BYTES
    for item in items:
        size = nbytes(item)
        if group and (size > left or len(group) == _GROUP_FILES):
            yield group
            group, left = [], _GROUP_BYTES
        group.append(item)
        left -= size
    if group:
        yield group


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """The result of a call in one of the file threads; waits for it even if cancelled."""
    calling = threads.submit(_threads(), call, *args)
    try:
        return await asyncio.wrap_future(calling)
    except asyncio.CancelledError:
        wait([calling])  # no folder may be removed while files are created in it
        raise


# ------------------------------------------------------------------------------------- writing


def write_chunk(path: Path, chunk: np.ndarray) -> int:
    """Writes a chunk, and waits until it is on disk.

    chunk: contiguous.

    Returns:
      The checksum of the values.

    Raises:
      OSError: the write fails.
      ImportError: crc32c is not installed.
    """
    data = _bytes(chunk)
    found = checksum()(data.data)
    path.parent.mkdir(parents=True, exist_ok=True)
    start = _write_directly(path, data) if _is_large(data) else 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        for part in (data.data[start:], memoryview(found.to_bytes(CHECKSUM, "little"))):
            _put(file, part, start)
            start += len(part)
        os.fsync(file)
    finally:
        os.close(file)
    return found


def with_checksum(chunk: np.ndarray) -> tuple[bytes, int]:
    """The contents of a chunk file, for object stores; and the checksum of the values.

    chunk: contiguous.
    """
    data = _bytes(chunk).data
    found = checksum()(data)
    return b"".join([data, found.to_bytes(CHECKSUM, "little")]), found


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _is_large(data: np.ndarray) -> bool:
    """Whether the data bypasses the page cache, if the system supports that."""
    return len(data) >= _LARGE and sys.platform == "linux"


def _put(file: int, data: memoryview, at: int) -> None:
    done = 0
    while done < len(data):
        count = os.pwrite(file, data[done:], at + done)
        if not count:
            raise OSError(errno.EIO, "the system wrote no bytes")
        done += count


def _directly(path: Path, flags: int, transfer: Callable[[int], int]) -> int:
    """Transfers as many bytes as possible with direct I/O; returns how many.

    Returns 0 if the file system does not support it, or if anything is wrong, which the ordinary
    transfer then reports.
    """
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_DIRECT, 0o666)
        try:
            return transfer(file)
        finally:
            os.close(file)
    except OSError:
        return 0


def _write_directly(path: Path, data: np.ndarray) -> int:
    whole = len(data) // _BLOCK * _BLOCK

    def write(file: int) -> int:
        piece = np.frombuffer(mmap.mmap(-1, _PIECE), np.uint8)
        for start in range(0, whole, _PIECE):
            end = min(whole, start + _PIECE)
            piece[: end - start] = data[start:end]
            _put(file, piece[: end - start].data, start)
        return whole

    return _directly(path, os.O_WRONLY | os.O_CREAT, write)


# ------------------------------------------------------------------------------------- reading


def read_chunk(path: Path, into: np.ndarray, alone: bool) -> int:
    """Reads a full chunk into a contiguous array of its shape.

    alone: whether, as far as is known, no other process reads the file, so that it does not need to
    stay in the page cache.

    Returns:
      The checksum of the values.

    Raises:
      OSError: the file cannot be read.
      ValueError: it has the wrong length or the wrong checksum.
      ImportError: crc32c is not installed.
    """
    checksum_of, data = checksum(), _bytes(into)
    kept = bytearray(CHECKSUM + 1)  # one more byte detects a file that is too long
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        past = alone and _is_large(data) and not _in_memory(file)
        start = _read_directly(path, data) if past else 0
        end = _fill(file, data.data[start:], start) + start
        if end < len(data):
            raise ValueError(f"{path} ends after {end} bytes")
        if _fill(file, memoryview(kept), end) != CHECKSUM:
            raise ValueError(f"{path} has an unexpected length")
        if past:
            _advise(file, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    if (found := checksum_of(data.data)) != int.from_bytes(kept[:CHECKSUM], "little"):
        raise ValueError(MISMATCH)
    return found


def chunk_of(name: str, data: bytes | None, size: int) -> tuple[np.ndarray, int]:
    """A chunk's bytes and their checksum, from the contents of its file. size: of the chunk.

    Raises:
      FileNotFoundError: the file is missing.
      ValueError: it has the wrong length or the wrong checksum.
    """
    if data is None:
        raise FileNotFoundError(f"{name} does not exist")
    if len(data) != size + CHECKSUM:
        raise WrongLength(name, len(data))
    found = checksum()(memoryview(data)[:size])
    if found != int.from_bytes(data[size:], "little"):
        raise ValueError(MISMATCH)
    return np.frombuffer(data, np.uint8, size), found


def _fill(file: int, into: memoryview, at: int) -> int:
    """Reads from an offset until the buffer is full or the file ends; returns the byte count."""
    done = 0
    while done < len(into) and (count := os.preadv(file, [into[done:]], at + done)):
        done += count
    return done


def _in_memory(file: int) -> bool:
    """Whether the file is in the page cache, judged by its first byte."""
    _advise(file, os.POSIX_FADV_RANDOM)  # prevents read-ahead
    try:
        return bool(os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))
    except (OSError, AttributeError, NotImplementedError):
        return False  # BlockingIOError: not cached; others: the system or Python cannot tell
    finally:
        _advise(file, os.POSIX_FADV_NORMAL)


def _advise(file: int, how: int) -> None:
    with suppress(OSError):  # some systems do not support this
        os.posix_fadvise(file, 0, 0, how)


def _read_directly(path: Path, data: np.ndarray) -> int:
    """Direct I/O needs page-aligned memory."""
    whole = len(data) // _BLOCK * _BLOCK
    if data.ctypes.data % _BLOCK:
        return 0
    return _directly(path, os.O_RDONLY, lambda file: _fill(file, data.data[:whole], 0))
