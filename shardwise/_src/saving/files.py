"""Files of chunks on the file system: a chunk's values as NumPy has them in memory, and a checksum.

Several threads write and read files, which takes half the time of one. The disk takes large ones
from memory, and gives them, by itself (O_DIRECT): the system's own copy of all that is written or
read would take more time than the disk does, and memory that nobody else wants. What the system has
in its memory already is read from there.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.interrupts import import_module
from shardwise._src.runtime import threads
from shardwise._src.runtime.forks import forgotten_by_fork

CHECKSUM = 4  # bytes behind those of a chunk
T = TypeVar("T")
MISMATCH = "Digest mismatch"  # as TensorStore says it
_THREADS = 4  # some copy and check while others wait for the disk
_LARGE = 1 << 20  # bytes of a file that goes past the system's memory
_PIECE = 8 << 20  # bytes that are copied to where the disk can take them
_BLOCK = mmap.PAGESIZE  # of which places and lengths are multiples where disks work by themselves


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "shardwise-files")


forgotten_by_fork(_threads.cache_clear)


@functools.lru_cache(1)
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
    """A chunk's bytes are not as many as were written. size: how many they are."""

    def __init__(self, name: str, size: int):
        super().__init__(f"{name} has another length")
        self.size = size


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """The result of a call in one of the threads for files; waits for it also when cancelled."""
    calling = threads.submit(_threads(), call, *args)
    try:
        return await asyncio.wrap_future(calling)
    except asyncio.CancelledError:
        wait([calling])  # nobody removes a folder while files are made in it
        raise


# ------------------------------------------------------------------------------------- writing


def write_chunk(path: Path, chunk: np.ndarray) -> int:
    """Writes a chunk, and waits until the disk has it.

    chunk: contiguous.

    Returns:
      The checksum of the values.

    Raises:
      OSError: it cannot be written.
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
    """The bytes of a chunk's file, for stores without files; and the checksum of its values.

    chunk: contiguous.
    """
    data = _bytes(chunk).data
    found = checksum()(data)
    return b"".join([data, found.to_bytes(CHECKSUM, "little")]), found


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _is_large(data: np.ndarray) -> bool:
    """Whether it goes past the memory of the system, if that has such a way."""
    return len(data) >= _LARGE and sys.platform == "linux"


def _put(file: int, data: memoryview, at: int) -> None:
    done = 0
    while done < len(data):
        count = os.pwrite(file, data[done:], at + done)
        if not count:
            raise OSError(errno.EIO, "nothing is written any more")
        done += count


def _write_directly(path: Path, data: np.ndarray) -> int:
    """Has the disk take as many bytes from memory as it can; how many these are."""
    whole = len(data) // _BLOCK * _BLOCK
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_DIRECT, 0o666)
    except OSError:
        return 0  # the file system has no such way
    try:
        piece = np.frombuffer(mmap.mmap(-1, _PIECE), np.uint8)
        for start in range(0, whole, _PIECE):
            end = min(whole, start + _PIECE)
            piece[: end - start] = data[start:end]
            _put(file, piece[: end - start].data, start)
        return whole
    except OSError:
        return 0  # what is wrong, if anything, is found by writing in the usual way
    finally:
        os.close(file)


# ------------------------------------------------------------------------------------- reading


def read_chunk(path: Path, into: np.ndarray, alone: bool) -> int:
    """Reads all of a chunk into an array of its shape, which is contiguous.

    alone: whether no other process reads the file, as far as is known, so that the system need not
    keep it.

    Returns:
      The checksum of the values.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is not as long as it should be, or its checksum is another one.
      ImportError: crc32c is not installed.
    """
    checksum_of, data = checksum(), _bytes(into)
    kept = bytearray(CHECKSUM + 1)  # no more is there
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        past = alone and _is_large(data) and not _in_memory(file)
        start = _read_directly(path, data) if past else 0
        end = _fill(file, data.data[start:], start) + start
        if end < len(data):
            raise ValueError(f"{path} ends after {end} bytes")
        if _fill(file, memoryview(kept), end) != CHECKSUM:
            raise ValueError(f"{path} has another length")
        if past:
            _advise(file, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    if (found := checksum_of(data.data)) != int.from_bytes(kept[:CHECKSUM], "little"):
        raise ValueError(MISMATCH)
    return found


def chunk_of(name: str, data: bytes | None, size: int) -> tuple[np.ndarray, int]:
    """The bytes of a chunk of so many, from those of its file; and their checksum.

    Raises:
      FileNotFoundError: there is no file.
      ValueError: it is not as long as it should be, or its checksum is another one.
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
    """Reads from a place in a file on, until there is no more room, or file; how many bytes."""
    done = 0
    while done < len(into) and (count := os.preadv(file, [into[done:]], at + done)):
        done += count
    return done


def _in_memory(file: int) -> bool:
    """Whether the system has the file in its memory, so far as its beginning tells."""
    _advise(file, os.POSIX_FADV_RANDOM)  # or it begins to read what follows
    try:
        return bool(os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))
    except (OSError, AttributeError, NotImplementedError):
        return False  # BlockingIOError: it has not; others: system, or Python, cannot tell
    finally:
        _advise(file, os.POSIX_FADV_NORMAL)


def _advise(file: int, how: int) -> None:
    with suppress(OSError):  # some systems take no advice
        os.posix_fadvise(file, 0, 0, how)


def _read_directly(path: Path, data: np.ndarray) -> int:
    """Has the disk write as much into memory as it can; how many bytes these are.

    These are 0 if the memory does not begin where a page does, or the file system does not do it.
    """
    whole = len(data) // _BLOCK * _BLOCK
    if data.ctypes.data % _BLOCK:
        return 0
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return 0
    try:
        return _fill(file, data.data[:whole], 0)
    except OSError:
        return 0  # what is wrong, if anything, is found by reading in the usual way
    finally:
        os.close(file)
