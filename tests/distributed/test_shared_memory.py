"""Memory shared by the processes of one machine, used twice in one process."""

import os
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest

from shardwise._src.distributed import shared_memory
from shardwise._src.distributed.shared_memory import Note, SharedMemory, are_together, disable

MIB = 1 << 20
MAPS = Path("/proc/self/maps")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only on Linux")


def bytes_of(value, size):
    return np.full(size, value, np.uint8)


def test_parts_of_two_users():
    with SharedMemory([5, 0, 2 * MIB]) as mine, SharedMemory([5, 0, 2 * MIB]) as theirs:
        assert mine.offsets == theirs.offsets == [0, PAGESIZE, PAGESIZE]
        notes = [mine.announce(True), theirs.announce(False)]
        assert are_together(notes, 0) and not are_together(notes, 1)
        assert mine.write(notes[0], [(0, bytes_of(1, 5)), (PAGESIZE, bytes_of(2, MIB))])
        assert theirs.write(notes[0], [(PAGESIZE + MIB, bytes_of(3, MIB))])
        here, there = mine.map(), theirs.map()
    for small, none, large in (here, there):
        assert small.tolist() == [1] * 5 and none.size == 0
        assert (large[:MIB] == 2).all() and (large[MIB:] == 3).all()
    here[2][:] = 9
    assert there[2][0] == 2


def test_each_array_keeps_its_own_memory_and_no_file():
    with SharedMemory([MIB, MIB]) as memory:
        note = memory.announce(True)
        assert memory.write(note, [(0, bytes_of(7, MIB))])
        first, second = memory.map()
    assert not any(note.name in os.readlink(f"/proc/self/fd/{n}") for n in held_files())
    assert MAPS.read_text().count(note.name) == 2 and first[-1] == 7
    view = first[5:]
    del first, second
    assert MAPS.read_text().count(note.name) == 1 and view[0] == 7
    del view
    assert note.name not in MAPS.read_text()


def held_files():
    return [n for n in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{n}")]


def test_another_file_under_the_number_is_not_touched(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"precious")
    with open(path, "r+b") as file, SharedMemory([8]) as memory:
        note = Note("here", f"/proc/{os.getpid()}/fd/{file.fileno()}", "shardwise-0123")
        assert not memory.write(note, [(0, bytes_of(0, 8))])
        assert not memory.write(note._replace(path="/proc/0/fd/1"), [(0, bytes_of(0, 8))])
    assert path.read_bytes() == b"precious"


def test_processes_that_share_nothing(monkeypatch):
    monkeypatch.setattr(shared_memory._State, "off", False)
    assert SharedMemory([]).announce(True) == Note("")
    assert not are_together([Note("a", "/proc/1/fd/1", "x"), Note("b")], 0)
    assert not are_together([Note("a"), Note("a")], 0)

    def full(name):
        raise OSError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", full)
        assert SharedMemory([8]).announce(True) == Note("")
    assert SharedMemory([8]).announce(False).machine
    disable()
    assert SharedMemory([8]).announce(True) == Note("")
