"""Files of chunks: with direct I/O or through the page cache; any memory alignment and length."""

import asyncio
import ctypes
import errno
import fcntl
import json
import mmap
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from crc32c import crc32c

import shardwise as sw
from shardwise import checkpoints
from shardwise._src.saving import chunk_files, manifest
from shardwise.errors import CheckpointError
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday

LARGE = 1 << 20
SIZES = [0, 1, 4095, 4097, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE + 4096, (8 << 20) + 4097]


def data_of(size, offset):
    """Bytes in memory that begins at this offset from the start of a page."""
    memory = np.empty(size + 2 * 4096, np.uint8)
    start = -memory.ctypes.data % 4096 + offset
    x = memory[start : start + size]
    x[...] = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    return x


fadvise = os.posix_fadvise


def forget(path):
    file = os.open(path, os.O_RDONLY)
    fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


@pytest.fixture(params=["direct", "refused", "elsewhere", "old", "older", "failing"])
def system(request, monkeypatch):
    """Systems with and without direct I/O."""
    found, into, out = os.open, os.preadv, os.pwrite

    def refuses(path, flags, *more):
        if flags & os.O_DIRECT:
            bad(errno.EINVAL)
        return found(path, flags, *more)

    def bad(number):
        raise OSError(number, os.strerror(number))

    def without_flags(file, buffers, at, flags=0):
        if flags:
            raise NotImplementedError("preadv2: unavailable")
        return into(file, buffers, at)

    def failing(call):
        def without(file, *more):
            if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
                bad(errno.EINVAL)
            return call(file, *more)

        return without

    if request.param == "refused":
        monkeypatch.setattr(os, "open", refuses)
        monkeypatch.setattr(os, "posix_fadvise", lambda *args: bad(errno.ENOSYS))
    elif request.param == "old":  # a Python that was built for old systems
        monkeypatch.delattr(os, "RWF_NOWAIT")
    elif request.param == "older":
        monkeypatch.setattr(os, "preadv", without_flags)
    elif request.param == "elsewhere":
        monkeypatch.setattr(sys, "platform", "other")
        for name in ("O_DIRECT", "RWF_NOWAIT", "posix_fadvise"):
            monkeypatch.delattr(os, name)
    elif request.param == "failing":
        monkeypatch.setattr(os, "preadv", failing(into))
        monkeypatch.setattr(os, "pwrite", failing(out))
    return request.param


@pytest.mark.parametrize("offset", [0, 64])
@pytest.mark.parametrize("size", everyday(SIZES, 4))
def test_what_is_written_is_read(tmp_path, system, size, offset):
    x, path = data_of(size, offset), tmp_path / "c" / "0"
    chunk_files.write_chunk(path, x)
    assert path.read_bytes() == x.tobytes() + crc32c(x.tobytes()).to_bytes(4, "little")
    for alone in (True, False):
        forget(path)
        out = data_of(size, offset)
        out[...] = 0
        chunk_files.read_chunk(path, out, alone)
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("size", [10, LARGE + 10, 2 * LARGE])
def test_damaged_files_are_found(tmp_path, system, size):
    path, out = tmp_path / "0", np.empty(size, np.uint8)
    chunk_files.write_chunk(path, data_of(size, 0))
    whole = path.read_bytes()
    other = bytearray(whole)
    other[size // 2] ^= 1
    for data, text in ((whole[:-5], f"{path} ends after {size - 1} bytes"),
                       (whole[:-1], f"{path} has an unexpected length"),
                       (whole + b"\0", f"{path} has an unexpected length"),
                       (bytes(other), "Digest mismatch")):  # fmt: skip
        path.write_bytes(data)
        for cached in (True, False):
            if not cached:
                os.sync()
                forget(path)
            fails(ValueError, text, chunk_files.read_chunk, path, out, True)


def test_a_disk_that_takes_nothing_any_more(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: 0)
    fails(OSError, "[Errno 5] the system wrote no bytes",
          chunk_files.write_chunk, tmp_path / "0", data_of(LARGE, 0))  # fmt: skip


def test_files_go_past_the_memory_of_the_system_if_they_are_not_there(tmp_path, monkeypatch):
    """Also if the file system turns out not to support it."""
    path, asked = tmp_path / "0", []
    chunk_files.write_chunk(path, data_of(LARGE, 0))
    direct = chunk_files._read_directly
    counted = lambda *args: asked.append(1) or direct(*args)  # noqa: E731
    monkeypatch.setattr(chunk_files, "_read_directly", counted)
    for there, alone in ((True, True), (False, False), (False, True)):
        assert asked == []
        monkeypatch.setattr(chunk_files, "_in_memory", lambda file, there=there: there)
        chunk_files.read_chunk(path, data_of(LARGE, 0), alone)
    assert asked == [1]


def test_large_files_stay_out_of_the_memory_of_the_system(tmp_path):
    """Where the system reports it: pages that were not cached before are not cached afterwards."""
    small, large = tmp_path / "small", tmp_path / "large"
    chunk_files.write_chunk(small, data_of(5000, 0))
    chunk_files.write_chunk(large, data_of(4 * LARGE, 64))
    assert in_memory(small)
    if in_memory(large):
        pytest.skip("this file system keeps what is written past it")
    for offset in (0, 64):  # with direct I/O, and dropped after the read
        chunk_files.read_chunk(large, data_of(4 * LARGE, offset), True)
        assert not in_memory(large)
    chunk_files.read_chunk(large, data_of(4 * LARGE, 0), False)  # others will need it
    assert in_memory(large)
    chunk_files.read_chunk(large, data_of(4 * LARGE, 0), True)  # it was cached, and stays cached
    assert in_memory(large)


def in_memory(path):
    """Whether the system has cached most of a file; a page or two may be in flight."""
    pages = (ctypes.c_ubyte * (path.stat().st_size // mmap.PAGESIZE))()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as at:
        first = ctypes.c_char.from_buffer(at)
        here = ctypes.c_void_p(ctypes.addressof(first))
        size = ctypes.c_size_t(len(pages) * mmap.PAGESIZE)
        assert ctypes.CDLL(None).mincore(here, size, pages) == 0
        del first
    return sum([page & 1 for page in pages]) > len(pages) / 2


def test_a_cancelled_call_is_waited_for():
    """A folder can be removed once its writer has been cancelled: no thread creates files in it."""
    begun, go, done = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert go.wait(30)
        done.append(1)

    async def cancelled():
        task = asyncio.create_task(chunk_files.in_thread(slow))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        asyncio.get_running_loop().call_later(0, go.set)
        threading.Timer(0.05, go.set).start()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [1]

    asyncio.run(cancelled())


def test_calls_while_python_ends(monkeypatch):
    """Threads then accept no more work: the caller does it."""
    over = ThreadPoolExecutor(1)
    over.shutdown()
    monkeypatch.setattr(chunk_files, "_threads", lambda: over)
    done = []
    asyncio.run(chunk_files.in_thread(done.append, 1))
    assert done == [1]


def test_a_failed_part_leaves_nothing_running(tmp_path, monkeypatch):
    """One of many files cannot be written: the others are not written into a removed folder."""
    write = chunk_files.write_chunk

    def failing(path, chunk):
        if "a7/" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, chunk)

    monkeypatch.setattr("shardwise._src.saving.chunks.write_chunk", failing)
    tree = {f"a{i}": np.arange(1000) for i in range(40)}
    at = tmp_path / "t"
    fails(OSError, "save: tree['a7'] could not be written: [Errno 28] No space left on device. "
          "The previous contents are unchanged. Free space on that disk, or choose a folder on "
          "another one.", checkpoints.save, at, tree)  # fmt: skip
    assert os.listdir(tmp_path) == []


def resigned(at, **fields):
    """Writes a manifest with changed facts about its array, and the correct digest."""
    about = json.loads((at / "checkpoint.json").read_text())
    about["content"]["arrays"][0] |= fields
    about["sha256"] = manifest._digest(about["content"])
    (at / "checkpoint.json").write_text(json.dumps(about))


def test_sizes_of_chunks_are_not_taken_from_a_manifest(tmp_path):
    """An untrusted manifest may state a terabyte, for which no memory is requested."""
    at = tmp_path / "t"
    checkpoints.save(at, {"w": np.ones(4)})
    resigned(at, chunks=[10**12])
    fails(CheckpointError, f"restore: {at} is damaged: the file w/c/0 of tree['w'] has 36 bytes, "
          "but 8000000000004 were written. Restore another checkpoint.",
          checkpoints.restore, at)  # fmt: skip


def test_keys_of_a_generator_that_is_not_known_here(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, {"k": sw.random.key(0)})
    resigned(at, key="mine")
    fails(CheckpointError, "restore: tree['k'] has keys of an unknown PRNG implementation 'mine'. "
          "The known ones are: 'threefry2x32', 'threefry4x32', 'philox2x32', 'philox4x32', 'rbg', "
          "'unsafe_rbg', 'pallas_tpu'.",
          checkpoints.restore, at)  # fmt: skip


def test_metadata_that_is_nested_too_deeply(tmp_path):
    deep = None
    for _ in range(3000):
        deep = [deep]
    fails(TypeError, "save: metadata must be JSON-serializable; got a list that is nested too "
          "deeply.", checkpoints.save, tmp_path / "t", {}, metadata=deep)  # fmt: skip
