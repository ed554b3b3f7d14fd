"""Files of chunks on the file system, read straight to where their values go.

TensorStore reads a file into memory of its own, and copies from there. Here the bytes go where the
array is to be, unless only a part of the chunk is wanted; and several threads read at a time.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from shardwise._src.runtime.forks import forgotten_by_fork

CHECKSUM = 4  # bytes behind those of a chunk
MISMATCH = "Digest mismatch"  # as TensorStore says it
_THREADS = 4  # some copy from the system's memory while others wait for the disk


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "shardwise-reading")


forgotten_by_fork(_threads.cache_clear)


@functools.cache
def _checksum() -> Callable[[memoryview], int]:
    try:
        return importlib.import_module("crc32c").crc32c
    except ImportError as error:
        raise ImportError(
            "Checkpoints are read with the package crc32c, which is not installed: "
            "pip install 'shardwise[tensorstore]'."
        ) from error


async def read_chunk(path: Path, into: np.ndarray) -> None:
    """Reads all of a chunk into an array of its shape, which is contiguous.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is not as long as it should be, or its checksum is another one.
      ImportError: crc32c is not installed.
    """
    try:
        reading = asyncio.get_running_loop().run_in_executor(_threads(), _read, path, into)
    except RuntimeError:  # Python is ending, and lets threads be used no more: this one goes on
        _read(path, into)
        return
    await reading


def _read(path: Path, into: np.ndarray) -> None:
    checksum = _checksum()
    data = into.reshape(-1).view(np.uint8).data
    with open(path, "rb", buffering=0) as file:
        done = 0
        while done < len(data):
            count = file.readinto(data[done:])
            if not count:
                raise ValueError(f"{path} ends after {done} bytes")
            done += count
        kept = file.read(CHECKSUM + 1)  # no more is there
    if len(kept) != CHECKSUM:
        raise ValueError(f"{path} has another length")
    if checksum(data) != int.from_bytes(kept, "little"):
        raise ValueError(MISMATCH)
