"""Measurements of checkpoints, compared to `dd` on the same disk: see `rows/saving.py`."""

from __future__ import annotations

import mmap
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.libs import DEVICES, Lib, peak_growth

MOST = 10.0  # seconds that saving 10,000 small arrays may take
BLOCK = 32 << 20  # bytes that dd writes and reads at a time


def disk(kind: str, size: int) -> float:
    """Seconds for dd to write and sync a file of zeros, or to read one from the disk."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=os.getcwd()) as folder:
        path = f"{folder}/file"
        write = ["dd", "if=/dev/zero", f"of={path}", f"bs={BLOCK}", f"count={size // BLOCK}",
                 "conv=fsync"]  # fmt: skip
        read = ["dd", f"if={path}", "of=/dev/null", f"bs={BLOCK}"]
        if kind == "restore":
            subprocess.run(write, check=True, capture_output=True)
            forget(Path(folder))
        start = time.perf_counter()
        subprocess.run(write if kind == "save" else read, check=True, capture_output=True)
        return time.perf_counter() - start


def forget(folder: Path) -> None:
    """Drops files from the system's page cache, so that they are read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def checkpoint(lib: Lib, kind: str, size: int, use: Callable[[Callable[[], Any]], float]) -> float:
    """The measurement `use` of saving, or restoring, an array over 8 devices."""
    place = lib.named(lib.mesh(d=DEVICES), "d")
    shape = (1 << 10, size >> 12)
    x = lib.root.jit(lambda: lib.np.arange(size >> 2, dtype="int32").reshape(shape),
                     out_shardings=place)()  # fmt: skip
    lib.root.block_until_ready(x)
    saved = lib.root.checkpoints
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=os.getcwd()) as folder:
        saved.save(f"{folder}/first", {"x": x[:8]})  # loads lazy imports
        saved.restore(f"{folder}/first", place)
        if kind == "save":
            return use(lambda: saved.save(f"{folder}/x", x))
        saved.save(f"{folder}/x", x)
        forget(Path(folder))
        touch(size)
        return use(lambda: lib.root.block_until_ready(saved.restore(f"{folder}/x", place)))


def touch(size: int) -> None:
    """Uses memory and frees it: a virtual machine may have to request fresh memory from its host,
    which takes seconds per GiB and is unrelated to the disk."""
    np.empty(size, np.uint8)[:: mmap.PAGESIZE] = 1


def seconds(call: Callable[[], Any]) -> float:
    """The duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def growth(call: Callable[[], Any]) -> float:
    """The peak memory growth of this process in bytes, excluding the resulting array."""
    result, grown = peak_growth(call)
    return float(grown - (0 if result is None else result.nbytes))


def rate(lib: Lib, kind: str, size: int) -> float:
    """Seconds of the library; instead of the other library, those of dd."""
    if lib.name != "shardwise":
        return disk(kind, size)
    return checkpoint(lib, kind, size, seconds)


def many(lib: Lib) -> float:
    """Seconds for 10,000 small arrays, one file each; instead of the other library, the limit."""
    if lib.name != "shardwise":
        return MOST
    tree = {f"a{i}": np.arange(10.0) + i for i in range(10_000)}
    save = lib.root.checkpoints.save
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=os.getcwd()) as folder:
        save(f"{folder}/first", {"x": np.ones(3)})  # loads lazy imports
        return seconds(lambda: save(f"{folder}/x", tree))


def peak(lib: Lib, kind: str, size: int) -> float:
    """Bytes in addition to the array; instead of the other library, those of a shard."""
    if lib.name != "shardwise":
        return size / DEVICES
    return max(1.0, checkpoint(lib, kind, size, growth))
