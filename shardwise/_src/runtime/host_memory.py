"""Host memory of large arrays on CPU devices, and fast copies into it.

The shards of an array are contiguous parts of one block, and the runtime adopts them in place:
every byte is copied once, with a thread per core; a block is large enough for huge pages; and an
array that is sharded along its first dimension is contiguous in memory, so that reading it needs no
copy.

The runtime never writes to adopted memory: a program to which such a buffer is donated gets a copy.
The creator of a block drops its reference once it is filled, so no one else writes to it either.

Blocks of dropped arrays are reused by the next arrays of about the same size, up to 160 MiB in all;
larger ones are returned to the system immediately. `POOL` counts both.
"""

from __future__ import annotations

import functools
import gc
import math
import mmap
import operator
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import _jax
from numpy.typing import NDArray

from shardwise._src.base.progress import progress
from shardwise._src.runtime import threads

_ALIGNMENT = 64  # bytes; the runtime copies memory that is less aligned
_PAGE = mmap.PAGESIZE  # alignment for direct I/O from disks
_CHUNK = 1 << 20  # bytes copied at a time, so that threads end together
_MANY_CHUNKS = 4  # per thread: below that, starting one does not pay off
_MOST_THREADS = 8  # enough to saturate memory bandwidth
_SPARE = 160 << 20  # bytes of blocks that are kept for reuse
_LEAST_SPARE = 1 << 20  # bytes of the smallest of them
_LEVELS = 4  # of owners of a block that `release` frees; of deeper ones, the rest is freed later


class Pool:
    """Blocks of dropped arrays, for reuse: fresh pages cost as much as filling them.

    allocated, reused: blocks since the start, counted without a lock: concurrent threads may count
    one instead of two.
    """

    __slots__ = ("allocated", "reused", "spare")

    def __init__(self) -> None:
        self.spare: deque[NDArray[np.uint8]] = deque()
        self.allocated = self.reused = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        """A spare block of about this size if available, else a new one."""
        for _ in range(len(self.spare)):
            try:
                found = self.spare.popleft()
            except IndexError:  # another thread took it just now
                break
            if size <= found.nbytes <= size + size // 4:
                self.reused += 1
                return found
            self.spare.append(found)
        self.allocated += 1
        return np.empty(size, np.uint8)

    def give_back(self, block: NDArray[np.uint8]) -> None:
        """Stores a block; the oldest ones are freed if there are too many bytes."""
        self.spare.append(block)
        while self.nbytes() > _SPARE:
            try:
                self.spare.popleft()
            except IndexError:  # another thread took the last one just now
                return

    def nbytes(self) -> int:
        return sum([block.nbytes for block in list(self.spare)])


POOL = Pool()


class _Block:
    """Memory that returns to the pool when the last array on it is gone."""

    __slots__ = ("memory", "__array_interface__")

    def __init__(self, size: int):
        self.memory = POOL.take(size)
        self.__array_interface__ = self.memory.__array_interface__

    def __del__(self) -> None:
        if hasattr(self, "memory"):  # the allocation succeeded
            POOL.give_back(self.memory)


def blocks(count: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """Uninitialized arrays in one allocation; without gaps if their size allows it. Large ones
    begin at a page boundary."""
    release()
    size = math.prod(shape) * dtype.itemsize
    stride = -(-size // _ALIGNMENT) * _ALIGNMENT
    aligned = _PAGE if count * stride >= _LEAST_SPARE else _ALIGNMENT
    total = count * stride + aligned
    memory = np.asarray(_Block(total)) if aligned == _PAGE else np.empty(total, np.uint8)
    first = -memory.__array_interface__["data"][0] % aligned
    starts = range(first, first + count * stride, stride) if stride else [first] * count
    return [memory[s : s + size].view(dtype).reshape(shape) for s in starts]


def release() -> None:
    """Frees memory whose last buffer is gone. The runtime defers that until it is requested.

    Repeated, since each pass frees only unowned objects: a view of a shard that was read on the
    host owns the shard's buffer, which owns a view of the array's buffer, which owns the memory.
    """
    for _ in range(_LEVELS):
        _jax.collect_garbage()


class _Collection:
    """Called by Python's garbage collector, as `getattr(_Collection(), phase, info)`.

    It is not a Python function: a pending signal handler would run at the start of the function,
    and an exception in it, as raised by Ctrl-C, would be printed and lost.
    """

    release = staticmethod(_jax.collect_garbage)
    stop = property(operator.methodcaller("release"))  # the phase at the end


gc.callbacks += [functools.partial(getattr, _Collection())] * _LEVELS  # see `release`


def copy_all(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    """Copies each second array into the first of its pair; large ones with several threads."""
    total = sum([to.nbytes for to, _ in pairs])
    count = min(_cores(), _MOST_THREADS, total // (_MANY_CHUNKS * _CHUNK))
    if count < 2:
        for to, source in pairs:
            np.copyto(to, source, casting="unsafe")
        return
    work = deque([chunk for to, source in pairs for chunk in _chunks(to, source)])
    failures: list[BaseException] = []
    with progress("copying", total) as bar:
        copy = functools.partial(_copy_chunks, work, failures, bar)
        tasks = [threads.start(copy, "copy", daemon=False) for _ in range(count - 1)]
        copy()
        for task in tasks:
            task.join()
    if failures:
        raise failures[0]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(to: NDArray[Any], source: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The pair, split along the first dimension that has several elements."""
    if to.nbytes <= _CHUNK:
        return [(to, source)]
    axis = next(i for i, n in enumerate(to.shape) if n > 1)
    rows = max(1, _CHUNK * to.shape[axis] // to.nbytes)
    at = [(slice(None),) * axis + (slice(i, i + rows),) for i in range(0, to.shape[axis], rows)]
    return [(to[index], source[index]) for index in at]


def _copy_chunks(work: deque[Any], failures: list[BaseException], bar: progress) -> None:
    try:
        while not failures:
            to, source = work.popleft()
            np.copyto(to, source, casting="unsafe")
            bar.add(to.nbytes)
    except IndexError:
        return  # no more work
    except BaseException as error:  # raised again by the thread that waits for all
        failures.append(error)


class _Span:
    """Memory that `owners` keep alive, as an object that NumPy accepts."""

    def __init__(self, address: int, size: int, owners: Any):
        self.owners = owners
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (address, True),
        }


def whole(
    parts: Sequence[NDArray[Any]], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    """Parts of an array in row-major order as one read-only array; None if that needs a copy.

    It does not if they are split along the first dimension and are adjacent in memory.
    """
    address = end = None
    for part in parts:
        if not part.size:
            continue
        start = part.__array_interface__["data"][0]
        if part.shape[1:] != shape[1:] or not part.flags.c_contiguous or end not in (None, start):
            return None
        address, end = address or start, start + part.nbytes
    size = math.prod(shape) * dtype.itemsize
    if address is None or end != address + size:
        return None
    return np.asarray(_Span(address, size, parts)).view(dtype).reshape(shape)
